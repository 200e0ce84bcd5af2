//! `dubbo-mesh bonder`: starts and ties together what runs in a container.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use control_plane::bonder::{self, config::Config, launch};

/// The supervisor of a container.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The configuration, in YAML; docs/bonder.md lists every key
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and exit
    #[arg(long)]
    check: bool,
    /// Print the effective configuration, with every default and without secrets, and exit
    #[arg(long, conflicts_with = "check")]
    print_config: bool,
    /// The application, with its arguments, started when the proxy is ready; its exit ends bonder
    #[arg(last = true, value_name = "APPLICATION")]
    application: Vec<OsString>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if options.check {
        Config::load(&options.config)?;
        println!("{}: good", options.config.display());
    } else if options.print_config {
        print!("{}", Config::load(&options.config)?.to_yaml());
    } else {
        return Ok(bonder::run(&options.config, &options.application)?.into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Becomes a program that is killed when bonder ends.
#[derive(Debug, clap::Args)]
pub(crate) struct Launch {
    /// The process that must live
    #[arg(long, value_name = "PID")]
    parent: u32,
    /// The program, with its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn launch(options: &Launch) -> ExitCode {
    let Some((program, arguments)) = options.command.split_first() else {
        return ExitCode::FAILURE;
    };
    let error = launch::become_child(options.parent, program, arguments);
    crate::complain(&error.to_string());
    error.code().into()
}
