//! What a hop through the proxy costs, beside no proxy, HAProxy, which relays bytes, Envoy, and
//! whatever else is named: CPU per call, latency, memory; in turns within one run.

mod bar;
mod contender;
mod cores;
mod course;
mod figures;
mod footprint;
mod record;
mod report;
mod stage;

use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use tokio::runtime::{Builder, LocalOptions};

use crate::signals::Signals;
use crate::{descriptors, file, http, load, part};
pub use contender::Yardstick;
use course::{COURSES, Course};

/// What to measure, and how long.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Rounds of each load and contender, in turns, of which the medians count
    #[arg(long, value_name = "N", default_value = "5")]
    pub rounds: NonZero<u32>,
    /// How long a round is
    #[arg(long, value_parser = crate::time::parse, value_name = "TIME", default_value = "2s")]
    pub duration: Duration,
    /// Measure under this load only. Repeatable
    #[arg(long, value_name = "LOAD", value_parser = courses())]
    pub only: Vec<String>,
    /// A look in seconds: one short round of each
    #[arg(long, conflicts_with_all = ["duration", "rounds"])]
    pub quick: bool,
    /// HAProxy, if it is not on the path
    #[arg(long, value_name = "FILE")]
    pub haproxy: Option<PathBuf>,
    /// Envoy, if it is not on the path
    #[arg(long, value_name = "FILE")]
    pub envoy: Option<PathBuf>,
    /// A program to measure as well; {listen} and {upstream} in its command become its addresses.
    /// Repeatable
    #[arg(long, value_name = "NAME=COMMAND")]
    pub beside: Vec<Yardstick>,
    /// Write all figures to a file, in JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with plots to a file, in HTML
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Add the figures to a file, in Markdown, with machine, commit and command
    #[arg(long, value_name = "FILE")]
    pub append: Option<PathBuf>,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A process does not do what it is for.
    #[error(transparent)]
    Part(#[from] part::Error),
    /// A peer that was named is not there.
    #[error("there is no {}", .0.display())]
    NoPeer(PathBuf),
    /// The pilot cannot be asked, or says no.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// No load can be made.
    #[error(transparent)]
    Load(#[from] load::Error),
    /// A plot has no room for what it should show.
    #[error("a plot cannot be drawn")]
    Plot(#[from] crate::plot::Error),
    /// The figures cannot be written.
    #[error(transparent)]
    Write(#[from] file::Error),
    /// A process that was to be measured is none of ours.
    #[error("a process that is measured is gone")]
    Alone,
    /// A signal came before the end.
    #[error("interrupted")]
    Interrupted,
    /// The operating system refused something else.
    #[error("the data plane cannot be measured")]
    System(#[from] io::Error),
}

/// Measures with `program`, which is `dubbo-mesh`, and tells; whether no call failed and, if the run
/// was long enough to judge, every bar was held. Everything it started has ended when it returns.
///
/// # Errors
/// A part does not start or answer, or a file cannot be written; it was interrupted.
pub fn run(program: &Path, options: &Options) -> Result<bool, Error> {
    descriptors::lift_limit()?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    let record = runtime.block_on(async {
        // Before anything is started that would stay behind.
        let mut signals = Signals::new()?;
        tokio::select! {
            biased;
            () = signals.next() => Err(Error::Interrupted),
            record = stage::measure(program, options) => record,
        }
    })?;
    println!("{record}");
    if let Some(path) = &options.json {
        file::write(path, &record.json())?;
    }
    if let Some(path) = &options.report {
        file::write(path, &report::html(&record)?)?;
    }
    if let Some(path) = &options.append {
        file::append(path, &record.markdown())?;
    }
    Ok(record.is_good())
}

/// The loads that are wanted.
fn wanted(options: &Options) -> impl Iterator<Item = &'static Course> {
    let only = &options.only;
    let all = COURSES.iter();
    all.filter(|course| only.is_empty() || only.iter().any(|name| name == course.name))
}

fn courses() -> PossibleValuesParser {
    PossibleValuesParser::new(COURSES.map(|course| course.name))
}
