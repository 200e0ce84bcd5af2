//! The host that a process of the mesh runs on, as its peers see it.

use std::net::IpAddr;

/// The host's own addresses now, in the order of its devices. Left out are loopback and what
/// is valid on one link alone, which no consumer calls itself by.
#[must_use]
pub fn own_addresses() -> Vec<IpAddr> {
    let mut found = Vec::new();
    for device in nix::ifaddrs::getifaddrs().into_iter().flatten() {
        let Some(address) = device.address else {
            continue;
        };
        let address = address
            .as_sockaddr_in()
            .map(|v4| IpAddr::V4(v4.ip()))
            .or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())));
        if let Some(address) = address.filter(|a| !a.is_loopback() && !is_link_local(*a))
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
