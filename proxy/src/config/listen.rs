//! Where to listen, and why that failed.

use std::{
    fmt,
    io::{self, ErrorKind},
    net::SocketAddr,
    path::PathBuf,
};

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Listen {
    /// An address and a port; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A Unix socket, written `unix:PATH`.
    Unix(PathBuf),
}

/// Why an address could not be taken. Prints the cure.
#[derive(Debug)]
pub struct BindError {
    /// The key that names it.
    pub key: &'static str,
    /// The address.
    pub address: Listen,
    /// What the system said.
    pub source: io::Error,
}

impl Listen {
    /// Whether both cannot be listened on at a time.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(a), Self::Tcp(b)) => {
                let same = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
                a.port() == b.port() && a.port() != 0 && same
            }
            (Self::Unix(a), Self::Unix(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            address,
            source,
        } = self;
        let cure = match source.kind() {
            ErrorKind::AddrInUse => "stop the process that listens there, or write another address",
            ErrorKind::PermissionDenied => "write a port above 1023, or allow it",
            ErrorKind::AddrNotAvailable => "write an address of this host",
            _ => "write another address",
        };
        write!(f, "{key}: cannot listen on {address}: {source}; {cure}")
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
