//! What is known now: the services with their hosts, shared by all shards.
//!
//! One thread (the app, later xDS) writes; each shard mirrors what it is told in [`Change`]s and
//! looks nothing up here on the path of a call.

pub(crate) mod host;

use std::{net::SocketAddr, sync::Arc};

use dashmap::DashMap;
use dubbo_proto::key::ServiceKey;

use self::host::{Host, Hosts};
use crate::model::Service;

/// Every service that is known, and every host that serves one.
#[derive(Debug)]
pub(crate) struct Mesh {
    services: DashMap<Name, Arc<Route>, foldhash::fast::RandomState>,
    hosts: Hosts,
}

/// Under which name calls find a service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    /// Calls for exactly this key.
    Key(ServiceKey),
    /// Calls for this interface in any group and version, if no key matches.
    Interface(ServiceKey),
    /// Every call that comes in for the local provider.
    Inbound,
}

/// A service with the hosts that serve it. Immutable: a change makes a new one.
#[derive(Debug)]
pub(crate) struct Route {
    /// What the control plane says of it.
    pub(crate) service: Arc<Service>,
    /// Who serves it; an address stands here once.
    pub(crate) targets: Vec<Target>,
}

/// A host as one service sees it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) host: Arc<Host>,
    /// Its share of the calls.
    pub(crate) weight: u32,
    /// Whether a sidecar of the mesh listens there.
    pub(crate) mesh: bool,
    /// Where the application behind that sidecar listens.
    pub(crate) direct: Option<SocketAddr>,
}

/// An endpoint whose name, if it had one, is an address now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Where calls go.
    pub(crate) address: SocketAddr,
    /// Its share of the calls.
    pub(crate) weight: u32,
    /// Whether a sidecar of the mesh listens there.
    pub(crate) mesh: bool,
    /// Where the application behind that sidecar listens.
    pub(crate) direct: Option<SocketAddr>,
}

/// What a shard is told.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// The service is new, or as follows from now on.
    Set(Name, Arc<Route>),
    /// The service is gone.
    Gone(Name),
}

impl Mesh {
    /// An empty mesh for `workers` shards.
    pub(crate) fn new(workers: u8) -> Self {
        Self {
            services: DashMap::default(),
            hosts: Hosts::new(workers),
        }
    }

    /// A route to `endpoints`. Equal addresses are merged and their weights added.
    pub(crate) fn route(&self, service: Arc<Service>, endpoints: &[Resolved]) -> Arc<Route> {
        let mut targets: Vec<Target> = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            let same = |target: &&mut Target| target.host.address == endpoint.address;
            match targets.iter_mut().find(same) {
                Some(target) => target.weight = target.weight.saturating_add(endpoint.weight),
                None => targets.push(Target {
                    host: self.hosts.intern(endpoint.address),
                    weight: endpoint.weight,
                    mesh: endpoint.mesh,
                    direct: endpoint.direct,
                }),
            }
        }
        Arc::new(Route { service, targets })
    }

    /// Makes `routes` all there is, and tells what changed.
    pub(crate) fn replace(&self, routes: Vec<(Name, Arc<Route>)>) -> Vec<Change> {
        let mut changes = Vec::new();
        let stale: Vec<Name> = self.services.iter().map(|s| s.key().clone()).collect();
        for name in stale {
            if !routes.iter().any(|(kept, _)| *kept == name) {
                self.services.remove(&name);
                changes.push(Change::Gone(name));
            }
        }
        for (name, route) in routes {
            let same = self
                .services
                .get(&name)
                .is_some_and(|old| old.same_as(&route));
            if !same {
                self.services.insert(name.clone(), Arc::clone(&route));
                changes.push(Change::Set(name, route));
            }
        }
        changes
    }

    /// Everything there is, as changes: for a shard that starts anew.
    pub(crate) fn all(&self) -> Vec<Change> {
        let set = |s: dashmap::mapref::multiple::RefMulti<'_, Name, Arc<Route>>| {
            Change::Set(s.key().clone(), Arc::clone(s.value()))
        };
        self.services.iter().map(set).collect()
    }
}

impl Route {
    fn same_as(&self, other: &Self) -> bool {
        let targets = |route: &Self| -> Vec<_> {
            route
                .targets
                .iter()
                .map(|t| (t.host.address, t.weight, t.mesh, t.direct))
                .collect()
        };
        self.service == other.service && targets(self) == targets(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(key: &str) -> Arc<Service> {
        Arc::new(Service::new(key.parse().expect("a key")))
    }

    #[test]
    fn only_what_changed_is_told() {
        let mesh = Mesh::new(1);
        let a = service("a.A");
        let name = Name::Key(a.key.clone());
        let at = |port: u16, weight| Resolved {
            address: ([127, 0, 0, 1], port).into(),
            weight,
            mesh: false,
            direct: None,
        };
        let one = mesh.route(Arc::clone(&a), &[at(1, 100), at(1, 50), at(2, 1)]);
        assert_eq!(
            one.targets.iter().map(|t| t.weight).collect::<Vec<_>>(),
            [150, 1]
        );
        assert_eq!(mesh.replace(vec![(name.clone(), one)]).len(), 1);
        let same = mesh.route(Arc::clone(&a), &[at(1, 150), at(2, 1)]);
        assert!(mesh.replace(vec![(name.clone(), same)]).is_empty());
        let behind = Resolved {
            direct: Some(([127, 0, 0, 1], 9).into()),
            ..at(1, 150)
        };
        for other in [at(1, 150), behind] {
            let other = mesh.route(Arc::clone(&a), &[other]);
            assert!(matches!(
                mesh.replace(vec![(name.clone(), other)]).as_slice(),
                [Change::Set(..)]
            ));
        }
        assert!(matches!(mesh.replace(vec![]).as_slice(), [Change::Gone(_)]));
        assert!(mesh.all().is_empty());
    }
}
