//! From what a control plane sends to what the proxy works with: every value is checked here, and
//! an error names the resource and its field.

use std::{collections::HashSet, net::SocketAddr, time::Duration};

use dubbo_proto::key::ServiceKey;
use mesh_proto::{
    names::{self, Type},
    v1,
    xds::{
        cluster::{Cluster, cluster},
        core,
        endpoint::{ClusterLoadAssignment, LbEndpoint, lb_endpoint},
        protobuf::{Any, value},
    },
};
use prost::Message;

use crate::{
    config::Limits,
    model::{Address, Balance, Endpoint, Idempotent, Profile, Service},
};

/// A resource that is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Resource {
    /// How calls are treated.
    Policy(Policy),
    /// The service exists.
    Cluster,
    /// Where it is provided.
    Endpoints(Vec<Endpoint>),
}

/// How the calls of a service are treated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Policy {
    timeout: Option<Duration>,
    retries: Option<u32>,
    idempotent: Idempotent,
    balance: Balance,
}

/// Why a resource is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?}: {field}: {fault}", kind = kind.as_str())]
pub(super) struct Error {
    kind: Type,
    name: String,
    field: String,
    fault: Fault,
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("is of another type")]
    Type,
    #[error("cannot be decoded: {0}")]
    Decode(String),
    #[error("names {0:?}")]
    Name(String),
    #[error("is missing")]
    Missing,
    #[error("is none that is known here")]
    Unknown,
    #[error("{0} is out of range")]
    Range(String),
    #[error("{0:?} is no IP:port")]
    Address(String),
    #[error("{0} are too many")]
    Many(usize),
}

/// A field, with what is wrong with it.
type Wrong = (String, Fault);

/// How much one service may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    endpoints: usize,
    methods: usize,
}

impl Bounds {
    /// Those of the configuration.
    pub(super) fn of(limits: &Limits) -> Self {
        Self {
            endpoints: limits.service_endpoints,
            methods: limits.service_methods,
        }
    }
}

/// The resource of this type and name.
///
/// # Errors
/// It is not of that type or name, or a value cannot be.
pub(super) fn resource(
    kind: Type,
    name: &str,
    any: &Any,
    bounds: Bounds,
) -> Result<Resource, Error> {
    let read = || match kind {
        Type::Policy => policy(name, decode(kind, any)?, bounds).map(Resource::Policy),
        Type::Cluster => cluster(name, &decode(kind, any)?).map(|()| Resource::Cluster),
        Type::Endpoints => endpoints(name, &decode(kind, any)?, bounds).map(Resource::Endpoints),
        Type::Routes => Err(wrong("type_url", Fault::Type)),
    };
    read().map_err(|(field, fault)| Error {
        kind,
        name: name.chars().take(MAX_SHOWN).collect(),
        field,
        fault,
    })
}

/// The service of its parts.
pub(super) fn service(
    key: ServiceKey,
    policy: Option<&Policy>,
    endpoints: Vec<Endpoint>,
) -> Service {
    let policy = policy.cloned().unwrap_or_default();
    Service {
        endpoints,
        timeout: policy.timeout,
        retries: policy.retries.unwrap_or(Service::RETRIES),
        idempotent: policy.idempotent,
        balance: policy.balance,
        ..Service::new(key)
    }
}

fn decode<M: Message + Default>(kind: Type, any: &Any) -> Result<M, Wrong> {
    if any.type_url != kind.url() {
        return Err(wrong("type_url", Fault::Type));
    }
    let message = M::decode(any.value.as_slice());
    message.map_err(|error| wrong("value", Fault::Decode(error.to_string())))
}

fn policy(name: &str, policy: v1::ServicePolicy, bounds: Bounds) -> Result<Policy, Wrong> {
    named("name", name, &policy.name)?;
    let balance = match policy.balance() {
        _ if v1::Balance::try_from(policy.balance).is_err() => {
            return Err(wrong("balance", Fault::Unknown));
        }
        v1::Balance::Unspecified | v1::Balance::Random => Balance::Random,
        v1::Balance::LeastRequest => Balance::LeastRequest,
    };
    let timeout = match policy.timeout {
        None => None,
        Some(time) => {
            let parts = u64::try_from(time.seconds)
                .ok()
                .zip(u32::try_from(time.nanos).ok());
            let timeout = parts.filter(|(_, nanos)| *nanos < 1_000_000_000);
            let timeout = timeout.map(|(secs, nanos)| Duration::new(secs, nanos));
            let timeout = timeout.filter(|time| Service::TIMEOUTS.contains(time));
            let range = || wrong("timeout", Fault::Range(format!("{} s", time.seconds)));
            Some(timeout.ok_or_else(range)?)
        }
    };
    if let Some(retries) = policy.retries.filter(|n| *n > Service::MAX_RETRIES) {
        return Err(wrong("retries", Fault::Range(retries.to_string())));
    }
    Ok(Policy {
        timeout,
        retries: policy.retries,
        idempotent: match policy.idempotent {
            None => Idempotent::None,
            Some(v1::service_policy::Idempotent::AllMethods(_)) => Idempotent::All,
            Some(v1::service_policy::Idempotent::Methods(methods)) => {
                methods_of(methods.names, bounds)?
            }
        },
        balance,
    })
}

