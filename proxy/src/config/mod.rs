//! Configuration: a YAML file becomes a [`Config`], in which nothing needs to be checked again.
//!
//! The only reader of configuration files and of the environment. `docs/config.md` lists every key.

mod limits;
mod problems;
mod quantity;

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
};

use dubbo_proto::key::ServiceKey;

use crate::model::{Address, Service};

pub use limits::Limits;
pub use problems::Problem;

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
    /// The file in which frames are kept that a shard failed on.
    /// Default `dubbo-mesh.quarantine` beside the configuration.
    pub quarantine: PathBuf,
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

/// Where peers of the mesh call the application of this container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbound {
    /// At least one, none twice. Default `0.0.0.0:15006`.
    pub listen: Vec<Listen>,
    /// The application's own port.
    pub provider: Address,
}

/// Where we are watched and steered over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Default `127.0.0.1:15000`.
    pub listen: SocketAddr,
    /// What a request must bear; always there beyond loopback. Default: nothing.
    pub token: Option<Token>,
}

/// A secret, with the file it was read from. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Where it stands.
    pub file: PathBuf,
    secret: Box<[u8]>,
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

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Listen {
    /// An address and a port; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A Unix socket, written `unix:PATH`.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// Where each listener is by default.
pub(crate) const OUTBOUND: SocketAddr = local(15001);
pub(crate) const INBOUND: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 15006);
pub(crate) const ADMIN: SocketAddr = local(15000);

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}
