//! `dubbo-mesh evaluate`.

use std::process::ExitCode;

use anyhow::Context;
use mesh_benches::evaluate::{self, Options};

/// Fails if a page failed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let good = evaluate::run(&program, options)?;
    Ok(crate::code(good))
}
