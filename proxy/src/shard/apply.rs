//! Changes of the mesh, taken over; and what a shard shows when asked.

use std::{sync::Arc, time::Instant};

use super::{machine::Core, services::Asked};
use crate::{
    call::{HostId, ServiceId},
    mesh::{Change, Name, Route},
    metrics::{HostStats, ServiceHost, ServiceStats, Snapshot},
    model::Side,
    policy::balance::Ready,
};

impl Core {
    /// Takes changes over. No connection of a host that stays is touched.
    pub(crate) fn apply(&mut self, now: Instant, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Set(name, route) => self.set(now, &name, Some(route), Asked::Known),
                Change::Absent(name) => self.set(now, &name, None, Asked::Absent),
                Change::Gone(name) => self.set(now, &name, None, Asked::No),
            }
        }
        self.reclaim();
    }

    /// Takes over what is said of a name, and how far it is known from now on, should a call have
    /// asked for it.
    fn set(&mut self, now: Instant, name: &Name, route: Option<Arc<Route>>, known: Asked) {
        self.recent.clear();
        let id = self.services.place(name);
        let waiting = self.is_asked(id);
        if self.services.get(id).asked != Asked::No {
            self.services.note(id, known);
        }
        if known == Asked::No {
            self.services.gone.push(id);
        }
        let targets = route.iter().flat_map(|route| &route.targets);
        let hosts: Vec<_> = targets.map(|target| self.host(now, target)).collect();
        let service = self.services.get_mut(id);
        let before = std::mem::replace(&mut service.hosts, hosts);
        service.route = route;
        self.refresh_service(now, id);
        if waiting {
            self.enter_again(now, id);
        } else {
            self.release(now, id);
        }
        for host in before {
            self.forget_if_unused(host);
        }
    }

    /// Works out anew which hosts of a service take calls: those that are ready and told to be
    /// healthy, or, when none of these is there and none may come, whoever is ready.
    pub(super) fn refresh_service(&mut self, now: Instant, id: ServiceId) {
        let service = self.services.get(id);
        let Some(route) = &service.route else {
            self.services.get_mut(id).ready = Ready::default();
            return;
        };
        let profiles = route.targets.iter().map(|target| target.profile);
        let hosts = service.hosts.iter().copied().zip(profiles);
        let way = |host: HostId| &self.hosts[host.0 as usize].upstream;
        let last_resort = !hosts.clone().any(|(host, profile)| {
            profile.healthy && (way(host).is_ready() || way(host).is_hopeful(now))
        });
        let ready = hosts
            .filter(|(host, profile)| way(*host).is_ready() && (profile.healthy || last_resort))
            .map(|(host, profile)| (host, profile.weight));
        let ready = Ready::new(ready);
        self.services.get_mut(id).ready = ready;
    }

    /// Counters and how things stand now.
    pub(crate) fn snapshot(&self, buffer_bytes: usize) -> Snapshot {
        let mut snapshot = Snapshot {
            shard: self.stats.clone(),
            in_flight: self.calls.len().into(),
            held_calls: self.held.calls as u64,
            held_bytes: self.held.bytes as u64,
            buffer_bytes: buffer_bytes as u64,
            ..Snapshot::default()
        };
        for (_, session) in &self.sessions {
            snapshot.sessions[session.side] += 1;
        }
        let own = self
            .hosts
            .iter()
            .filter(|(_, h)| h.shard() == self.settings.shard);
        snapshot.hosts = own
            .map(|(_, host)| HostStats {
                address: host.shared.address,
                state: host.upstream.state(),
                in_flight: host.in_flight.into(),
                queued_bytes: host.pending() as u64,
                finished: host.finished.clone(),
                connected: host.connected,
                connect_failures: host.connect_failures,
            })
            .collect();
        let known = self
            .services
            .iter()
            .filter_map(|(_, s)| Some((s, s.route.as_ref()?)));
        snapshot.services = known
            .map(|(service, route)| ServiceStats {
                key: route.service.key.clone(),
                side: match service.name {
                    Name::Inbound => Side::Inbound,
                    Name::Key(_) | Name::Interface(_) => Side::Outbound,
                },
                wildcard: matches!(service.name, Name::Interface(_)),
                hosts: route
                    .targets
                    .iter()
                    .map(|target| ServiceHost {
                        address: target.host.address,
                        profile: target.profile,
                    })
                    .collect(),
                finished: service.finished.clone(),
            })
            .collect();
        snapshot
    }
}
