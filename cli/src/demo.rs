//! `dubbo-mesh demo`.

use std::process::ExitCode;

use anyhow::Context;
use mesh_benches::demo::{self, Options};

/// Fails if a call failed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let good = demo::run(&program, options)?;
    Ok(crate::code(good))
}