fn methods_of(names: Vec<String>, bounds: Bounds) -> Result<Idempotent, Wrong> {
    if names.len() > bounds.methods {
        return Err(wrong("methods", Fault::Many(names.len())));
    }
    let mut methods: Vec<Box<str>> = names.into_iter().map(Into::into).collect();
    methods.sort_unstable();
    methods.dedup();
    Ok(match methods.is_empty() {
        true => Idempotent::None,
        false => Idempotent::Methods(methods.into()),
    })
}

fn cluster(name: &str, cluster: &Cluster) -> Result<(), Wrong> {
    named("name", name, &cluster.name)?;
    let eds = cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds.into());
    if cluster.cluster_discovery_type.as_ref() != Some(&eds) {
        return Err(wrong("type", Fault::Unknown));
    }
    let config = cluster.eds_cluster_config.as_ref();
    match config.map(|eds| eds.service_name.as_str()) {
        None | Some("") => Ok(()),
        Some(service) => named("eds_cluster_config.service_name", name, service),
    }
}

fn endpoints(
    name: &str,
    load: &ClusterLoadAssignment,
    bounds: Bounds,
) -> Result<Vec<Endpoint>, Wrong> {
    named("cluster_name", name, &load.cluster_name)?;
    let count = load
        .endpoints
        .iter()
        .map(|place| place.lb_endpoints.len())
        .sum();
    if count > bounds.endpoints {
        return Err(wrong("endpoints", Fault::Many(count)));
    }
    let mut seen = HashSet::with_capacity(count);
    let mut endpoints = Vec::with_capacity(count);
    for (n, place) in load.endpoints.iter().enumerate() {
        for (m, one) in place.lb_endpoints.iter().enumerate() {
            let inside = |(field, fault): Wrong| {
                (format!("endpoints[{n}].lb_endpoints[{m}].{field}"), fault)
            };
            // Who is leaving is nobody's last resort either.
            if one.health_status() == core::HealthStatus::Draining {
                continue;
            }
            let endpoint = endpoint(one).map_err(inside)?;
            if seen.insert(endpoint.address.clone()) {
                endpoints.push(endpoint);
            }
        }
    }
    Ok(endpoints)
}

fn endpoint(one: &LbEndpoint) -> Result<Endpoint, Wrong> {
    let Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)) = &one.host_identifier else {
        return Err(wrong("endpoint", Fault::Missing));
    };
    let address = endpoint.address.as_ref().and_then(|a| a.address.as_ref());
    let Some(core::address::Address::SocketAddress(socket)) = address else {
        return Err(wrong("endpoint.address.socket_address", Fault::Missing));
    };
    let port = match &socket.port_specifier {
        Some(core::socket_address::PortSpecifier::PortValue(port)) => u16::try_from(*port).ok(),
        _ => None,
    };
    let ip = socket.address.parse().ok();
    let parsed = ip.zip(port.filter(|port| *port > 0));
    let parsed = parsed
        .map(|(ip, port)| SocketAddr::new(ip, port))
        .and_then(usable);
    let fault = || Fault::Address(shown(&socket.address));
    let address = parsed.ok_or_else(|| wrong("endpoint.address.socket_address", fault()))?;
    let weight = one
        .load_balancing_weight
        .map_or(Profile::WEIGHT, |w| w.value);
    if !(1..=Profile::MAX_WEIGHT).contains(&weight) {
        let fault = Fault::Range(weight.to_string());
        return Err(wrong("load_balancing_weight", fault));
    }
    let ours = one
        .metadata
        .as_ref()
        .and_then(|m| m.filter_metadata.get(names::ENDPOINT));
    let field = |name: &str| ours?.fields.get(name)?.kind.as_ref();
    // One that is none takes this provider's way without the mesh away, and nothing else: the mistake
    // of whoever registered it must not keep the others of the service from being known.
    let direct = match field(names::DIRECT) {
        Some(value::Kind::StringValue(text)) => text.parse().ok().and_then(usable),
        _ => None,
    };
    Ok(Endpoint {
        address: Address::Ip(address),
        profile: Profile {
            weight,
            mesh: matches!(field(names::MESH), Some(value::Kind::BoolValue(true))),
            direct,
            healthy: is_healthy(one.health_status()),
        },
    })
}

