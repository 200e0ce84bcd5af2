//! What a hop through the sidecar costs an application: a glue server answers for pages, each of
//! which takes a number of calls of a provider, once direct and once through the mesh.
//!
//! Three roles, on one machine or on three: the loader asks the glue server for pages and reckons;
//! the glue server has a sidecar beside it; the provider. The latter two tell over HTTP what their
//! processes use, in the one case as in the other.

mod campaign;
mod course;
mod evaluation;
mod glue;
mod page;
mod pages;
mod plot;
mod station;
mod table;

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use clap::ValueEnum;
use tokio::runtime::{Builder, LocalOptions};

use crate::part::{self, Part};
use crate::signals::Signals;
use crate::{descriptors, file, http};
use campaign::Campaign;
#[cfg(test)]
pub(crate) use evaluation::tests;
pub(crate) use evaluation::{Evaluation, Point, VERSION};

/// What to measure, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Only this part, where each has a machine of its own; without it, all on this one
    #[arg(long)]
    pub role: Option<Role>,
    /// Glue server and provider: where to listen for HTTP; port 0 picks one, which is printed
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Provider: where to take Dubbo calls; glue server: where the provider takes them
    #[arg(long, value_name = "ADDR", required_if_eq("role", "glue"))]
    pub dubbo: Option<SocketAddr>,
    /// Loader: the glue server's --listen
    #[arg(long, value_name = "ADDR", required_if_eq("role", "loader"))]
    pub glue: Option<SocketAddr>,
    /// Loader: the provider's --listen
    #[arg(long, value_name = "ADDR", required_if_eq("role", "loader"))]
    pub provider: Option<SocketAddr>,
    /// Pages a second, one after another until it is too much
    /// [default: 20,40,80,120,160,240,320,480]
    #[arg(long, value_name = "N,N,…", value_delimiter = ',')]
    pub rates: Option<Vec<NonZero<u64>>>,
    /// Then, so many pages at once
    #[arg(long, value_name = "N", default_value = "100")]
    pub concurrency: NonZero<u32>,
    /// Calls of a page
    #[arg(long, value_name = "N", default_value = "21")]
    pub calls: NonZero<u32>,
    /// Send the calls of a page all at once, and not one after another
    #[arg(long)]
    pub concurrent_calls: bool,
    /// Bytes that a call takes along and brings back
    #[arg(long, value_name = "BYTES", default_value = "128")]
    pub payload: u32,
    /// How long a round is: each pace is measured direct and through the mesh in turns
    #[arg(long, value_parser = crate::time::parse, value_name = "TIME", default_value = "3s")]
    pub duration: Duration,
    /// Rounds of each pace and way, of which the medians count
    #[arg(long, value_name = "N", default_value = "3")]
    pub rounds: NonZero<u32>,
    /// A look in seconds: one short round of each, at few rates
    #[arg(long, conflicts_with_all = ["duration", "rounds"])]
    pub quick: bool,
    /// Write all figures to a file, in JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with plots to a file, in HTML
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// End when this process ends, which started us
    #[arg(long, value_name = "PID", hide = true)]
    pub end_with: Option<i32>,
}

/// A part of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Asks for pages and measures
    Loader,
    /// Answers for pages; with a sidecar beside it
    Glue,
    /// Answers calls
    Provider,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A process does not do what it is for.
    #[error(transparent)]
    Part(#[from] part::Error),
    /// The glue server does not know where the provider is.
    #[error("the glue server needs --dubbo, the address of the provider")]
    NoProvider,
    /// The loader does not know where the others are.
    #[error("the loader needs --glue and --provider")]
    NoStations,
    /// The glue server or the provider cannot be asked.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// The glue server or the provider is no part of an evaluation.
    #[error("not what a part of an evaluation says")]
    Alien(#[from] serde_json::Error),
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
    #[error("the evaluation cannot run")]
    System(#[from] io::Error),
}

/// Plays the role, with `program`, which is `dubbo-mesh`; whether no page failed. Everything it
/// started has ended when it returns.
///
/// # Errors
/// A part does not start or answer, or a file cannot be written; the loader was interrupted.
pub fn run(program: &Path, options: &Options) -> Result<bool, Error> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    runtime.block_on(async {
        // Before anything is started that would stay behind.
        let mut signals = Signals::new()?;
        tokio::select! {
            biased;
            () = signals.next() => match options.role {
                Some(Role::Provider | Role::Glue) => Ok(true),
                Some(Role::Loader) | None => Err(Error::Interrupted),
            },
            outcome = play(program, options) => outcome,
        }
    })
}

async fn play(program: &Path, options: &Options) -> Result<bool, Error> {
    descriptors::lift_limit()?;
    if let Some(parent) = options.end_with {
        station::end_with(parent)?;
    }
    match options.role {
        Some(Role::Provider) => match station::provide(program, options).await? {},
        Some(Role::Glue) => match glue::serve(program, options).await? {},
        Some(Role::Loader) => match (options.glue, options.provider) {
            (Some(glue), Some(provider)) => load(options, glue, provider).await,
            _ => Err(Error::NoStations),
        },
        None => all(program, options).await,
    }
}

/// All roles on this machine.
async fn all(program: &Path, options: &Options) -> Result<bool, Error> {
    let own = process::id().to_string();
    let (listen, end) = (["--listen", "127.0.0.1:0"], ["--end-with", &own]);
    let arguments = [&["evaluate", "--role", "provider"], &listen[..], &end[..]].concat();
    let mut provider = Part::subcommand(program, "provider", &arguments)?;
    let dubbo = provider.address("Dubbo on ")?.to_string();
    let at = provider.address("listening on ")?;
    let role = ["evaluate", "--role", "glue", "--dubbo", &dubbo];
    let arguments = [&role[..], &listen[..], &end[..]].concat();
    let mut glue = Part::subcommand(program, "glue server", &arguments)?;
    let glue_at = glue.address("listening on ")?;
    load(options, glue_at, at).await
}

/// Measures, tells, and leaves what was wanted in files.
async fn load(options: &Options, glue: SocketAddr, provider: SocketAddr) -> Result<bool, Error> {
    let evaluation = Campaign::new(options, glue, provider).run().await?;
    print!("{}", table::Text(&evaluation));
    if let Some(path) = &options.json {
        file::write(path, &format!("{:#}\n", serde_json::to_value(&evaluation)?))?;
    }
    if let Some(path) = &options.report {
        file::write(path, &page::html(&evaluation)?)?;
    }
    Ok(evaluation.failed() == 0)
}
