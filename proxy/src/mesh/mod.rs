//! What is known now: the services with their hosts, shared by all shards.
//!
//! One task of the app writes; each shard mirrors what it is told in [`Change`]s and
//! looks nothing up here on the path of a call.

pub(crate) mod host;

use std::{net::SocketAddr, sync::Arc};

use dashmap::DashMap;
use dubbo_proto::key::ServiceKey;

use self::host::{Host, Hosts};
use crate::model::{Profile, Service};

/// Every service that is known, and every host that serves one.
#[derive(Debug)]
pub(crate) struct Mesh {
    services: DashMap<Name, Facts, foldhash::fast::RandomState>,
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
    pub(crate) profile: Profile,
}

/// An endpoint whose name, if it had one, is an address now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Where calls go.
    pub(crate) address: SocketAddr,
    pub(crate) profile: Profile,
}

/// Who says what a service is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The configuration: what it says counts.
    Static,
    /// The control plane, or the copy of what it said.
    Learned,
}

/// What is said of a name.
#[derive(Debug, Clone)]
pub(crate) enum Fact {
    /// This is the service.
    Route(Arc<Route>),
    /// There is none.
    Absent,
}

/// What each owner says of one name.
#[derive(Debug, Default)]
struct Facts {
    fixed: Option<Fact>,
    learned: Option<Fact>,
}

/// What a shard is told.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// The service is new, or as follows from now on.
    Set(Name, Arc<Route>),
    /// The control plane says that there is no such service.
    Absent(Name),
    /// Nobody says anything of the name any more.
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

    /// A route to `endpoints`. Equal addresses are merged: their weights are added, and it is enough
    /// if one is healthy.
    pub(crate) fn route(&self, service: Arc<Service>, endpoints: &[Resolved]) -> Arc<Route> {
        let mut targets: Vec<Target> = Vec::with_capacity(endpoints.len());
        for Resolved { address, profile } in endpoints {
            let same = |target: &&mut Target| target.host.address == *address;
            match targets.iter_mut().find(same) {
                Some(Target { profile: one, .. }) => {
                    one.weight = one.weight.saturating_add(profile.weight);
                    one.healthy |= profile.healthy;
                }
                None => targets.push(Target {
                    host: self.hosts.intern(*address),
                    profile: *profile,
                }),
            }
        }
        Arc::new(Route { service, targets })
    }

    /// Notes what `owner` says of a name. The change for the shards, if it is one.
    pub(crate) fn set(&self, owner: Owner, name: Name, fact: Fact) -> Option<Change> {
        let mut facts = self.services.entry(name.clone()).or_default();
        let before = facts.effective().cloned();
        *facts.of(owner) = Some(fact);
        let now = facts.effective()?;
        let same = before.is_some_and(|before| before.same_as(now));
        (!same).then(|| now.clone().into_change(name))
    }

    /// Notes that `owner` says nothing of a name any more. The change for the shards, if it is one.
    pub(crate) fn remove(&self, owner: Owner, name: &Name) -> Option<Change> {
        let mut facts = self.services.get_mut(name)?;
        let before = facts.effective().cloned()?;
        *facts.of(owner) = None;
        let now = facts.effective().cloned();
        drop(facts);
        match now {
            Some(now) if now.same_as(&before) => None,
            Some(now) => Some(now.into_change(name.clone())),
            None => {
                self.services.remove(name);
                Some(Change::Gone(name.clone()))
            }
        }
    }

    /// What a name is now, as a change: for a shard that missed it.
    pub(crate) fn now(&self, name: &Name) -> Option<Change> {
        let fact = self.services.get(name)?.effective()?.clone();
        Some(fact.into_change(name.clone()))
    }

    /// Everything there is, as changes: for a shard that starts anew.
    pub(crate) fn all(&self) -> Vec<Change> {
        let change = |entry: dashmap::mapref::multiple::RefMulti<'_, Name, Facts>| {
            let fact = entry.value().effective()?.clone();
            Some(fact.into_change(entry.key().clone()))
        };
        self.services.iter().filter_map(change).collect()
    }
}