/// Whether a provider should take calls. As in Envoy, one that does not answer in time is no better
/// than one that is unhealthy, and one that is degraded stands back while others are well.
fn is_healthy(status: core::HealthStatus) -> bool {
    matches!(
        status,
        core::HealthStatus::Unknown | core::HealthStatus::Healthy
    )
}

/// An address that can be called, in the one form of each place.
fn usable(address: SocketAddr) -> Option<SocketAddr> {
    let good = address.port() > 0 && !address.ip().is_unspecified();
    good.then(|| SocketAddr::new(address.ip().to_canonical(), address.port()))
}

fn named(field: &str, name: &str, is: &str) -> Result<(), Wrong> {
    match is == name {
        true => Ok(()),
        false => Err(wrong(field, Fault::Name(shown(is)))),
    }
}

fn wrong(field: &str, fault: Fault) -> Wrong {
    (field.into(), fault)
}

fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

/// Characters of a text that is shown in an error.
const MAX_SHOWN: usize = 200;

#[cfg(test)]
mod tests {
    use mesh_proto::xds::{
        endpoint::{self as eds, LocalityLbEndpoints},
        protobuf::{Struct, Value},
    };
    use prost::Name;

    use super::*;

    const CLUSTER: &str = "outbound|a.A:1";

    fn any<M: Message + Name>(message: &M) -> Any {
        Any {
            type_url: M::type_url(),
            value: message.encode_to_vec(),
        }
    }

    /// With room for two of each.
    fn read(kind: Type, name: &str, any: &Any) -> Result<Resource, Error> {
        let bounds = Bounds {
            endpoints: 2,
            methods: 2,
        };
        resource(kind, name, any, bounds)
    }

