//! What is known of the services that somebody asked for: immutable snapshots in a map whose copies
//! share what did not change. Pure.
//!
//! A change touches its service and the few nodes of the map above it, however many others there
//! are. Readers take a copy, which costs one count, and see it unchanged for as long as they like.

use std::sync::Arc;

use dubbo_proto::key::ServiceKey;
use imbl::OrdMap;
use mesh_proto::digest::Digest;

use crate::registry::{Change, Instance};

/// All services that somebody asked for. A clone is cheap, and never changes with this.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    services: OrdMap<ServiceKey, State>,
}

/// What is known of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The registry has not yet said whether there is one.
    Pending,
    /// It has instances.
    Present(Arc<Snapshot>),
    /// It has none.
    Absent,
}

/// A service as it was at one time.
#[derive(Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub service: ServiceKey,
    /// Stands for the content: the same instances have the same version, in every process.
    pub version: u64,
    /// At least one, by address, none twice.
    pub instances: Arc<[Instance]>,
}

impl Catalog {
    /// What is known of `service`; `None` if nobody asked for it.
    #[must_use]
    pub fn get(&self, service: &ServiceKey) -> Option<&State> {
        self.services.get(service)
    }

    /// Every service that somebody asked for, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&ServiceKey, &State)> {
        self.services.iter()
    }

    /// How many services somebody asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.services.len()
    }

    /// Whether nobody asked for any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// From now on somebody asks for `service`, which is pending unless it is known already.
    pub fn add(&mut self, service: &ServiceKey) {
        if !self.services.contains_key(service) {
            self.services.insert(service.clone(), State::Pending);
        }
    }

    /// From now on nobody asks for `service`.
    pub fn remove(&mut self, service: &ServiceKey) {
        self.services.remove(service);
    }

    /// Takes over what a registry says of `service`, and says whether that is anything new. Nothing
    /// happens to a service that nobody asked for.
    pub fn apply(&mut self, service: &ServiceKey, change: Change) -> bool {
        let Some(state) = self.services.get(service) else {
            return false;
        };
        let new = match change {
            Change::Set(instances) if !instances.is_empty() => {
                State::Present(Arc::new(Snapshot::new(service.clone(), instances)))
            }
            Change::Set(_) | Change::Gone => State::Absent,
        };
        let changed = *state != new;
        if changed {
            self.services.insert(service.clone(), new);
        }
        changed
    }
}

impl Snapshot {
    /// The version is that of the content, so that it survives restarts and needs no bytes of a
    /// protocol: two that differ have the same one once in 2^64.
    fn new(service: ServiceKey, instances: Arc<[Instance]>) -> Self {
        let digest = Digest::new().text(&service.to_string());
        let digest = instances.iter().fold(digest, |digest, instance| {
            let digest = digest.address(instance.address);
            let digest = digest.bytes(&instance.weight.to_be_bytes());
            let digest = digest.bytes(&(instance.metadata.len() as u64).to_be_bytes());
            let texts = instance.metadata.iter();
            texts.fold(digest, |digest, (key, value)| digest.text(key).text(value))
        });
        Self {
            service,
            version: digest.finish(),
            instances,
        }
    }
}

#[cfg(test)]
mod tests;
