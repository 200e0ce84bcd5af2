//! What the configuration depends on beside its file: the host it is read on.

use std::net::IpAddr;

use mesh_proto::host::own_addresses;

/// The host, as far as its configuration is concerned.
#[derive(Debug, Clone, Default)]
pub(super) struct Host {
    /// Its name.
    pub(super) name: String,
    /// Its own addresses, loopback left out.
    pub(super) addresses: Vec<IpAddr>,
}

impl Host {
    /// The host we are on.
    pub(super) fn read() -> Self {
        let name = nix::unistd::gethostname()
            .ok()
            .and_then(|name| name.into_string().ok());
        Self {
            name: name.unwrap_or_else(|| "localhost".into()),
            addresses: own_addresses(),
        }
    }
}
