//! `dubbo-mesh bench`: what a part of the mesh costs, and how fast it is.

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use mesh_benches::discovery;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// How fast a change of the registry reaches calls, and what the first call of a service costs
    Discovery(discovery::Options),
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program")?;
    match bench {
        Bench::Discovery(options) => discovery::run(&program, options)?,
    }
    Ok(ExitCode::SUCCESS)
}