    fn load(ip: &str, port: u32, weight: Option<u32>) -> ClusterLoadAssignment {
        let socket = core::SocketAddress {
            address: ip.into(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port)),
            ..core::SocketAddress::default()
        };
        let endpoint = eds::Endpoint {
            address: Some(core::Address {
                address: Some(core::address::Address::SocketAddress(socket)),
            }),
            ..eds::Endpoint::default()
        };
        let one = LbEndpoint {
            host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)),
            load_balancing_weight: weight
                .map(|value| mesh_proto::xds::protobuf::UInt32Value { value }),
            ..LbEndpoint::default()
        };
        ClusterLoadAssignment {
            cluster_name: CLUSTER.into(),
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: vec![one],
                ..LocalityLbEndpoints::default()
            }],
            ..ClusterLoadAssignment::default()
        }
    }

    #[test]
    fn providers_are_taken_over_and_wrong_ones_named() {
        let endpoints = |load: &ClusterLoadAssignment| read(Type::Endpoints, CLUSTER, &any(load));
        let right = endpoints(&load("10.0.0.1", 20880, Some(7)));
        let expected = Endpoint {
            address: "10.0.0.1:20880".parse().expect("an address"),
            profile: Profile {
                weight: 7,
                ..Profile::default()
            },
        };
        assert_eq!(right, Ok(Resource::Endpoints(vec![expected])));
        let at = "endpoints \"outbound|a.A:1\": endpoints[0].lb_endpoints[0].";
        for (load, fault) in [
            (load("shop", 1, None), "\"shop\" is no IP:port"),
            (load("10.0.0.1", 0, None), "is no IP:port"),
            (load("10.0.0.1", 65_536, None), "is no IP:port"),
            (load("0.0.0.0", 1, None), "is no IP:port"),
            (
                load("10.0.0.1", 1, Some(0)),
                "load_balancing_weight: 0 is out of range",
            ),
            (load("10.0.0.1", 1, Some(10_001)), "10001 is out of range"),
        ] {
            let error = endpoints(&load).expect_err(fault).to_string();
            assert!(error.starts_with(at) && error.contains(fault), "{error}");
        }
    }

    #[test]
    fn who_is_unwell_is_told_and_who_leaves_is_not() {
        use super::core::HealthStatus as Health;
        for (health, told) in [
            (Health::Unknown, Some(true)),
            (Health::Healthy, Some(true)),
            (Health::Unhealthy, Some(false)),
            (Health::Timeout, Some(false)),
            (Health::Degraded, Some(false)),
            (Health::Draining, None),
        ] {
            let mut load = load("10.0.0.1", 20880, None);
            load.endpoints[0].lb_endpoints[0].health_status = health.into();
            let Ok(Resource::Endpoints(is)) = read(Type::Endpoints, CLUSTER, &any(&load)) else {
                panic!("{health:?} is refused");
            };
            let is = is.first().map(|endpoint| endpoint.profile.healthy);
            assert_eq!(is, told, "{health:?}");
        }
    }

    /// What stands behind a sidecar, and that one stands there, is what goes direct and retries.
    #[test]
    fn a_provider_says_whether_a_sidecar_listens_and_what_is_behind_it() {
        let with = |fields: &[(&str, value::Kind)]| {
            let fields = fields.iter().map(|(name, kind)| {
                let kind = Some(kind.clone());
                ((*name).to_owned(), Value { kind })
            });
            let ours = Struct {
                fields: fields.collect(),
            };
            let mut load = load("10.0.0.1", 15006, None);
            load.endpoints[0].lb_endpoints[0].metadata = Some(core::Metadata {
                filter_metadata: [(names::ENDPOINT.to_owned(), ours)].into(),
                ..core::Metadata::default()
            });
            read(Type::Endpoints, CLUSTER, &any(&load))
        };
        let (mesh, direct) = (names::MESH, names::DIRECT);
        let text = |text: &str| value::Kind::StringValue(text.into());
        let both = [
            (mesh, value::Kind::BoolValue(true)),
            (direct, text("10.0.0.1:20880")),
        ];
        let expected = Endpoint {
            address: "10.0.0.1:15006".parse().expect("an address"),
            profile: Profile {
                mesh: true,
                direct: Some(([10, 0, 0, 1], 20880).into()),
                ..Profile::default()
            },
        };
        let plain = Endpoint {
            profile: Profile::default(),
            ..expected.clone()
        };
        assert_eq!(with(&both), Ok(Resource::Endpoints(vec![expected])));
        assert_eq!(with(&[]), Ok(Resource::Endpoints(vec![plain.clone()])));
        let none = [
            text("10.0.0.1"),
            text("0.0.0.0:1"),
            value::Kind::NumberValue(1.0),
        ];
        for wrong in none {
            assert_eq!(
                with(&[(direct, wrong)]),
                Ok(Resource::Endpoints(vec![plain.clone()]))
            );
        }
    }

    #[test]
    fn one_service_has_so_many_providers_and_no_more() {
        let mut many = load("10.0.0.1", 1, None);
        let one = many.endpoints[0].lb_endpoints[0].clone();
        many.endpoints[0].lb_endpoints.push(one.clone());
        assert!(read(Type::Endpoints, CLUSTER, &any(&many)).is_ok());
        many.endpoints.push(LocalityLbEndpoints {
            lb_endpoints: vec![one],
            ..LocalityLbEndpoints::default()
        });
        let error = read(Type::Endpoints, CLUSTER, &any(&many)).expect_err("three");
        assert!(error.to_string().contains("endpoints: 3 are too many"));
        let methods = ["a", "b", "c"].map(String::from).to_vec();
        let policy = v1::ServicePolicy {
            name: "a.A:1".into(),
            idempotent: Some(v1::service_policy::Idempotent::Methods(v1::Methods {
                names: methods,
            })),
            ..v1::ServicePolicy::default()
        };
        let error = read(Type::Policy, "a.A:1", &any(&policy)).expect_err("three");
        assert!(error.to_string().contains("methods: 3 are too many"));
    }

    #[test]
    fn policies_are_bounded() {
        let good = v1::ServicePolicy {
            name: "a.A:1".into(),
            retries: Some(3),
            ..v1::ServicePolicy::default()
        };
        let policy_of = |policy: &v1::ServicePolicy| read(Type::Policy, "a.A:1", &any(policy));
        assert!(policy_of(&good).is_ok());
        let time = |seconds, nanos| mesh_proto::xds::protobuf::Duration { seconds, nanos };
        for (policy, fault) in [
            (
                v1::ServicePolicy {
                    retries: Some(11),
                    ..good.clone()
                },
                "retries: 11 is out",
            ),
            (
                v1::ServicePolicy {
                    balance: 9,
                    ..good.clone()
                },
                "balance: is none",
            ),
            (
                v1::ServicePolicy {
                    name: "b.B".into(),
                    ..good.clone()
                },
                "name: names \"b.B\"",
            ),
        ] {
            let error = policy_of(&policy).expect_err(fault).to_string();
            assert!(error.contains(fault), "{error}");
        }
        for wrong in [
            time(0, 0),
            time(-1, 0),
            time(0, -1),
            time(1, i32::MAX),
            time(86_401, 0),
        ] {
            let policy = v1::ServicePolicy {
                timeout: Some(wrong),
                ..good.clone()
            };
            let error = policy_of(&policy).expect_err("a wrong time").to_string();
            assert!(error.contains("timeout: "), "{error}");
        }
    }

    #[test]
    fn bytes_that_are_no_resource_are_refused() {
        let cut = Any {
            value: vec![0xff; 3],
            ..any(&load("10.0.0.1", 1, None))
        };
        let error = read(Type::Endpoints, CLUSTER, &cut).expect_err("broken");
        assert!(
            error.to_string().contains("value: cannot be decoded"),
            "{error}"
        );
        let other = read(Type::Cluster, CLUSTER, &cut).expect_err("another type");
        assert!(other.to_string().contains("type_url"), "{other}");
    }
}
