//! From what is written to what is meant: defaults filled in, every value checked.

use std::path::{Path, PathBuf};

use super::{
    Config, Error, HTTP, Http, LEVEL, REGISTRY, Token,
    raw::{Raw, RawHttp, RawRegistry},
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
        http: http(raw.http.as_ref(), dir, &mut problems),
        registry: registry(raw, dir, &mut problems),
        log_level: level.unwrap_or_else(|| LEVEL.into()),
    };
    problems.done(file, config)
}

fn http(raw: Option<&RawHttp>, dir: &Path, problems: &mut Problems) -> Http {
    let written = raw.and_then(|raw| raw.listen.as_ref());
    let listen = problems.parse("http.listen", written, |text| {
        text.parse().map_err(|_| format!("{text:?} is no IP:port"))
    });
    let listen = listen.unwrap_or(HTTP);
    let file = raw.and_then(|raw| raw.token_file.as_ref());
    let token = problems.parse("http.token_file", file, |path| Token::read(&dir.join(path)));
    if !listen.ip().is_loopback() && file.is_none() {
        let cure = "is beyond loopback; write http.token_file too, or listen on 127.0.0.1";
        problems.add(written.map(|text| text.referenced), "http.listen", cure);
    }
    Http { listen, token }
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
