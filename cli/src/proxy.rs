//! `dubbo-mesh proxy`: the sidecar.

use std::{path::PathBuf, process::ExitCode};

/// The sidecar proxy.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The configuration, in YAML; docs/config.md lists every key.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    dubbo_proxy::app::run(&options.config)?;
    Ok(ExitCode::SUCCESS)
}
