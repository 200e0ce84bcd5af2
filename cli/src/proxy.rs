//! `dubbo-mesh proxy`: the sidecar.

use std::{path::PathBuf, process::ExitCode};

use dubbo_proxy::{app, config::Config};

use crate::memory;

/// The sidecar proxy.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The configuration, in YAML; docs/config.md lists every key
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and exit
    #[arg(long)]
    check: bool,
    /// Print the effective configuration, with every default and without secrets, and exit
    #[arg(long, conflicts_with = "check")]
    print_config: bool,
    /// The Unix socket of whoever keeps the listening sockets while the proxy ends and starts again
    #[arg(long, value_name = "PATH")]
    sockets: Option<PathBuf>,
    /// Bind what is configured, leave it with the keeper at --sockets, and exit
    #[arg(long, requires = "sockets", conflicts_with_all = ["check", "print_config"])]
    bind_only: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if options.check {
        Config::load(&options.config)?;
        println!("{}: good", options.config.display());
    } else if options.print_config {
        print!("{}", Config::load(&options.config)?.to_yaml());
    } else if let (true, Some(sockets)) = (options.bind_only, &options.sockets) {
        app::bind(&options.config, sockets)?;
    } else {
        memory::give_back()?;
        app::run(&options.config, options.sockets.as_deref())?;
    }
    Ok(ExitCode::SUCCESS)
}
