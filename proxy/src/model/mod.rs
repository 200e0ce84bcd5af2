//! The nouns that configuration and control plane speak of. Data only.

mod service;

pub use service::{Address, AddressError, Balance, Endpoint, Idempotent, Profile, Service};

/// Who connected to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// An application of this container, which calls other services.
    Outbound,
    /// A peer of the mesh, which calls the application of this container.
    Inbound,
}

impl Side {
    /// As logs, metrics and the admin pages write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
        }
    }
}
