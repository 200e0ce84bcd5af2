//! A service that is provided: as it is written, and as it is known.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use dubbo_proto::key::ServiceKey;
use serde::{Deserialize, Serialize};

use super::registration::{DIRECT, MESH};

/// A service that an application of this container provides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Provided {
    /// The service.
    pub service: ServiceKey,
    /// Where the application listens.
    pub address: SocketAddr,
    /// What else is to be known of it.
    pub metadata: BTreeMap<String, String>,
}

/// A service as it is written: its key, or more of it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Written {
    /// Provided where Dubbo does by default.
    Key(String),
    /// With an address.
    Whole(Whole),
}

/// A service with its address.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Whole {
    /// Its key.
    pub service: String,
    /// Where the application listens. Default `127.0.0.1:20880`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What else is to be known of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// Why a service is none that can be provided.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Its key is wrong.
    #[error("service: {0}")]
    Key(#[from] dubbo_proto::key::Error),
    /// Its address is none.
    #[error("address: {0:?} is no IP:port; write where the application listens")]
    Address(String),
    /// A key that bonder sets itself.
    #[error("metadata.{0}: is set by bonder; leave it out")]
    Reserved(&'static str),
    /// Its key is too long.
    #[error("service: has {0} bytes; at most {MAX_SERVICE} are taken")]
    Long(usize),
    /// There is too much of it.
    #[error("metadata: is too much; write at most {MAX_METADATA} keys and {MAX_TEXT} bytes")]
    Metadata,
}

impl TryFrom<Written> for Provided {
    type Error = Invalid;

    fn try_from(written: Written) -> Result<Self, Invalid> {
        let whole = match written {
            Written::Whole(whole) => whole,
            Written::Key(service) => Whole {
                service,
                address: None,
                metadata: BTreeMap::new(),
            },
        };
        let address = match whole.address {
            None => DEFAULT,
            Some(text) => match text.parse::<SocketAddr>() {
                Ok(address) if address.port() != 0 => address,
                _ => return Err(Invalid::Address(text)),
            },
        };
        let metadata = whole.metadata;
        if let Some(key) = RESERVED.iter().find(|key| metadata.contains_key(**key)) {
            return Err(Invalid::Reserved(key));
        }
        let texts = metadata.iter().map(|(key, value)| key.len() + value.len());
        if metadata.len() > MAX_METADATA || texts.sum::<usize>() > MAX_TEXT {
            return Err(Invalid::Metadata);
        }
        if whole.service.len() > MAX_SERVICE {
            return Err(Invalid::Long(whole.service.len()));
        }
        Ok(Self {
            service: whole.service.parse()?,
            address,
            metadata,
        })
    }
}

impl Provided {
    /// Bytes of its texts.
    pub(super) fn len(&self) -> usize {
        let metadata = self.metadata.iter();
        let metadata = metadata.map(|(key, value)| key.len() + value.len());
        self.service.to_string().len() + metadata.sum::<usize>()
    }
}

impl From<Provided> for Written {
    fn from(provided: Provided) -> Self {
        Self::Whole(Whole {
            service: provided.service.to_string(),
            address: Some(provided.address.to_string()),
            metadata: provided.metadata,
        })
    }
}

/// Where Dubbo provides by default.
const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 20880);
/// What bonder says of an instance itself.
const RESERVED: [&str; 2] = [MESH, DIRECT];
/// Keys of one service's metadata, and bytes of all of it: less than a pilot takes.
const MAX_METADATA: usize = 32;
pub(super) const MAX_TEXT: usize = 8 << 10;
/// Bytes of the longest key of a service that a pilot takes.
const MAX_SERVICE: usize = 1 << 10;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::bonder) fn whole(
        service: &str,
        address: &str,
        metadata: &[(&str, &str)],
    ) -> Written {
        let metadata = metadata.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        Written::Whole(Whole {
            service: service.into(),
            address: Some(address.into()),
            metadata: metadata.collect(),
        })
    }

    #[test]
    fn what_is_provided_is_checked() {
        let default = Provided::try_from(Written::Key("a.A:1".into())).expect("a service");
        assert_eq!(default.address, DEFAULT);
        let long = "x".repeat(MAX_TEXT);
        for (written, why) in [
            (whole("a b", "1.1.1.1:1", &[]), "service: service key"),
            (whole(&long, "1.1.1.1:1", &[]), "service: has 8192 bytes"),
            (
                whole("a.A", "1.1.1.1:0", &[]),
                "address: \"1.1.1.1:0\" is no IP:port",
            ),
            (
                whole("a.A", "name:1", &[]),
                "address: \"name:1\" is no IP:port",
            ),
            (
                whole("a.A", "1.1.1.1:1", &[("direct", "")]),
                "metadata.direct: is set by bonder",
            ),
            (
                whole("a.A", "1.1.1.1:1", &[("a", &long)]),
                "metadata: is too much",
            ),
        ] {
            let refused = Provided::try_from(written).expect_err("refused");
            assert!(refused.to_string().starts_with(why), "{refused}");
        }
    }
}
