//! From the catalog to protobuf: what a service is on the wire.
//!
//! A resource is encoded once per version, whatever the number of clients. Its version stands for
//! the model, never for the bytes, which may differ each time (maps have no order); so it is the
//! same after a restart, and a client that comes back is sent nothing that it has.

mod endpoints;
mod policy;
mod routes;
mod version;

use std::{collections::HashMap, sync::Arc};

use dubbo_proto::key::ServiceKey;
use mesh_proto::{
    digest::Digest,
    names::{self, Type},
    v1::{Balance, ServicePolicy},
    xds::{
        cluster::{Cluster, cluster},
        core,
        protobuf::{Any, Duration},
    },
};
use parking_lot::Mutex;
use prost::Message;

pub use endpoints::none;
pub use routes::routes;
pub use version::Version;

use crate::catalog::{Catalog, Snapshot, State};

/// One resource, encoded.
#[derive(Debug, PartialEq)]
pub struct Resource {
    /// Its name, among those of its type.
    pub name: String,
    /// Which of its contents this is.
    pub version: Version,
    /// Type and bytes.
    pub any: Any,
}

/// What a client is told when it asks for a resource.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// Nothing yet: it is not known whether there is one.
    Pending,
    /// There is none.
    Absent,
    /// This.
    Present(Arc<Resource>),
}

/// The resources of the services that clients hold, each encoded once. Shared by all of them.
#[derive(Debug, Default)]
pub struct Resources {
    services: Mutex<HashMap<ServiceKey, Arc<Service>>>,
}

/// The resources of one service, of one version.
#[derive(Debug)]
struct Service {
    version: u64,
    policy: Option<Arc<Resource>>,
    cluster: Arc<Resource>,
    endpoints: Arc<Resource>,
}

impl Resources {
    /// The resource of this type of `service`, as `catalog` knows it. A service that nobody wants of
    /// the registry yet is pending.
    pub fn find(&self, catalog: &Catalog, kind: Type, service: &ServiceKey) -> Found {
        let snapshot = match catalog.get(service) {
            Some(State::Present(snapshot)) => snapshot,
            Some(State::Absent) => return Found::Absent,
            Some(State::Pending) | None => return Found::Pending,
        };
        let encoded = self.service(catalog, snapshot);
        let found = match kind {
            Type::Policy => encoded.policy.as_ref(),
            Type::Cluster => Some(&encoded.cluster),
            Type::Endpoints => Some(&encoded.endpoints),
            Type::Routes => None,
        };
        found.map_or(Found::Absent, |resource| {
            Found::Present(Arc::clone(resource))
        })
    }

    fn service(&self, catalog: &Catalog, snapshot: &Snapshot) -> Arc<Service> {
        let mut services = self.services.lock();
        if let Some(known) = services.get(&snapshot.service)
            && known.version == snapshot.version
        {
            return Arc::clone(known);
        }
        if services.len() >= 2 * catalog.len() + SPARE {
            services.retain(|service, _| catalog.get(service).is_some());
        }
        // Under the lock: others who want the same would only encode it too.
        let encoded = Arc::new(Service::encode(snapshot));
        services.insert(snapshot.service.clone(), Arc::clone(&encoded));
        encoded
    }
}

impl Found {
    /// Bytes of what is to be told.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Present(resource) => resource.any.value.len(),
            Self::Pending | Self::Absent => 0,
        }
    }
}

impl Service {
    fn encode(snapshot: &Snapshot) -> Self {
        let key = &snapshot.service;
        let policy = policy::policy(key, &snapshot.instances);
        let balance = policy
            .as_ref()
            .map_or(Balance::Unspecified, |policy| policy.balance());
        Self {
            version: snapshot.version,
            cluster: cluster_of(key, balance).into(),
            endpoints: endpoints::endpoints(snapshot).into(),
            policy: policy.map(|policy| policy_of(&policy).into()),
        }
    }
}

impl Resource {
    fn new(kind: Type, name: String, digest: Digest, message: &impl Message) -> Self {
        let any = Any {
            type_url: kind.url().into(),
            value: message.encode_to_vec(),
        };
        Self {
            name,
            version: Version::new(digest.bytes(&[ENCODING]).finish()),
            any,
        }
    }
}

/// Endpoints come over the stream that brought the cluster. It does not change with them.
fn cluster_of(key: &ServiceKey, balance: Balance) -> Resource {
    use core::{
        AggregatedConfigSource, ApiVersion, ConfigSource, config_source::ConfigSourceSpecifier,
    };
    let stream = ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    };
    let lb_policy = match balance {
        // Envoy's `RANDOM` disregards weights.
        Balance::Unspecified | Balance::Random => cluster::LbPolicy::RoundRobin,
        Balance::LeastRequest => cluster::LbPolicy::LeastRequest,
    };
    let name = names::cluster(key);
    let message = Cluster {
        name: name.clone(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(
            cluster::DiscoveryType::Eds.into(),
        )),
        eds_cluster_config: Some(cluster::EdsClusterConfig {
            eds_config: Some(stream),
            service_name: String::new(),
        }),
        connect_timeout: Some(Duration {
            seconds: CONNECT_TIMEOUT_S,
            nanos: 0,
        }),
        lb_policy: lb_policy.into(),
        ..Default::default()
    };
    let digest = Digest::new().text(&name).bytes(&[lb_policy as u8]);
    Resource::new(Type::Cluster, name, digest, &message)
}

fn policy_of(policy: &ServicePolicy) -> Resource {
    // No map in it, so that its bytes stand for its content.
    let digest = Digest::new().bytes(&policy.encode_to_vec());
    Resource::new(Type::Policy, policy.name.clone(), digest, policy)
}

/// How a model becomes a message. To be increased when the same model becomes another one, so that
/// clients who hold the message of an older release are sent the new one.
const ENCODING: u8 = 1;

/// Services that nobody wants any more and whose resources are kept until there are this many, and
/// as many as are wanted, so that looking for them costs next to nothing per service.
const SPARE: usize = 64;

/// Time to connect to a provider, for those who have no default of their own.
const CONNECT_TIMEOUT_S: i64 = 3;

#[cfg(test)]
mod tests;
