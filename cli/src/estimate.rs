//! `dubbo-mesh estimate`.

use std::process::ExitCode;

use mesh_benches::estimate::{self, Options};

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    estimate::run(options)?;
    Ok(ExitCode::SUCCESS)
}
