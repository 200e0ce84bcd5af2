//! `dubbo-mesh bench`: what a part of the mesh costs, and how fast it is.

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use mesh_benches::{data_plane, discovery};

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// What a hop through the proxy costs, beside no proxy, HAProxy and Envoy
    DataPlane(data_plane::Options),
    /// How fast a change of the registry reaches calls, and what the first call of a service costs
    Discovery(discovery::Options),
}

/// Fails if something was measured that must not be.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let good = match bench {
        Bench::DataPlane(options) => data_plane::run(&program, options)?,
        Bench::Discovery(options) => {
            discovery::run(&program, options)?;
            true
        }
    };
    Ok(crate::code(good))
}
