//! Where a service is provided.

use std::{collections::BTreeMap, net::SocketAddr};

use mesh_proto::{
    digest::Digest,
    names::{self, Type},
    xds::{
        core::{Address, Metadata, SocketAddress, address, socket_address::PortSpecifier},
        endpoint::{
            ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
            lb_endpoint::HostIdentifier,
        },
        protobuf::{Struct, UInt32Value, Value, value::Kind},
    },
};
use prost::Message;

use super::Resource;
use crate::{catalog::Snapshot, registry::Instance};

/// The `ClusterLoadAssignment` of a service. Where it would be longer than [`MAX_BYTES`] it says of
/// each instance only what proxies act on, which is bounded.
pub(super) fn endpoints(snapshot: &Snapshot) -> Resource {
    let mut message = assignment(snapshot, Clone::clone);
    if message.encoded_len() > MAX_BYTES {
        tracing::warn!(
            service = %snapshot.service,
            instances = snapshot.instances.len(),
            "more metadata than can be told: proxies are told of no more than {} and {}",
            names::MESH,
            names::DIRECT,
        );
        message = assignment(snapshot, acted_on);
    }
    let digest = Digest::new().bytes(&snapshot.version.to_be_bytes());
    let name = names::cluster(&snapshot.service);
    Resource::new(Type::Endpoints, name, digest, &message)
}

fn assignment(
    snapshot: &Snapshot,
    told: fn(&BTreeMap<String, String>) -> BTreeMap<String, String>,
) -> ClusterLoadAssignment {
    let endpoint = |instance: &Instance| endpoint(instance, &told(&instance.metadata));
    let locality = LocalityLbEndpoints {
        lb_endpoints: snapshot.instances.iter().map(endpoint).collect(),
        // gRPC's client passes over a locality without one.
        load_balancing_weight: Some(UInt32Value { value: 1 }),
        ..Default::default()
    };
    ClusterLoadAssignment {
        cluster_name: names::cluster(&snapshot.service),
        endpoints: vec![locality],
        ..Default::default()
    }
}

/// Of an instance's metadata, what proxies act on, in the one form that it has.
fn acted_on(metadata: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mesh = metadata.get(names::MESH).filter(|text| *text == "true");
    let direct = metadata.get(names::DIRECT);
    let direct = direct.and_then(|text| text.parse::<SocketAddr>().ok());
    let mesh = mesh.map(|text| (names::MESH.into(), text.clone()));
    let direct = direct.map(|address| (names::DIRECT.into(), address.to_string()));
    mesh.into_iter().chain(direct).collect()
}

/// The `ClusterLoadAssignment` of a service that has no instance, for clients of the protocol that
/// cannot say that there is none.
#[must_use]
pub fn none(name: &str) -> Resource {
    let message = ClusterLoadAssignment {
        cluster_name: name.into(),
        ..Default::default()
    };
    Resource::new(
        Type::Endpoints,
        name.into(),
        Digest::new().text(name),
        &message,
    )
}

fn endpoint(instance: &Instance, metadata: &BTreeMap<String, String>) -> LbEndpoint {
    let socket = SocketAddress {
        address: instance.address.ip().to_string(),
        port_specifier: Some(PortSpecifier::PortValue(instance.address.port().into())),
        ..Default::default()
    };
    let address = Address {
        address: Some(address::Address::SocketAddress(socket)),
    };
    let known = (!metadata.is_empty()).then(|| Metadata {
        filter_metadata: [(names::ENDPOINT.into(), known(metadata))].into(),
        ..Default::default()
    });
    LbEndpoint {
        metadata: known,
        load_balancing_weight: Some(UInt32Value {
            value: instance.weight,
        }),
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: Some(address),
            ..Default::default()
        })),
        ..Default::default()
    }
}

/// What is known of an instance besides: texts, and whether a sidecar listens there.
fn known(metadata: &BTreeMap<String, String>) -> Struct {
    let fields = metadata.iter().map(|(key, text)| {
        let kind = match key.as_str() {
            names::MESH => Kind::BoolValue(text == "true"),
            _ => Kind::StringValue(text.clone()),
        };
        (key.clone(), Value { kind: Some(kind) })
    });
    Struct {
        fields: fields.collect(),
    }
}

/// Bytes of the longest `ClusterLoadAssignment`: clients take messages of 4 MiB, as gRPC does by itself.
pub(super) const MAX_BYTES: usize = 3 << 20;
