//! The load generator: closed loop, open loop, and pages of serial calls, against one target or
//! two in turn.

mod arguments;
mod connection;
pub(crate) mod plan;
mod report;
mod round;
pub(crate) mod schedule;
pub(crate) mod tally;

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use dubbo_proto::key::ServiceKey;
use indicatif::ProgressBar;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task;

use crate::time::now;
use crate::{descriptors, file, progress};
use plan::Plan;
use report::Report;
pub(crate) use round::Round;
use tally::Tally;

/// What to call, how, and for how long.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Address to call
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:15001")]
    pub target: SocketAddr,
    /// A second target: both are measured in turns, and their medians compared
    #[arg(long, value_name = "ADDR")]
    pub compare: Option<SocketAddr>,
    /// Turns of each target with --compare
    #[arg(long, value_name = "N", default_value = "5")]
    pub rounds: NonZero<u32>,
    /// A service, as group/interface:version. Repeatable: calls go to each in turn
    #[arg(long = "service", value_name = "KEY", required = true)]
    pub services: Vec<ServiceKey>,
    /// The method
    #[arg(long, value_name = "NAME", default_value = "echo")]
    pub method: String,
    /// An argument in JSON; an object with a `class` is an object of that class. Repeatable
    #[arg(long = "arg", value_name = "JSON", conflicts_with = "payload")]
    pub arguments: Vec<String>,
    /// Parameter types instead of those the arguments suggest, such as int,java.lang.String
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    pub types: Option<Vec<String>>,
    /// One argument instead: a string of so many bytes
    #[arg(long, value_name = "BYTES")]
    pub payload: Option<usize>,
    /// Connections
    #[arg(long, value_name = "N", default_value = "1")]
    pub connections: NonZero<u32>,
    /// Closed loop: so many calls (pages, with --serial) are always in flight, over all connections
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "rate")]
    pub concurrency: NonZero<u32>,
    /// Open loop: so many calls (pages, with --serial) a second, whether or not answers come;
    /// latency counts from the time a call was due
    #[arg(long, value_name = "N")]
    pub rate: Option<NonZero<u64>>,
    /// Calls of a page, each sent when the one before is answered
    #[arg(long, value_name = "N", default_value = "1")]
    pub serial: NonZero<u32>,
    /// How long calls are sent, in each turn
    #[arg(long, value_parser = crate::time::parse, value_name = "TIME", default_value = "10s")]
    pub duration: Duration,
    /// How long a call may take
    #[arg(long, value_parser = crate::time::parse, value_name = "TIME", default_value = "3s")]
    pub timeout: Duration,
    /// A process whose CPU time per call and memory to report. Repeatable
    #[arg(long, value_name = "PID")]
    pub cpu_of: Vec<u32>,
    /// Write all figures to a file, in JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Succeed even if calls failed
    #[arg(long)]
    pub allow_errors: bool,
}

/// Why no load could be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments of the call are wrong.
    #[error(transparent)]
    Plan(#[from] plan::Error),
    /// A target is not there.
    #[error("cannot connect to {target}")]
    Connect {
        /// Its address.
        target: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The figures cannot be written.
    #[error(transparent)]
    Write(#[from] file::Error),
    /// The operating system refused something else.
    #[error("no load can be made")]
    System(#[from] io::Error),
}

/// Makes the load and prints a table; whether that was a success: no call failed, or none had to
/// succeed.
///
/// # Errors
/// No load could be made, or its figures not be written.
pub fn run(options: &Options) -> Result<bool, Error> {
    let plan = Rc::new(Plan::new(options)?);
    descriptors::lift_limit()?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    let turns = options.compare.map_or(1, |_| options.rounds.get());
    let mut report = Report::new(&plan, options.target, options.compare);
    for turn in 1..=turns {
        for target in [Some(options.target), options.compare]
            .into_iter()
            .flatten()
        {
            let bar = bar_of(&plan, &format!("{target} {turn}/{turns}"));
            let round = runtime.block_on(watched(&plan, target, &bar))?;
            bar.finish_and_clear();
            report.add(round);
        }
    }
    print!("{report}");
    if let Some(path) = &options.json {
        file::write(path, &report.json())?;
    }
    Ok(options.allow_errors || report.failed_calls() == 0)
}

/// Measures one target once, and shows how that goes.
async fn watched(plan: &Rc<Plan>, target: SocketAddr, bar: &ProgressBar) -> Result<Round, Error> {
    let tally = Rc::new(Tally::new());
    let watch = task::spawn_local(watch(bar.clone(), now(), Rc::clone(&tally)));
    let round = Round::measure(plan, target, tally).await;
    watch.abort();
    round
}

fn bar_of(plan: &Plan, name: &str) -> ProgressBar {
    let length = u64::try_from(plan.duration.as_millis()).unwrap_or(u64::MAX);
    progress::bar(length, "{msg} {wide_bar} {prefix}").with_message(name.to_owned())
}

async fn watch(bar: ProgressBar, start: std::time::Instant, tally: Rc<Tally>) {
    while !bar.is_hidden() {
        tokio::time::sleep(REDRAW).await;
        bar.set_position(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX));
        bar.set_prefix(format!(
            "{} calls, {} failed",
            tally.answered(),
            tally.failed()
        ));
    }
}

const REDRAW: Duration = Duration::from_millis(100);
