//! A newcomer's first minute: the whole mesh as real processes, under load, while its parts are
//! killed one after another.

mod application;
mod figures;
mod plan;
mod provider;
mod report;
mod script;
mod stage;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};

use crate::signals::Signals;
use crate::{file, http, part};
use plan::Plan;

/// How long to play, and what to leave behind.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// How long the load runs; parts take longer to come back if that is little
    #[arg(long, value_parser = crate::time::parse, value_name = "TIME", default_value = "20s")]
    pub duration: Duration,
    /// Write all figures to a file, in JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with a plot to a file, in HTML
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Let everything run on until Ctrl-C
    #[arg(long)]
    pub keep: bool,
    /// Be the application, as this file says
    #[arg(long, value_name = "FILE", hide = true)]
    pub application: Option<PathBuf>,
    /// Be a provider that listens there
    #[arg(long, value_name = "ADDR", hide = true, requires = "journal")]
    pub provider: Option<SocketAddr>,
    /// The provider: where it notes payments
    #[arg(long, value_name = "FILE", hide = true)]
    pub journal: Option<PathBuf>,
}

/// Why the demo did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A process does not do what it is for.
    #[error(transparent)]
    Part(#[from] part::Error),
    /// A process cannot be asked, or says no.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// A process says something else than expected.
    #[error("not what a process of the demo says")]
    Alien(#[from] serde_json::Error),
    /// A client cannot be made.
    #[error(transparent)]
    Client(#[from] thin_sdk::BuildError),
    /// A service of the demo has no name that is one.
    #[error(transparent)]
    Key(#[from] dubbo_proto::key::Error),
    /// Something does not come, or does not come back.
    #[error("waited in vain for {0}")]
    Late(&'static str),
    /// A plot has no room for what it should show.
    #[error("a plot cannot be drawn")]
    Plot(#[from] crate::plot::Error),
    /// The figures cannot be written.
    #[error(transparent)]
    Write(#[from] file::Error),
    /// A signal came before the end.
    #[error("interrupted")]
    Interrupted,
    /// The operating system refused something else.
    #[error("the demo cannot run")]
    System(#[from] io::Error),
}

/// Runs the demo with `program`, which is `dubbo-mesh`; whether nothing was lost, and nothing done
/// twice. Everything it started has ended when it returns.
///
/// # Errors
/// A part does not start or come back, or a file cannot be written; it was interrupted.
pub fn run(program: &Path, options: &Options) -> Result<bool, Error> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    runtime.block_on(async {
        if let Some(file) = &options.application {
            let plan: Plan = serde_json::from_slice(&fs::read(file)?)?;
            match application::serve(&plan).await? {}
        }
        if let (Some(listen), Some(journal)) = (options.provider, &options.journal) {
            match provider::serve(listen, journal).await? {}
        }
        // Before anything is started that would stay behind.
        let mut signals = Signals::new()?;
        let mut stage = tokio::select! {
            biased;
            () = signals.next() => return Err(Error::Interrupted),
            stage = stage::Stage::new(program) => stage?,
        };
        let (outcome, acts) = tokio::select! {
            biased;
            () = signals.next() => return Err(Error::Interrupted),
            played = script::play(program, &mut stage, options.duration) => played?,
        };
        println!("\n{outcome}");
        if let Some(path) = &options.json {
            file::write(path, &outcome.json())?;
        }
        if let Some(path) = &options.report {
            file::write(path, &report::html(&outcome, &acts)?)?;
        }
        if options.keep {
            println!("everything runs on; Ctrl-C ends it");
            script::go_on(&stage).await?;
            signals.next().await;
        }
        Ok(outcome.is_good())
    })
}
