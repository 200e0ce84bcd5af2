//! From what is written to what is meant: defaults filled in, every value checked.

use std::path::{Path, PathBuf};

use super::{
    Config, Endpoint, Error, HTTP, LEVEL, REGISTRY, XDS,
    raw::{Raw, RawRegistry},
};
use crate::{logging, yaml::Problems};

/// The configuration that `raw` of `file` says, in the folder `dir`, or all that is wrong with it.
pub(super) fn resolve(raw: &Raw, file: &Path, dir: &Path) -> Result<Config, Error> {
    let mut problems = Problems::default();
    let level = raw.logging.as_ref().and_then(|raw| raw.level.as_ref());
    let level = problems.parse("logging.level", level, |text| {
        logging::filter(text).map(|_| text.clone())
    });
    let config = Config {
        xds: Endpoint::resolve(raw.xds.as_ref(), "xds", XDS, dir, &mut problems),
        http: Endpoint::resolve(raw.http.as_ref(), "http", HTTP, dir, &mut problems),
        registry: registry(raw, dir, &mut problems),
        log_level: level.unwrap_or_else(|| LEVEL.into()),
    };
    problems.done(file, config)
}

/// The file of the one registry there is.
fn registry(raw: &Raw, dir: &Path, problems: &mut Problems) -> PathBuf {
    let default = || dir.join(REGISTRY);
    let Some(written) = &raw.registries else {
        return default();
    };
    match &written.value[..] {
        [RawRegistry::Embedded(embedded)] => {
            let path = embedded.path.as_ref();
            path.map_or_else(default, |path| dir.join(&path.value))
        }
        several => {
            let count = several.len();
            let cure = format!("has {count} registries; write one, as - embedded: {{}}");
            problems.add(Some(written.referenced), "registries", cure);
            default()
        }
    }
}
