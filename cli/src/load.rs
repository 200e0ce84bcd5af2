//! `dubbo-mesh load`.

use std::process::ExitCode;

use mesh_benches::load::{self, Options};

/// Fails if a call failed that had to succeed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let good = load::run(options)?;
    Ok(crate::code(good))
}
