//! What the resources of a service are called, and where else a name stands in xDS.

use dubbo_proto::key::{Error as KeyError, ServiceKey};

/// The types of resources that the mesh speaks of: a closed set, each with its type URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// [`ServicePolicy`](crate::v1::ServicePolicy), named by [`policy`].
    Policy,
    /// Envoy's `Cluster`, named by [`cluster`]. Its endpoints come over the same stream.
    Cluster,
    /// Envoy's `ClusterLoadAssignment`, named as its cluster.
    Endpoints,
    /// Envoy's `MultipleRouteConfiguration` for Dubbo: one table for everything that a node asks
    /// for, under the name that its configuration gives it.
    Routes,
}

impl Type {
    /// Every one, in the order in which a client can make use of them.
    pub const ALL: [Self; 4] = [Self::Policy, Self::Cluster, Self::Endpoints, Self::Routes];

    /// The type URL, as requests, answers and `Any` carry it.
    #[must_use]
    pub const fn url(self) -> &'static str {
        match self {
            Self::Policy => "type.googleapis.com/dubbo.mesh.v1.ServicePolicy",
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Routes => {
                "type.googleapis.com/envoy.extensions.filters.network.dubbo_proxy.v3.MultipleRouteConfiguration"
            }
        }
    }

    /// The type of a URL, `None` for one that the mesh does not speak of.
    #[must_use]
    pub fn from_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.url() == url)
    }

    /// As logs and pages write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Cluster => "cluster",
            Self::Endpoints => "endpoints",
            Self::Routes => "routes",
        }
    }
}

/// Bytes of the longest service key that the mesh takes, wherever it comes from.
pub const MAX_KEY: usize = 512;

/// Why a text is no key of a service that the mesh takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    /// It has so many bytes, more than [`MAX_KEY`].
    #[error("a service's key has at most {MAX_KEY} bytes, not {0}")]
    Long(usize),
    /// It is none.
    #[error(transparent)]
    Form(#[from] KeyError),
}

/// The service that a text from outside names.
///
/// # Errors
/// It is longer than any that the mesh takes, or no key at all.
pub fn key(text: &str) -> Result<ServiceKey, NoKey> {
    match text.len() {
        0..=MAX_KEY => Ok(text.parse()?),
        len => Err(NoKey::Long(len)),
    }
}

/// Why a text names no resource of a service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The name of a cluster does not begin with [`OUTBOUND`].
    #[error("{0:?} does not begin with {OUTBOUND:?}")]
    Prefix(String),
    /// What stands for the service is no key.
    #[error("{0:?} names no service")]
    Key(String, #[source] KeyError),
}

/// The name of a service's `Cluster` and `ClusterLoadAssignment`: `outbound|KEY`.
#[must_use]
pub fn cluster(key: &ServiceKey) -> String {
    format!("{OUTBOUND}{key}")
}

/// The name of a service's `ServicePolicy`: its key as it prints.
#[must_use]
pub fn policy(key: &ServiceKey) -> String {
    key.to_string()
}

/// The service that a resource of this type and name is of.
///
/// Names are compared as text by whoever uses them, so only the one way in which a key prints is a
/// name: `outbound|com.foo.Shop:0.0.0` is none.
///
/// # Errors
/// A [`Type::Cluster`] or [`Type::Endpoints`] without [`OUTBOUND`], or a rest that is no key as it
/// prints. A table of [`Type::Routes`] is of no single service: its name is taken for a key.
pub fn service(kind: Type, name: &str) -> Result<ServiceKey, Error> {
    let key = match kind {
        Type::Policy | Type::Routes => name,
        Type::Cluster | Type::Endpoints => name
            .strip_prefix(OUTBOUND)
            .ok_or_else(|| Error::Prefix(name.into()))?,
    };
    let parsed: ServiceKey = key.parse().map_err(|e| Error::Key(name.into(), e))?;
    if parsed.to_string() != key {
        let written = KeyError::Malformed(key.into());
        return Err(Error::Key(name.into(), written));
    }
    Ok(parsed)
}

/// What the names of clusters and their endpoints begin with.
pub const OUTBOUND: &str = "outbound|";

/// The field of a node's metadata with the keys, a list of texts, that a wildcard subscription
/// means.
pub const NODE_SERVICES: &str = "dubbo.mesh.services";

/// The filter in whose name an endpoint's metadata stands.
pub const ENDPOINT: &str = "dubbo.mesh";

/// The field of an endpoint's metadata which says, as a bool, that a sidecar of the mesh listens
/// there.
pub const MESH: &str = "mesh";

/// The field of an endpoint's metadata with the `IP:port` of the application behind that sidecar.
pub const DIRECT: &str = "direct";

#[cfg(test)]
mod tests {
    use prost::Name;

    use super::*;
    use crate::{v1, xds};

    #[test]
    fn urls_are_those_of_the_messages() {
        for (kind, url) in [
            (Type::Policy, v1::ServicePolicy::type_url()),
            (Type::Cluster, xds::cluster::Cluster::type_url()),
            (
                Type::Endpoints,
                xds::endpoint::ClusterLoadAssignment::type_url(),
            ),
            (
                Type::Routes,
                xds::dubbo::MultipleRouteConfiguration::type_url(),
            ),
        ] {
            assert_eq!(kind.url(), url);
            assert_eq!(Type::from_url(&url), Some(kind));
        }
        assert_eq!(Type::from_url(""), None);
    }

    #[test]
    fn keys_are_bounded() {
        let text = "x".repeat(MAX_KEY);
        let long = key(&text).expect("the longest");
        assert_eq!(long.interface(), text);
        let longer = key(&(text + "x"));
        assert_eq!(longer, Err(NoKey::Long(MAX_KEY + 1)));
        assert!(matches!(key("a/b/c"), Err(NoKey::Form(_))));
    }

    #[test]
    fn names_of_a_service_lead_back_to_it() {
        for text in ["com.foo.Shop", "com.foo.Shop:1.0.0", "g/com.foo.Shop:1.0.0"] {
            let key: ServiceKey = text.parse().expect("a key");
            assert_eq!(cluster(&key), format!("outbound|{text}"));
            for (kind, name) in [
                (Type::Cluster, cluster(&key)),
                (Type::Endpoints, cluster(&key)),
                (Type::Policy, policy(&key)),
            ] {
                assert_eq!(service(kind, &name), Ok(key.clone()));
            }
        }
    }

    #[test]
    fn other_texts_name_nothing() {
        let no_prefix = service(Type::Cluster, "com.foo.Shop");
        assert_eq!(no_prefix, Err(Error::Prefix("com.foo.Shop".into())));
        for name in [
            "outbound|",
            "outbound|a/b/c",
            "outbound|a:0.0.0",
            "outbound|/a",
        ] {
            let error = service(Type::Endpoints, name);
            assert!(matches!(error, Err(Error::Key(..))), "{name}: {error:?}");
        }
    }
}
