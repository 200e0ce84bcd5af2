//! From what is written to what is meant: defaults filled in, every value checked.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use dubbo_proto::key::ServiceKey;
use serde_saphyr::Spanned;

use super::{
    ALWAYS, AUTO, Config, DEREGISTER, DRAIN, Endpoint, Error, HTTP, NEVER, Pilot, READY, STOP,
    Token,
    raw::{Raw, RawPilot},
};
use crate::{
    bonder::{
        keeper,
        ledger::MAX_SERVICES,
        provided::Provided,
        supervisor::{Restart, Times},
    },
    endpoint::address,
    logging,
    yaml::Problems,
};

/// The configuration that `raw` of `file` says, in the folder `dir`, or all that is wrong with it.
pub(super) fn resolve(raw: &Raw, file: &Path, dir: &Path) -> Result<Config, Error> {
    let mut problems = Problems::default();
    let path = |text: &Spanned<String>| dir.join(&text.value);
    if raw.proxy.is_none() {
        let cure = "is missing; write the file of the proxy's configuration, as proxy.yaml";
        problems.add(None, "proxy", cure);
    }
    let limits = raw.limits.as_ref();
    let mut time = |key: &str, text: Option<&Spanned<String>>, default| {
        problems
            .parse(key, text, |text| parse_time(text))
            .unwrap_or(default)
    };
    let times = Times {
        ready: time(
            "limits.ready_time",
            limits.and_then(|l| l.ready_time.as_ref()),
            READY,
        ),
        deregister: DEREGISTER,
        drain: time(
            "limits.drain_time",
            limits.and_then(|l| l.drain_time.as_ref()),
            DRAIN,
        ),
        stop: time(
            "limits.stop_time",
            limits.and_then(|l| l.stop_time.as_ref()),
            STOP,
        ),
    };
    let level = raw
        .logging
        .as_ref()
        .and_then(|logging| logging.level.as_ref());
    let config = Config {
        http: Endpoint::resolve(raw.http.as_ref(), "http", HTTP, dir, &mut problems),
        pilot: raw
            .pilot
            .as_ref()
            .and_then(|raw| pilot(raw, dir, &mut problems)),
        proxy: raw.proxy.as_ref().map(path).unwrap_or_default(),
        state: state(raw.state.as_ref(), dir, &mut problems),
        advertise: problems
            .parse("advertise", raw.advertise.as_ref(), |text| advertise(text))
            .flatten(),
        dependencies: dependencies(raw, &mut problems),
        providers: providers(raw, &mut problems),
        restart: problems
            .parse("restart", raw.restart.as_ref(), |text| restart(text))
            .unwrap_or_default(),
        log_level: problems
            .parse("logging.level", level, |text| {
                logging::filter(text).map(|_| text.clone())
            })
            .unwrap_or_else(|| "info".into()),
        times,
    };
    problems.done(file, config)
}

fn pilot(raw: &RawPilot, dir: &Path, problems: &mut Problems) -> Option<Pilot> {
    let whole = match raw {
        RawPilot::Config(config) => {
            let config = dir.join(config);
            return Some(Pilot::Here {
                config,
                token: None,
            });
        }
        RawPilot::Whole(whole) => whole,
    };
    let token = token("pilot.token_file", whole.token_file.as_ref(), dir, problems);
    match (&whole.config, &whole.address) {
        (Some(config), None) => Some(Pilot::Here {
            config: dir.join(&config.value),
            token,
        }),
        (None, Some(_)) => {
            let written = whole.address.as_ref();
            let address = problems.parse("pilot.address", written, |text| address(text))?;
            Some(Pilot::Elsewhere { address, token })
        }
        (config, _) => {
            let cure = "write either config, to have one started, or address, where one runs";
            problems.add(config.as_ref().map(|text| text.referenced), "pilot", cure);
            None
        }
    }
}

fn token(
    key: &str,
    written: Option<&Spanned<String>>,
    dir: &Path,
    problems: &mut Problems,
) -> Option<Token> {
    problems.parse(key, written, |file| Token::read(&dir.join(file)))
}

fn state(written: Option<&Spanned<String>>, dir: &Path, problems: &mut Problems) -> PathBuf {
    let state = written.map_or_else(|| dir.into(), |text| dir.join(&text.value));
    let socket = state.join(keeper::FILE);
    if socket.as_os_str().len() > MAX_SOCKET_PATH {
        let cure = format!(
            "{} is too long for a socket, by {} bytes; write a shorter folder",
            socket.display(),
            socket.as_os_str().len() - MAX_SOCKET_PATH
        );
        problems.add(written.map(|text| text.referenced), "state", cure);
    }
    state
}

fn dependencies(raw: &Raw, problems: &mut Problems) -> BTreeSet<ServiceKey> {
    let written = raw.dependencies.iter().flatten().enumerate();
    if let Some((_, over)) = written.clone().nth(MAX_SERVICES) {
        let what = format!("has more than {MAX_SERVICES} services; the proxy takes no more");
        problems.add(Some(over.referenced), "dependencies", what);
    }
    let keys = written.filter_map(|(n, text)| {
        problems.parse(&format!("dependencies[{n}]"), Some(text), |text| {
            text.parse::<ServiceKey>()
        })
    });
    keys.collect()
}

fn providers(raw: &Raw, problems: &mut Problems) -> BTreeSet<Provided> {
    let written = raw.providers.iter().flatten().enumerate();
    let providers = written.filter_map(|(n, written)| {
        problems.parse(&format!("providers[{n}]"), Some(written), |written| {
            Provided::try_from(written.0.clone())
        })
    });
    providers.collect()
}

fn advertise(text: &str) -> Result<Option<IpAddr>, String> {
    match text {
        AUTO => Ok(None),
        text => match text.parse::<IpAddr>() {
            Ok(ip) if !ip.is_unspecified() => Ok(Some(ip)),
            _ => Err(format!(
                "{text:?} is no address of a host; write one, or {AUTO}"
            )),
        },
    }
}

fn restart(text: &str) -> Result<Restart, String> {
    match text {
        ALWAYS => Ok(Restart::Always),
        NEVER => Ok(Restart::Never),
        _ => Err(format!("{text:?} is no rule; write {NEVER} or {ALWAYS}")),
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    let millis = number
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit));
    let time = millis.map(Duration::from_millis);
    let time = time.ok_or_else(|| format!("{text:?} is no time; write 500ms, 1s or 5m"))?;
    match TIMES.contains(&time) {
        true => Ok(time),
        false => Err(format!("{text} is out of range; write 100ms to 60m")),
    }
}

/// Times that make sense for a step.
const TIMES: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// Bytes of the longest path of a Unix socket, `sun_path` without its last zero.
const MAX_SOCKET_PATH: usize = 107;
