//! How the calls of a service are treated, as its providers register it.
//!
//! A provider registers what Dubbo's own consumers act on (`timeout`, `retries`, `loadbalance`), and
//! which methods may be repeated (`mesh.idempotent`). Where providers of one service differ, as they
//! do while a new release of it comes up, the more careful one counts.

use std::{collections::BTreeSet, time::Duration};

use dubbo_proto::key::ServiceKey;
use mesh_proto::{
    v1::{AllMethods, Balance, Methods, ServicePolicy, service_policy::Idempotent},
    xds::protobuf,
};

use crate::registry::Instance;

/// What the instances want, `None` if they want nothing in particular.
pub(super) fn policy(key: &ServiceKey, instances: &[Instance]) -> Option<ServicePolicy> {
    let every = |name: &str| {
        let texts: Vec<_> = instances
            .iter()
            .filter_map(|instance| instance.metadata.get(name).map(String::as_str))
            .collect();
        (texts.len() == instances.len()).then_some(texts)
    };
    // The longest: no call is cut off that its provider would still answer.
    let timeouts = instances
        .iter()
        .filter_map(|instance| timeout(instance.metadata.get("timeout")?));
    let retries = instances
        .iter()
        .filter_map(|instance| instance.metadata.get("retries")?.parse::<u32>().ok());
    let policy = ServicePolicy {
        name: key.to_string(),
        timeout: timeouts.max().map(duration),
        retries: retries.min().map(|retries| retries.min(MAX_RETRIES)),
        idempotent: every("mesh.idempotent").and_then(|texts| idempotent(&texts)),
        balance: every("loadbalance")
            .map_or(Balance::Unspecified, |texts| balance(&texts))
            .into(),
    };
    let nothing = ServicePolicy {
        name: policy.name.clone(),
        ..Default::default()
    };
    (policy != nothing).then_some(policy)
}

/// Milliseconds; Dubbo writes 0 where there is none.
fn timeout(text: &str) -> Option<Duration> {
    let timeout = Duration::from_millis(text.parse().ok()?);
    (timeout > Duration::ZERO && timeout <= MAX_TIMEOUT).then_some(timeout)
}

fn duration(duration: Duration) -> protobuf::Duration {
    protobuf::Duration {
        seconds: duration.as_secs().cast_signed(),
        nanos: duration.subsec_nanos().cast_signed(),
    }
}

/// `true`, or names of methods between commas: what each of the providers permits.
fn idempotent(texts: &[&str]) -> Option<Idempotent> {
    let mut common: Option<BTreeSet<&str>> = None;
    for text in texts.iter().filter(|text| **text != "true") {
        let methods = text.split(',').map(str::trim);
        let methods = methods.filter(|method| !method.is_empty() && *method != "false");
        let methods: BTreeSet<_> = methods.collect();
        common = Some(match common {
            Some(before) => before.intersection(&methods).copied().collect(),
            None => methods,
        });
    }
    let Some(methods) = common else {
        return Some(Idempotent::AllMethods(AllMethods {}));
    };
    let names: Vec<_> = methods.into_iter().map(str::to_owned).collect();
    (!names.is_empty()).then_some(Idempotent::Methods(Methods { names }))
}

/// Dubbo's names of what we have too; what else there is, is a choice by chance.
fn balance(texts: &[&str]) -> Balance {
    if texts.iter().all(|text| *text == "leastactive") {
        Balance::LeastRequest
    } else if texts.iter().all(|text| *text == "random") {
        Balance::Random
    } else {
        Balance::Unspecified
    }
}

/// Most further tries that a proxy takes.
const MAX_RETRIES: u32 = 10;
/// Longest time for a call that a proxy takes.
const MAX_TIMEOUT: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    fn of(instances: &[&[(&str, &str)]]) -> Option<ServicePolicy> {
        let key: ServiceKey = "com.foo.Shop".parse().expect("a key");
        let instance = |metadata: &&[(&str, &str)]| Instance {
            service: key.clone(),
            address: ([127, 0, 0, 1], 20_880).into(),
            weight: Instance::WEIGHT,
            metadata: metadata
                .iter()
                .map(|(name, text)| ((*name).into(), (*text).into()))
                .collect(),
        };
        policy(&key, &instances.iter().map(instance).collect::<Vec<_>>())
    }

    fn methods(names: &[&str]) -> Option<Idempotent> {
        let names = names.iter().map(ToString::to_string).collect();
        Some(Idempotent::Methods(Methods { names }))
    }

    #[test]
    fn providers_that_want_nothing_have_no_policy() {
        for metadata in [
            &[][..],
            &[("side", "provider")],
            &[
                ("timeout", "0"),
                ("retries", "-1"),
                ("loadbalance", "roundrobin"),
            ],
            &[("timeout", "soon"), ("mesh.idempotent", "false")],
            &[("timeout", "86400001"), ("mesh.idempotent", " , ")],
        ] {
            assert_eq!(of(&[metadata]), None, "{metadata:?}");
        }
    }

    #[test]
    fn what_a_provider_registers_is_taken_over() {
        let policy = of(&[&[
            ("timeout", "1500"),
            ("retries", "99"),
            ("loadbalance", "leastactive"),
            ("mesh.idempotent", "get, find"),
        ]])
        .expect("a policy");
        let timeout = protobuf::Duration {
            seconds: 1,
            nanos: 500_000_000,
        };
        assert_eq!(policy.name, "com.foo.Shop");
        assert_eq!(policy.timeout, Some(timeout));
        assert_eq!(policy.retries, Some(MAX_RETRIES));
        assert_eq!(policy.balance(), Balance::LeastRequest);
        assert_eq!(policy.idempotent, methods(&["find", "get"]));
    }

    #[test]
    fn of_providers_that_differ_the_more_careful_counts() {
        let policy = of(&[
            &[
                ("timeout", "1000"),
                ("retries", "3"),
                ("mesh.idempotent", "true"),
            ],
            &[
                ("timeout", "3000"),
                ("retries", "1"),
                ("mesh.idempotent", "find,get"),
            ],
            &[("loadbalance", "random"), ("mesh.idempotent", "get,list")],
        ])
        .expect("a policy");
        assert_eq!(policy.timeout.map(|timeout| timeout.seconds), Some(3));
        assert_eq!(policy.retries, Some(1));
        assert_eq!(policy.balance(), Balance::Unspecified);
        assert_eq!(policy.idempotent, methods(&["get"]));
        // One that says nothing of it permits nothing.
        let policy = of(&[&[("mesh.idempotent", "true")], &[("timeout", "1")]]);
        assert_eq!(policy.expect("a policy").idempotent, None);
        let all = of(&[&[("mesh.idempotent", "true")]]).expect("a policy");
        assert!(matches!(all.idempotent, Some(Idempotent::AllMethods(_))));
    }
}
