use std::{collections::BTreeMap, net::SocketAddr};

use super::*;

fn key(text: &str) -> ServiceKey {
    text.parse().expect("a key")
}

fn set(service: &ServiceKey, ports: &[u16]) -> Change {
    let instance = |port: &u16| Instance {
        service: service.clone(),
        address: SocketAddr::from(([10, 0, 0, 1], *port)),
        weight: Instance::WEIGHT,
        metadata: BTreeMap::from([("zone".into(), "a".into())]),
    };
    Change::Set(ports.iter().map(instance).collect())
}

fn snapshot(catalog: &Catalog, service: &ServiceKey) -> Arc<Snapshot> {
    match catalog.get(service) {
        Some(State::Present(snapshot)) => Arc::clone(snapshot),
        other => panic!("{service}: {other:?}"),
    }
}

#[test]
fn a_service_is_pending_then_present_then_absent() {
    let (mut catalog, a) = (Catalog::default(), key("a:1.0.0"));
    assert!(!catalog.apply(&a, set(&a, &[1])), "nobody asked for it");
    assert_eq!(catalog.get(&a), None);
    catalog.add(&a);
    assert_eq!(catalog.get(&a), Some(&State::Pending));
    assert!(catalog.apply(&a, set(&a, &[1])));
    assert!(!catalog.apply(&a, set(&a, &[1])), "nothing new");
    catalog.add(&a);
    assert_eq!(snapshot(&catalog, &a).instances.len(), 1);
    assert!(catalog.apply(&a, Change::Gone));
    assert!(!catalog.apply(&a, Change::Set([].into())));
    assert_eq!(catalog.get(&a), Some(&State::Absent));
    catalog.remove(&a);
    assert!(catalog.is_empty());
}

#[test]
fn a_change_costs_what_changed_and_copies_stay_as_they_were() {
    let mut catalog = Catalog::default();
    let keys: Vec<_> = (0..1000).map(|n| key(&format!("com.foo.S{n}"))).collect();
    for service in &keys {
        catalog.add(service);
        catalog.apply(service, set(service, &[1]));
    }
    let before = catalog.clone();
    catalog.apply(&keys[7], set(&keys[7], &[1, 2]));
    assert_eq!(snapshot(&before, &keys[7]).instances.len(), 1);
    assert_eq!(snapshot(&catalog, &keys[7]).instances.len(), 2);
    let shared = keys
        .iter()
        .filter(|service| Arc::ptr_eq(&snapshot(&before, service), &snapshot(&catalog, service)));
    assert_eq!(shared.count(), 999);
}

#[test]
fn a_version_is_that_of_the_content_in_every_process() {
    let service = key("g/com.foo.Greeter:1.0.0");
    let version = |change: Change| {
        let mut catalog = Catalog::default();
        catalog.add(&service);
        catalog.apply(&service, change);
        snapshot(&catalog, &service).version
    };
    let with = |edit: fn(&mut Instance)| {
        let Change::Set(instances) = set(&service, &[1, 2]) else {
            unreachable!("it is set");
        };
        let mut instances = instances.to_vec();
        edit(&mut instances[0]);
        version(Change::Set(instances.into()))
    };
    // As an earlier process computed it.
    assert_eq!(with(|_| {}), PINNED);
    let others = [
        with(|i| i.address.set_port(3)),
        with(|i| i.weight = 1),
        with(|i| {
            i.metadata.clear();
        }),
        with(|i| {
            i.metadata.insert("zone".into(), "b".into());
        }),
        // The end of a text counts, as does which instance has it.
        with(|i| i.metadata = BTreeMap::from([("zonea".into(), String::new())])),
        version(set(&service, &[1])),
    ];
    let mut distinct: Vec<_> = others.iter().chain([&PINNED]).collect();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 7);
}

const PINNED: u64 = 0xf9a0_986a_cbe6_83c3;
