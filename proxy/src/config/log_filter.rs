//! What is logged, as people write it.

use tracing_subscriber::filter::{LevelFilter, Targets};

/// The filter that `text` means: a level for all, levels for modules, or both, as
/// `info,dubbo_proxy::config=debug`.
///
/// # Errors
/// What is wrong with it. A misspelt level, which the parser of the library takes for a module
/// of which everything is logged, is an error too.
pub fn log_filter(text: &str) -> Result<Targets, String> {
    let cure = |part: &str| {
        format!("{part:?} is no level; write off, error, warn, info, debug, trace or MODULE=level")
    };
    let mut filter = Targets::new();
    for part in text.split(',').map(str::trim) {
        let (module, level) = part
            .rsplit_once('=')
            .map_or((None, part), |(m, l)| (Some(m), l));
        let level: LevelFilter = match level {
            "" => return Err(cure(part)),
            level => level.parse().map_err(|_| cure(part))?,
        };
        filter = match module {
            Some(module) => filter.with_target(module, level),
            None => filter.with_default(level),
        };
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_has_a_level_for_all_and_levels_for_modules() {
        let filter = log_filter("warn, dubbo_proxy=debug").expect("a filter");
        assert!(filter.would_enable("other", &Level::WARN));
        assert!(!filter.would_enable("other", &Level::INFO));
        assert!(filter.would_enable("dubbo_proxy::config", &Level::DEBUG));
    }

    #[test]
    fn a_misspelt_level_is_an_error() {
        for text in ["", "inof", "info,", "info,debgu", "dubbo_proxy=", "a=b"] {
            assert!(log_filter(text).is_err(), "{text:?}");
        }
    }
}
