//! Configuration: a YAML file becomes a [`Config`], in which nothing needs to be checked again.
//!
//! The only reader of configuration files and of the environment. `docs/config.md` lists every key.

mod effective;
mod file;
pub(crate) mod fixed;
mod folder;
mod host;
mod limits;
mod listen;
mod log_filter;
mod places;
mod problems;
mod quantity;
mod raw;
mod reload;
mod resolve;
mod service;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
};

use dubbo_proto::key::ServiceKey;

use crate::model::{Address, Service};

pub use file::Error;
pub use limits::Limits;
pub use listen::{BindError, Listen};
pub use log_filter::log_filter;
pub use mesh_proto::{host::own_addresses, token::Token};
pub use problems::Problem;
pub use reload::{Reload, watch};

pub(crate) use folder::Folder;
pub(crate) use quantity::time::parse as parse_time;

/// What the proxy does: resolved, immutable, replaced whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Who we are.
    pub node: Node,
    /// Where applications call us; `None` if they do not.
    pub outbound: Option<Outbound>,
    /// Where peers of the mesh call us; `None` if they do not.
    pub inbound: Option<Inbound>,
    /// Where we are watched and steered.
    pub admin: Admin,
    /// What is logged about the proxy itself, and how.
    pub logging: Logging,
    /// Shards, 1 to 64. Default 1.
    pub workers: NonZeroUsize,
    /// Every bound and every wait.
    pub limits: Limits,
    /// The services of the configuration, no key twice.
    pub services: Vec<Arc<Service>>,
    /// Who tells us of further services; `None` if nobody does.
    pub xds: Option<Xds>,
    /// The file in which applications of this container declare what they call. Default: none.
    pub dependencies: Option<PathBuf>,
    /// The file in which frames are kept that a shard failed on.
    /// Default `dubbo-mesh.quarantine` beside the configuration.
    pub quarantine: PathBuf,
}

impl Config {
    /// Every listener, each with the path of its key.
    #[must_use]
    pub fn listeners(&self) -> Vec<(&'static str, Listen)> {
        let sides = [
            (
                "outbound.listen",
                self.outbound.as_ref().map(|side| &side.listen),
            ),
            (
                "inbound.listen",
                self.inbound.as_ref().map(|side| &side.listen),
            ),
        ];
        let sides = sides.into_iter().flat_map(|(key, side)| {
            side.into_iter()
                .flatten()
                .map(move |listen| (key, listen.clone()))
        });
        sides
            .chain([("admin.listen", Listen::Tcp(self.admin.listen))])
            .collect()
    }
}

/// Who we are, as peers and the control plane see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Unique in the mesh. Default: the host's name.
    pub id: String,
    /// What the node is part of. Default `default`.
    pub cluster: String,
}

/// Where applications of this container call other services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outbound {
    /// At least one, none twice. Default `127.0.0.1:15001`.
    pub listen: Vec<Listen>,
    /// Whether to listen on the host's own addresses too, for sources of this host alone, because
    /// a Java consumer replaces loopback by the host's address. Default true.
    pub own_addresses: bool,
    /// Where calls go whose service cannot be read. Default: nowhere.
    pub default: Option<ServiceKey>,
}

impl Outbound {
    /// Whether `address` is one of these listeners, on a host that has the addresses `own`: a
    /// provider there would be ourselves.
    #[must_use]
    pub fn is_ours(&self, address: SocketAddr, own: &[IpAddr]) -> bool {
        let ip = address.ip().to_canonical();
        let here = ip.is_loopback() || ip.is_unspecified() || own.contains(&ip);
        self.listen.iter().any(|listen| match listen {
            Listen::Unix(_) => false,
            Listen::Tcp(listen) if listen.port() != address.port() || listen.port() == 0 => false,
            Listen::Tcp(listen) => {
                listen.ip() == ip
                    || (listen.ip().is_unspecified() && here)
                    || (self.own_addresses && listen.ip().is_loopback() && own.contains(&ip))
            }
        })
    }
}

/// Where peers of the mesh call the application of this container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbound {
    /// At least one, none twice. Default `0.0.0.0:15006`.
    pub listen: Vec<Listen>,
    /// The application's own port.
    pub provider: Address,
}

/// Who tells us of services that are not in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xds {
    /// The control planes, at least one, none twice: the first one that answers is asked.
    pub servers: Vec<SocketAddr>,
    /// What we bear when we ask. Default: nothing.
    pub token: Option<Token>,
    /// The folder of the copy of what they said, to start from when they are away.
    /// Default `xds-cache` beside the configuration.
    pub cache: PathBuf,
}

/// Where we are watched and steered over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Default `127.0.0.1:15000`.
    pub listen: SocketAddr,
    /// What a request must bear; always there beyond loopback. Default: nothing.
    pub token: Option<Token>,
}

/// What is logged about the proxy itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logging {
    /// A filter as `info` or `info,dubbo_proxy=debug`. Default `info`.
    pub level: String,
    /// How a line looks. Default text.
    pub format: LogFormat,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// Where each listener is by default.
const OUTBOUND: SocketAddr = local(15001);
const INBOUND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 15006);
const ADMIN: SocketAddr = local(15000);

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

#[cfg(test)]
mod tests;
