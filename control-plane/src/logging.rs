//! What a process says of itself, to standard error.

use std::io::IsTerminal;

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::MakeWriter,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// The filter that `text` means: a level for all, levels for modules, or both, as
/// `info,control_plane::bonder=debug`.
///
/// # Errors
/// What is wrong with it. A misspelt level, which the parser of the library takes for a module
/// of which everything is logged, is an error too.
pub(crate) fn filter(text: &str) -> Result<Targets, String> {
    let mut filter = Targets::new();
    for part in text.split(',').map(str::trim) {
        let (module, level) = part
            .rsplit_once('=')
            .map_or((None, part), |(module, level)| (Some(module), level));
        let known = Some(level).filter(|level| !level.is_empty());
        let known = known.and_then(|level| level.parse::<LevelFilter>().ok());
        let level = known.ok_or_else(|| {
            format!(
                "{part:?} is no level; write off, error, warn, info, debug, trace or MODULE=level"
            )
        })?;
        filter = match module {
            Some(module) => filter.with_target(module, level),
            None => filter.with_default(level),
        };
    }
    Ok(filter)
}

/// Starts to log what `level` says, by `writer`, which leads to standard error.
///
/// # Errors
/// `level` is no filter, or the process logs already.
pub(crate) fn install(
    level: &str,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> Result<(), String> {
    // Colours are for people: in a file they are noise.
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(writer);
    let subscriber = tracing_subscriber::registry().with(filter(level)?);
    let installed = subscriber.with(lines).try_init();
    installed.map_err(|error| error.to_string())
}
