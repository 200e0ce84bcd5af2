//! Services of the configuration.

use std::{collections::HashMap, net::SocketAddr};

use dubbo_proto::key::ServiceKey;

use super::{
    problems::Problems,
    quantity,
    raw::{Quantity, RawEndpoint, RawIdempotent, RawService, RawWeighted},
};
use crate::model::{Address, Balance, Endpoint, Idempotent, Profile, Service};

/// The services that are right; what is wrong with the others is added to the problems.
///
/// `ours` says whether an address is our own outbound listener: a call would come round for ever.
pub(super) fn resolve(
    raw: &[RawService],
    ours: &dyn Fn(&Address) -> bool,
    problems: &mut Problems,
) -> Vec<Service> {
    let mut first: HashMap<ServiceKey, usize> = HashMap::new();
    let mut services = Vec::with_capacity(raw.len());
    for (n, raw) in raw.iter().enumerate() {
        let path = format!("static.services[{n}]");
        let key = key(raw.key.as_deref()).map_err(|cure| problems.add(format!("{path}.key"), cure));
        let service = service(raw, &path, ours, problems);
        let Ok((key, wildcard)) = key else { continue };
        if let Some(other) = first.get(&key) {
            let cure = format!("{key} is static.services[{other}] already; write one of them");
            problems.add(format!("{path}.key"), cure);
        }
        first.entry(key.clone()).or_insert(n);
        services.push(Service {
            key,
            wildcard,
            ..service
        });
    }
    services
}

/// The key, and whether it stands for every group and version.
fn key(text: Option<&str>) -> Result<(ServiceKey, bool), String> {
    let text = text.ok_or("is missing; write group/interface:version")?;
    let key: ServiceKey = text
        .parse()
        .map_err(|error: dubbo_proto::key::Error| error.to_string())?;
    let interface = key.interface();
    if text.starts_with("*/") || text.ends_with(":*") {
        return Err(format!(
            "{text:?}: for every group and version, write {interface} alone"
        ));
    }
    let wildcard = text == interface;
    Ok((key, wildcard))
}

/// Everything of a service but its key.
fn service(
    raw: &RawService,
    path: &str,
    ours: &dyn Fn(&Address) -> bool,
    problems: &mut Problems,
) -> Service {
    let at = |key: &str| format!("{path}.{key}");
    let timeout = raw.timeout.as_ref().map(|Quantity(text)| {
        quantity::time::parse(text)
            .and_then(|time| quantity::within(time, Service::TIMEOUTS, quantity::time::print))
    });
    let retries = raw.retries.as_ref().map(|Quantity(text)| {
        quantity::count::parse(text).and_then(|count| {
            quantity::within(
                count,
                0..=Service::MAX_RETRIES as usize,
                quantity::count::print,
            )
        })
    });
    let retries = retries.and_then(|retries| problems.check(&at("retries"), retries));
    let balance = raw.balance.as_deref().map(balance);
    Service {
        key: ServiceKey::new("", "", ""),
        wildcard: false,
        endpoints: endpoints(raw.endpoints.as_deref(), &at("endpoints"), ours, problems),
        timeout: timeout.and_then(|timeout| problems.check(&at("timeout"), timeout)),
        retries: retries
            .and_then(|n| n.try_into().ok())
            .unwrap_or(Service::RETRIES),
        idempotent: idempotent(raw.idempotent.as_ref(), &at("idempotent"), problems),
        balance: balance
            .and_then(|b| problems.check(&at("balance"), b))
            .unwrap_or_default(),
    }
}

fn endpoints(
    raw: Option<&[RawEndpoint]>,
    path: &str,
    ours: &dyn Fn(&Address) -> bool,
    problems: &mut Problems,
) -> Vec<Endpoint> {
    let raw = raw.unwrap_or_default();
    if raw.is_empty() {
        problems.add(
            path,
            "has nobody to call; write at least one IP:port or name:port",
        );
    }
    let mut endpoints: Vec<Endpoint> = Vec::with_capacity(raw.len());
    let mut first: HashMap<Address, usize> = HashMap::new();
    for (n, raw) in raw.iter().enumerate() {
        let path = format!("{path}[{n}]");
        let Some(endpoint) = endpoint(raw, &path, ours, problems) else {
            continue;
        };
        let address = &endpoint.address;
        if ours(address) {
            problems.add(&path, format!("{address} {OURS}"));
        }
        if let Some(other) = first.get(address) {
            problems.add(
                &path,
                format!("{address} is endpoint [{other}] already; leave one out"),
            );
        }
        first.entry(address.clone()).or_insert(n);
        endpoints.push(endpoint);
    }
    endpoints
}

