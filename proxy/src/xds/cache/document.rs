//! How one service stands in its file: JSON with a version of the format.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};

use dubbo_proto::key::ServiceKey;
use serde::{Deserialize, Serialize};

use super::Learned;
use crate::model::{Address, Balance, Endpoint, Idempotent, Profile, Service};

/// Why a file holds no service.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// It is not JSON of the right shape, or cut off.
    #[error("is broken: {0}")]
    Json(#[from] serde_json::Error),
    /// Another release wrote it.
    #[error("has version {0} of the format; {VERSION} is known here")]
    Version(u32),
    /// A value cannot be.
    #[error("has {0} that is none: {1:?}")]
    Value(&'static str, String),
}

/// What every version of the format has.
#[derive(Debug, Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    version: u32,
    key: String,
    /// Milliseconds since 1970.
    learned_ms: u64,
    timeout_ms: Option<u64>,
    retries: u32,
    idempotent: Repeatable,
    balance: String,
    endpoints: Vec<Provider>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Repeatable {
    None,
    All,
    Methods(Vec<String>),
}

#[derive(Debug, Serialize, Deserialize)]
struct Provider {
    address: String,
    weight: u32,
    mesh: bool,
    direct: Option<String>,
    healthy: bool,
}

/// The file of a service.
pub(super) fn write(learned: &Learned) -> Vec<u8> {
    let service = &learned.service;
    let since = learned.since.duration_since(SystemTime::UNIX_EPOCH);
    let document = Document {
        version: VERSION,
        key: service.key.to_string(),
        learned_ms: millis(since.unwrap_or_default()),
        timeout_ms: service.timeout.map(millis),
        retries: service.retries,
        idempotent: match &service.idempotent {
            Idempotent::None => Repeatable::None,
            Idempotent::All => Repeatable::All,
            Idempotent::Methods(methods) => {
                Repeatable::Methods(methods.iter().map(ToString::to_string).collect())
            }
        },
        balance: service.balance.as_str().into(),
        endpoints: service.endpoints.iter().map(provider).collect(),
    };
    serde_json::to_vec(&document).expect("texts, numbers and lists of these are JSON")
}

/// The service of a file.
pub(super) fn read(bytes: &[u8]) -> Result<Learned, Error> {
    let Versioned { version } = serde_json::from_slice(bytes)?;
    if version != VERSION {
        return Err(Error::Version(version));
    }
    let document: Document = serde_json::from_slice(bytes)?;
    let key: ServiceKey = parse("a key", &document.key)?;
    let timeout = document.timeout_ms.map(Duration::from_millis);
    let timeout_ok = timeout.is_none_or(|timeout| Service::TIMEOUTS.contains(&timeout));
    if !timeout_ok || document.retries > Service::MAX_RETRIES {
        let value = format!("{timeout:?}, {}", document.retries);
        return Err(Error::Value("a timeout or retries", value));
    }
    let balance = Balance::ALL
        .into_iter()
        .find(|balance| balance.as_str() == document.balance)
        .ok_or(Error::Value("a balance", document.balance))?;
    let service = Service {
        wildcard: false,
        endpoints: endpoints(document.endpoints)?,
        timeout,
        retries: document.retries,
        idempotent: idempotent(document.idempotent),
        balance,
        key,
    };
    let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(document.learned_ms));
    Ok(Learned {
        service: service.into(),
        since: since.ok_or_else(|| Error::Value("a time", document.learned_ms.to_string()))?,
    })
}

fn provider(endpoint: &Endpoint) -> Provider {
    Provider {
        address: endpoint.address.to_string(),
        weight: endpoint.profile.weight,
        mesh: endpoint.profile.mesh,
        direct: endpoint.profile.direct.map(|address| address.to_string()),
        healthy: endpoint.profile.healthy,
    }
}

