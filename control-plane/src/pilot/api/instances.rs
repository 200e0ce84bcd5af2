//! `/v1/instances`: registers, removes and lists.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use axum::{Json, body::Bytes, extract::Query};
use dubbo_proto::key::ServiceKey;
use mesh_proto::names;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{From, Refusal, State, Value, json};
use crate::registry::{Instance, Register, Registration};

/// An instance as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    service: String,
    address: String,
    weight: Option<u32>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    ttl_s: Option<u64>,
}

/// The name of an instance as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    service: String,
    address: String,
}

/// An instance as it is shown.
#[derive(Debug, Serialize)]
pub(super) struct Shown<'a> {
    service: String,
    address: SocketAddr,
    weight: u32,
    metadata: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_s: Option<f64>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(instance: &'a Instance, ttl: Option<Duration>) -> Self {
        Self {
            service: instance.service.to_string(),
            address: instance.address,
            weight: instance.weight,
            metadata: &instance.metadata,
            ttl_s: ttl.map(|ttl| ttl.as_secs_f64()),
        }
    }
}

/// Which service is asked for.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    service: Option<String>,
}

impl Wanted {
    pub(super) fn key(&self) -> Result<ServiceKey, Refusal> {
        let text = self.service.as_deref();
        let text = text.ok_or_else(|| Refusal::Service("is missing; add ?service=KEY".into()))?;
        service(text).map_err(Refusal::Service)
    }
}

/// `GET`: what is registered of a service.
pub(super) async fn list(
    From(state): From<State>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Value>, Refusal> {
    let service = wanted.key()?;
    let found = state.registry.registrations(&service).await?;
    let found = found.iter().map(|one| Shown::new(&one.instance, one.ttl));
    let found: Vec<_> = found.collect();
    Ok(Json(
        json!({ "service": service.to_string(), "instances": found }),
    ))
}

/// `PUT`: registers all that are written, or none.
pub(super) async fn register(
    From(state): From<State>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let registrations = each(&body, Written::check)?;
    let registered = registrations.len();
    state.registry.put(registrations).await?;
    Ok(Json(json!({ "registered": registered })))
}

/// `DELETE`: removes all that are named.
pub(super) async fn remove(From(state): From<State>, body: Bytes) -> Result<Json<Value>, Refusal> {
    let names = each(&body, |named: Named| {
        Ok((service(&named.service)?, address(&named.address)?))
    })?;
    let removed = state.registry.remove(names).await?;
    Ok(Json(json!({ "removed": removed })))
}

impl Written {
    fn check(self) -> Result<Registration, String> {
        let weight = self.weight.unwrap_or(Instance::WEIGHT);
        if !(1..=Instance::MAX_WEIGHT).contains(&weight) {
            let most = Instance::MAX_WEIGHT;
            return Err(format!(
                "weight {weight} is out of range; write 1 to {most}"
            ));
        }
        if let Some(ttl) = self.ttl_s.filter(|ttl| !(1..=MAX_TTL).contains(ttl)) {
            return Err(format!("ttl_s {ttl} is out of range; write 1 to {MAX_TTL}"));
        }
        let texts = self.metadata.iter();
        let bytes: usize = texts.map(|(key, value)| key.len() + value.len()).sum();
        if self.metadata.len() > MAX_METADATA || bytes > MAX_METADATA_LEN {
            return Err(format!(
                "metadata is too much; write at most {MAX_METADATA} keys and {MAX_METADATA_LEN} bytes"
            ));
        }
        if let Some(direct) = self.metadata.get(names::DIRECT) {
            address(direct).map_err(|error| format!("metadata: {}: {error}", names::DIRECT))?;
        }
        Ok(Registration {
            instance: Instance {
                service: service(&self.service)?,
                address: address(&self.address)?,
                weight,
                metadata: self.metadata,
            },
            ttl: self.ttl_s.map(Duration::from_secs),
        })
    }
}

/// Each of those that `body` has, one or a list, as `check` makes it.
fn each<T: DeserializeOwned, U>(
    body: &[u8],
    check: impl Fn(T) -> Result<U, String>,
) -> Result<Vec<U>, Refusal> {
    let list: Vec<T> = match body.trim_ascii_start().first() {
        Some(b'[') => serde_json::from_slice(body)?,
        _ => vec![serde_json::from_slice(body)?],
    };
    let checked = list.into_iter().enumerate();
    let checked =
        checked.map(|(at, one)| check(one).map_err(|what| Refusal::Instance { at, what }));
    checked.collect()
}

fn service(text: &str) -> Result<ServiceKey, String> {
    names::key(text).map_err(|error| error.to_string())
}

/// An address that can be called, in its one form.
fn address(text: &str) -> Result<SocketAddr, String> {
    let parsed: Option<SocketAddr> = text.parse().ok();
    let canonical = parsed.map(|found| SocketAddr::new(found.ip().to_canonical(), found.port()));
    let usable = |found: &SocketAddr| {
        !found.ip().is_unspecified() && !found.ip().is_multicast() && found.port() != 0
    };
    canonical
        .filter(usable)
        .ok_or_else(|| format!("address {text:?} is none to call; write IP:port"))
}

/// Seconds of the longest lease, a day.
const MAX_TTL: u64 = 86_400;
/// Most keys of an instance's metadata: Dubbo's own URLs have some thirty.
const MAX_METADATA: usize = 128;
/// Bytes of all keys and values of an instance's metadata.
const MAX_METADATA_LEN: usize = 16 << 10;
