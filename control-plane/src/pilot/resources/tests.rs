use mesh_proto::xds::{
    dubbo::MultipleRouteConfiguration, endpoint::ClusterLoadAssignment, protobuf::value::Kind,
};

use super::*;
use crate::registry::{Change, Instance, embedded::MAX_OF_A_SERVICE};

fn catalog(metadata: &[(&str, &str)]) -> (Catalog, ServiceKey) {
    let service: ServiceKey = "g/com.foo.Shop:1.0.0".parse().expect("a key");
    let instance = Instance {
        service: service.clone(),
        address: ([10, 0, 0, 1], 20_880).into(),
        weight: 200,
        metadata: metadata
            .iter()
            .map(|(name, text)| ((*name).into(), (*text).into()))
            .collect(),
    };
    let mut catalog = Catalog::default();
    catalog.add(&service);
    catalog.apply(&service, Change::Set([instance].into()));
    (catalog, service)
}

fn resource(found: Found) -> Arc<Resource> {
    match found {
        Found::Present(resource) => resource,
        other => panic!("{other:?}"),
    }
}

#[test]
fn endpoints_carry_weight_and_metadata() {
    let (catalog, service) = catalog(&[("mesh", "true"), ("direct", "10.0.0.1:9"), ("zone", "z")]);
    let resources = Resources::default();
    let found = resource(resources.find(&catalog, Type::Endpoints, &service));
    assert_eq!(found.name, "outbound|g/com.foo.Shop:1.0.0");
    let message = ClusterLoadAssignment::decode(&*found.any.value).expect("endpoints");
    let endpoint = &message.endpoints[0].lb_endpoints[0];
    assert_eq!(
        endpoint.load_balancing_weight.map(|weight| weight.value),
        Some(200)
    );
    let metadata = endpoint.metadata.as_ref().expect("metadata");
    let field = |name: &str| {
        metadata.filter_metadata["dubbo.mesh"].fields[name]
            .kind
            .clone()
    };
    assert_eq!(field("mesh"), Some(Kind::BoolValue(true)));
    assert_eq!(
        field("direct"),
        Some(Kind::StringValue("10.0.0.1:9".into()))
    );
    assert_eq!(field("zone"), Some(Kind::StringValue("z".into())));
}

/// What would be too long says no more than proxies act on; so even the most is not.
#[test]
fn endpoints_are_never_longer_than_a_message() {
    let service: ServiceKey = "a".parse().expect("a key");
    let long = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535";
    let instance = |n: u64| Instance {
        service: service.clone(),
        address: ([u16::MAX; 8], u16::try_from(n).expect("a port")).into(),
        weight: Instance::MAX_WEIGHT,
        metadata: [
            ("mesh", "true"),
            ("direct", long),
            ("zone", &*"z".repeat(400)),
        ]
        .map(|(name, text)| (name.into(), text.into()))
        .into(),
    };
    let of = |instances: u64| {
        let mut catalog = Catalog::default();
        catalog.add(&service);
        let instances = (1..=instances).map(instance).collect();
        catalog.apply(&service, Change::Set(instances));
        let found = Resources::default().find(&catalog, Type::Endpoints, &service);
        let found = resource(found).any.value.clone();
        assert!(found.len() <= endpoints::MAX_BYTES, "{}", found.len());
        let mut found = ClusterLoadAssignment::decode(&*found).expect("endpoints");
        let found = found.endpoints.remove(0).lb_endpoints.pop();
        let mut metadata = found.expect("one").metadata.expect("metadata");
        let known = metadata.filter_metadata.remove("dubbo.mesh");
        known.expect("ours").fields
    };
    assert_eq!(of(1_000).len(), 3);
    let most = of(MAX_OF_A_SERVICE);
    assert_eq!(most.len(), 2);
    assert_eq!(most["direct"].kind, Some(Kind::StringValue(long.into())));
    assert_eq!(most["mesh"].kind, Some(Kind::BoolValue(true)));
}

#[test]
fn a_service_is_encoded_once_whoever_asks() {
    let (catalog, service) = catalog(&[]);
    let resources = Resources::default();
    let find = |kind| resource(resources.find(&catalog, kind, &service));
    for kind in [Type::Cluster, Type::Endpoints] {
        assert!(Arc::ptr_eq(&find(kind), &find(kind)));
    }
    assert_eq!(
        resources.find(&catalog, Type::Policy, &service),
        Found::Absent
    );
}

#[test]
fn versions_are_those_of_the_content_in_every_process() {
    let versions = |metadata: &[(&str, &str)]| {
        let (catalog, service) = catalog(metadata);
        let resources = Resources::default();
        [Type::Cluster, Type::Endpoints]
            .map(|kind| resource(resources.find(&catalog, kind, &service)).version)
    };
    let plain = versions(&[]);
    assert_eq!(plain, versions(&[]));
    let other = versions(&[("zone", "z")]);
    assert_eq!(plain[0], other[0], "the cluster is the same");
    assert_ne!(plain[1], other[1]);
    assert_ne!(plain[0], versions(&[("loadbalance", "leastactive")])[0]);
}

#[test]
fn what_is_not_wanted_of_the_registry_is_pending() {
    let service: ServiceKey = "a".parse().expect("a key");
    let resources = Resources::default();
    let found = resources.find(&Catalog::default(), Type::Cluster, &service);
    assert_eq!(found, Found::Pending);
}

#[test]
fn services_that_nobody_wants_are_dropped_in_time() {
    let resources = Resources::default();
    for n in 0..10 * SPARE {
        let service: ServiceKey = format!("com.foo.Shop{n}").parse().expect("a key");
        let instance = Instance {
            service: service.clone(),
            address: ([10, 0, 0, 1], 20_880).into(),
            weight: 1,
            metadata: [].into(),
        };
        let mut catalog = Catalog::default();
        catalog.add(&service);
        catalog.apply(&service, Change::Set([instance].into()));
        resource(resources.find(&catalog, Type::Cluster, &service));
    }
    assert!(resources.services.lock().len() <= SPARE + 2);
}

#[test]
fn in_a_table_the_narrow_routes_come_first() {
    let keys = ["a", "a:1", "g/a", "g/a:1"];
    let keys = keys.map(|key| key.parse().expect("a key"));
    let found = routes("table", &keys.into());
    let table = MultipleRouteConfiguration::decode(&*found.any.value).expect("a table");
    let names: Vec<_> = table
        .route_config
        .iter()
        .map(|route| &*route.name)
        .collect();
    assert_eq!(
        (&*table.name, &*names),
        ("table", &["g/a:1", "g/a", "a:1", "a"][..])
    );
}
