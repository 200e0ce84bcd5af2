//! Configurations of the mesh's processes, as the tools start them.

use std::net::SocketAddr;

/// Of a proxy that takes calls at `outbound`, and exactly there; `rest` says which services it knows.
pub(crate) fn proxy(node: &str, outbound: SocketAddr, admin: SocketAddr, rest: &str) -> String {
    format!(
        "node: {{ id: {node}, cluster: {node} }}
outbound: {{ listen: \"{outbound}\", own_addresses: false }}
admin: {{ listen: \"{admin}\" }}
{rest}"
    )
}

/// Of a pilot that says where it listens, with a registry beside its configuration.
pub(crate) const PILOT: &str = "\
xds: { listen: 127.0.0.1:0 }
http: { listen: 127.0.0.1:0 }
registries: [embedded: { path: registry.redb }]
";
/// A port of loopback that the system chooses.
pub(crate) const ANYWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