fn endpoints(providers: Vec<Provider>) -> Result<Vec<Endpoint>, Error> {
    let mut seen: HashSet<Address> = HashSet::with_capacity(providers.len());
    let endpoint = |provider: Provider| {
        let address: Address = parse("an address", &provider.address)?;
        let direct = provider.direct.as_deref();
        if provider.weight > Profile::MAX_WEIGHT || !seen.insert(address.clone()) {
            let value = format!("{address} of weight {}", provider.weight);
            return Err(Error::Value("an endpoint", value));
        }
        Ok(Endpoint {
            address,
            profile: Profile {
                weight: provider.weight,
                mesh: provider.mesh,
                direct: direct.map(|text| parse("an address", text)).transpose()?,
                healthy: provider.healthy,
            },
        })
    };
    providers.into_iter().map(endpoint).collect()
}

fn idempotent(methods: Repeatable) -> Idempotent {
    let mut methods: Vec<Box<str>> = match methods {
        Repeatable::None => return Idempotent::None,
        Repeatable::All => return Idempotent::All,
        Repeatable::Methods(methods) => methods.into_iter().map(Into::into).collect(),
    };
    methods.sort_unstable();
    methods.dedup();
    match methods.is_empty() {
        true => Idempotent::None,
        false => Idempotent::Methods(methods.into()),
    }
}

fn parse<T: std::str::FromStr>(what: &'static str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| Error::Value(what, text.into()))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Of the format. A file of another one is learned anew.
const VERSION: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Learned {
        let mut service = Service::new("g/a.B:1.0.0".parse().expect("a key"));
        service.timeout = Some(Duration::from_millis(1500));
        service.retries = 3;
        service.idempotent = Idempotent::Methods(["find".into(), "get".into()].into());
        service.balance = Balance::LeastRequest;
        service.endpoints = vec![
            Endpoint {
                address: "10.0.0.1:20880".parse().expect("an address"),
                profile: Profile {
                    weight: 50,
                    mesh: true,
                    direct: Some(([10, 0, 0, 1], 20881).into()),
                    healthy: false,
                },
            },
            Endpoint {
                address: "shop.example:20880".parse().expect("an address"),
                profile: Profile::default(),
            },
        ];
        Learned {
            service: service.into(),
            since: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for learned in [
            full(),
            Learned {
                service: Service::new("a.B".parse().expect("a key")).into(),
                since: SystemTime::UNIX_EPOCH,
            },
        ] {
            assert_eq!(read(&write(&learned)).expect("read"), learned);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = String::from_utf8(write(&full())).expect("UTF-8");
        for (was, is, error) in [
            (
                "\"version\":2",
                "\"version\":1",
                "has version 1 of the format",
            ),
            (
                "\"key\":\"g/a.B:1.0.0\"",
                "\"key\":\"a/b/c\"",
                "has a key that is none",
            ),
            ("1500", "0", "has a timeout or retries that is none"),
            (
                "\"retries\":3",
                "\"retries\":11",
                "has a timeout or retries",
            ),
            (
                "least_request",
                "best",
                "has a balance that is none: \"best\"",
            ),
            ("10.0.0.1:20880", "10.0.0.1", "has an address that is none"),
            ("10.0.0.1:20881", "here:1", "has an address that is none"),
            (
                "shop.example:20880",
                "10.0.0.1:20880",
                "has an endpoint that is none",
            ),
            (
                "\"weight\":50",
                "\"weight\":10001",
                "has an endpoint that is none",
            ),
            ("\"weight\":50", "\"weight\":-1", "is broken: invalid value"),
            ("1700000000123", "18446744073709551616", "is broken: "),
            ("}", "", "is broken: "),
        ] {
            assert!(good.contains(was), "{was}");
            let error_is = read(good.replace(was, is).as_bytes())
                .expect_err(was)
                .to_string();
            assert!(error_is.starts_with(error), "{error_is}");
        }
        for cut in 0..good.len() {
            read(&good.as_bytes()[..cut]).expect_err("cut off");
        }
    }
}