impl Facts {
    fn of(&mut self, owner: Owner) -> &mut Option<Fact> {
        match owner {
            Owner::Static => &mut self.fixed,
            Owner::Learned => &mut self.learned,
        }
    }

    /// What counts.
    fn effective(&self) -> Option<&Fact> {
        self.fixed.as_ref().or(self.learned.as_ref())
    }
}

impl Fact {
    fn same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Route(one), Self::Route(other)) => one.same_as(other),
            (Self::Absent, Self::Absent) => true,
            _ => false,
        }
    }

    fn into_change(self, name: Name) -> Change {
        match self {
            Self::Route(route) => Change::Set(name, route),
            Self::Absent => Change::Absent(name),
        }
    }
}

impl Route {
    fn same_as(&self, other: &Self) -> bool {
        let targets = |route: &Self| -> Vec<_> {
            route
                .targets
                .iter()
                .map(|t| (t.host.address, t.profile))
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

    fn at(port: u16, weight: u32) -> Resolved {
        Resolved {
            address: ([127, 0, 0, 1], port).into(),
            profile: Profile {
                weight,
                ..Profile::default()
            },
        }
    }

    fn ports(change: Option<Change>) -> Vec<u16> {
        match change {
            Some(Change::Set(_, route)) => {
                let port = |target: &Target| target.host.address.port();
                route.targets.iter().map(port).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_changed_is_told() {
        let mesh = Mesh::new(1);
        let a = service("a.A");
        let name = Name::Key(a.key.clone());
        let set = |endpoints: &[Resolved]| {
            let route = mesh.route(Arc::clone(&a), endpoints);
            mesh.set(Owner::Static, name.clone(), Fact::Route(route))
        };
        let one = mesh.route(Arc::clone(&a), &[at(1, 100), at(1, 50), at(2, 1)]);
        assert_eq!(
            one.targets
                .iter()
                .map(|t| t.profile.weight)
                .collect::<Vec<_>>(),
            [150, 1]
        );
        let first = mesh.set(Owner::Static, name.clone(), Fact::Route(one));
        assert_eq!(ports(first), [1, 2]);
        assert!(set(&[at(1, 150), at(2, 1)]).is_none());
        let (mut behind, mut sick) = (at(1, 150), at(1, 150));
        behind.profile.direct = Some(([127, 0, 0, 1], 9).into());
        sick.profile.healthy = false;
        for other in [at(1, 150), behind, sick] {
            assert_eq!(ports(set(&[other])), [1]);
        }
        let gone = mesh.remove(Owner::Static, &name);
        assert!(matches!(gone, Some(Change::Gone(_))));
        assert!(mesh.all().is_empty());
        assert!(mesh.remove(Owner::Static, &name).is_none());
    }

    #[test]
    fn the_configuration_counts_before_the_control_plane() {
        let mesh = Mesh::new(1);
        let a = service("a.A");
        let name = Name::Key(a.key.clone());
        let route = |port| Fact::Route(mesh.route(Arc::clone(&a), &[at(port, 1)]));
        let absent = mesh.set(Owner::Learned, name.clone(), Fact::Absent);
        assert!(matches!(absent, Some(Change::Absent(_))));
        assert_eq!(ports(mesh.set(Owner::Learned, name.clone(), route(1))), [1]);
        assert_eq!(ports(mesh.set(Owner::Static, name.clone(), route(2))), [2]);
        assert!(mesh.set(Owner::Learned, name.clone(), route(3)).is_none());
        assert!(mesh.remove(Owner::Learned, &name).is_none());
        assert!(mesh.set(Owner::Learned, name.clone(), route(4)).is_none());
        assert_eq!(ports(mesh.remove(Owner::Static, &name)), [4]);
        assert!(matches!(mesh.all().as_slice(), [Change::Set(..)]));
        let gone = mesh.remove(Owner::Learned, &name);
        assert!(matches!(gone, Some(Change::Gone(_))));
    }
}