fn endpoint(
    raw: &RawEndpoint,
    path: &str,
    ours: &dyn Fn(&Address) -> bool,
    problems: &mut Problems,
) -> Option<Endpoint> {
    let plain;
    let (raw, at) = match raw {
        RawEndpoint::Address(address) => {
            plain = RawWeighted {
                address: Some(address.clone()),
                ..RawWeighted::default()
            };
            (&plain, path.to_owned())
        }
        RawEndpoint::Weighted(raw) => (raw, format!("{path}.address")),
    };
    let weight = raw.weight.as_ref();
    let weight = weight.map(|Quantity(text)| quantity::count::parse(text).and_then(weight_of));
    let weight = match weight {
        None => Some(Profile::WEIGHT),
        Some(weight) => problems.check(&format!("{path}.weight"), weight),
    };
    let address = match &raw.address {
        None => Err("is missing; write IP:port or name:port".into()),
        Some(text) => provider(text),
    };
    let address = problems.check(&at, address);
    let direct = raw
        .direct
        .as_deref()
        .map(|text| direct(text, &address, ours));
    let direct = direct.and_then(|direct| problems.check(&format!("{path}.direct"), direct));
    Some(Endpoint {
        address: address?,
        profile: Profile {
            weight: weight?,
            mesh: raw.mesh.unwrap_or_default(),
            direct,
            ..Profile::default()
        },
    })
}

/// Where the application behind the sidecar at `address` listens: one address, so one sidecar.
fn direct(
    text: &str,
    address: &Option<Address>,
    ours: &dyn Fn(&Address) -> bool,
) -> Result<SocketAddr, String> {
    match (provider(text)?, address) {
        (address, _) if ours(&address) => Err(format!("{address} {OURS}")),
        (Address::Name { .. }, _) => Err(format!("{text:?} is a name; write IP:port")),
        (_, Some(Address::Name { host, .. })) => Err(format!(
            "{host} is a name, which may be many sidecars; write the address of one"
        )),
        (Address::Ip(direct), _) => Ok(direct),
    }
}

/// Where a provider listens, in one form for each place.
pub(super) fn provider(text: &str) -> Result<Address, String> {
    match text
        .parse()
        .map_err(|error: crate::model::AddressError| error.to_string())?
    {
        Address::Ip(address) if address.ip().is_unspecified() => Err(format!(
            "{text:?} is every address; write the provider's own"
        )),
        Address::Ip(address) => Ok(Address::Ip(SocketAddr::new(
            address.ip().to_canonical(),
            address.port(),
        ))),
        name => Ok(name),
    }
}

fn weight_of(weight: usize) -> Result<u32, String> {
    match u32::try_from(weight) {
        Ok(0) => Err("0 would take no calls; leave the endpoint out".into()),
        Ok(weight) if weight <= Profile::MAX_WEIGHT => Ok(weight),
        _ => Err(format!(
            "{weight} is out of range; write 1 to {}",
            Profile::MAX_WEIGHT
        )),
    }
}

fn idempotent(raw: Option<&RawIdempotent>, path: &str, problems: &mut Problems) -> Idempotent {
    let names = match raw {
        None | Some(RawIdempotent::All(false)) => return Idempotent::None,
        Some(RawIdempotent::All(true)) => return Idempotent::All,
        Some(RawIdempotent::Methods(names)) => names,
    };
    let mut methods: Vec<Box<str>> = names.iter().map(|name| name.as_str().into()).collect();
    methods.sort_unstable();
    methods.dedup();
    if let Some(name) = methods.iter().find(|name| !is_method(name)) {
        problems.add(
            path,
            format!("{name:?} is no method; write names as find or get"),
        );
    }
    if methods.is_empty() {
        Idempotent::None
    } else {
        Idempotent::Methods(methods.into())
    }
}

fn is_method(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '*')
}

fn balance(text: &str) -> Result<Balance, String> {
    Balance::ALL
        .into_iter()
        .find(|balance| balance.as_str() == text)
        .ok_or_else(|| format!("{text:?} is no balance; write random or least_request"))
}

/// What is wrong with an endpoint that is our own outbound listener.
pub(super) const OURS: &str = "is our own outbound listener; write where the provider listens";
