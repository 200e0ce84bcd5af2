//! Where a service is provided.

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

use super::Resource;
use crate::{catalog::Snapshot, registry::Instance};

/// The `ClusterLoadAssignment` of a service.
pub(super) fn endpoints(snapshot: &Snapshot) -> Resource {
    let name = names::cluster(&snapshot.service);
    let locality = LocalityLbEndpoints {
        lb_endpoints: snapshot.instances.iter().map(endpoint).collect(),
        // gRPC's client passes over a locality without one.
        load_balancing_weight: Some(UInt32Value { value: 1 }),
        ..Default::default()
    };
    let message = ClusterLoadAssignment {
        cluster_name: name.clone(),
        endpoints: vec![locality],
        ..Default::default()
    };
    let digest = Digest::new().bytes(&snapshot.version.to_be_bytes());
    Resource::new(Type::Endpoints, name, digest, &message)
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

fn endpoint(instance: &Instance) -> LbEndpoint {
    let socket = SocketAddress {
        address: instance.address.ip().to_string(),
        port_specifier: Some(PortSpecifier::PortValue(instance.address.port().into())),
        ..Default::default()
    };
    let address = Address {
        address: Some(address::Address::SocketAddress(socket)),
    };
    let known = (!instance.metadata.is_empty()).then(|| Metadata {
        filter_metadata: [(names::ENDPOINT.into(), known(instance))].into(),
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
fn known(instance: &Instance) -> Struct {
    let fields = instance.metadata.iter().map(|(key, text)| {
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
