//! `dubbo-mesh provider`.

use std::process::ExitCode;

use anyhow::Context;
use mesh_benches::provider::{self, Options};

pub(crate) fn run(options: Options) -> anyhow::Result<ExitCode> {
    let listen = options.listen;
    provider::run(options).with_context(|| format!("cannot serve on {listen}"))?;
    Ok(ExitCode::SUCCESS)
}
