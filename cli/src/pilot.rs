//! `dubbo-mesh pilot`: the control plane.

use std::{path::PathBuf, process::ExitCode};

use control_plane::pilot::{app, config::Config};

use crate::memory;

/// The control plane.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The configuration, in YAML; docs/pilot.md lists every key
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and exit
    #[arg(long)]
    check: bool,
    /// Print the effective configuration, with every default and without secrets, and exit
    #[arg(long, conflicts_with = "check")]
    print_config: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if options.check {
        Config::load(&options.config)?;
        println!("{}: good", options.config.display());
    } else if options.print_config {
        print!("{}", Config::load(&options.config)?.to_yaml());
    } else {
        memory::give_back()?;
        app::run(&options.config)?;
    }
    Ok(ExitCode::SUCCESS)
}
