//! What all shards showed, and what it is together.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use super::{Calls, HostStats, Io, PerSide, ServiceStats, Sessions, Shard, Snapshot, Upstream};
use crate::model::Side;

/// What all shards showed.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    /// One per shard, in their order.
    pub shards: Vec<Arc<Snapshot>>,
    /// Shards that did not answer in time: what they showed last is shown again.
    pub stale: usize,
    /// Times since the start that a shard did not answer in time.
    pub stale_total: u64,
}

impl Gathered {
    /// The counters of all shards together.
    #[must_use]
    pub fn total(&self) -> Shard {
        let mut total = Shard::default();
        self.shards
            .iter()
            .for_each(|snapshot| total.add(&snapshot.shard));
        total
    }

    /// A level of all shards together.
    pub fn sum(&self, level: impl Fn(&Snapshot) -> u64) -> u64 {
        self.shards.iter().map(|snapshot| level(snapshot)).sum()
    }

    /// The providers, by address. One that several shards show, which a hand-over between them
    /// can cause, is shown once.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostStats> {
        let mut hosts = BTreeMap::new();
        for host in self.shards.iter().flat_map(|snapshot| &snapshot.hosts) {
            match hosts.entry(host.address) {
                Entry::Vacant(entry) => {
                    entry.insert(host.clone());
                }
                Entry::Occupied(mut entry) => entry.get_mut().add(host),
            }
        }
        hosts.into_values().collect()
    }

    /// The services, each with the calls of all shards and the providers that any shard knows. An
    /// interface that stands for every group and version is none with the key that is written so.
    #[must_use]
    pub fn services(&self) -> Vec<ServiceStats> {
        self.merged(|service| {
            (
                &service.key,
                service.side == Side::Inbound,
                service.wildcard,
            )
        })
    }

    /// The same, with those together whose names are written alike.
    pub(super) fn named(&self) -> Vec<ServiceStats> {
        self.merged(|service| &service.key)
    }

    fn merged<'a, K: Ord>(&'a self, name: impl Fn(&'a ServiceStats) -> K) -> Vec<ServiceStats> {
        let mut services = BTreeMap::new();
        for service in self.shards.iter().flat_map(|snapshot| &snapshot.services) {
            match services.entry(name(service)) {
                Entry::Vacant(entry) => {
                    entry.insert(service.clone());
                }
                Entry::Occupied(mut entry) => entry.get_mut().add(service),
            }
        }
        services.into_values().collect()
    }
}

impl Shard {
    fn add(&mut self, other: &Self) {
        let Self {
            calls,
            sessions,
            upstream,
            held,
            handoff_batches,
            handoff_calls,
            panics,
            quarantine_refused,
        } = other;
        self.calls.add(calls, Calls::add);
        self.sessions.add(sessions, Sessions::add);
        self.upstream.add(upstream);
        self.held += held;
        self.handoff_batches += handoff_batches;
        self.handoff_calls += handoff_calls;
        self.panics += panics;
        self.quarantine_refused += quarantine_refused;
    }
}

impl<T> PerSide<T> {
    fn add(&mut self, other: &Self, add: impl Fn(&mut T, &T)) {
        add(&mut self.outbound, &other.outbound);
        add(&mut self.inbound, &other.inbound);
    }
}

impl Calls {
    fn add(&mut self, other: &Self) {
        let Self {
            finished,
            one_way,
            retries,
            provider_errors,
            duration,
        } = other;
        self.finished.add(finished);
        self.one_way += one_way;
        self.retries.add(retries);
        self.provider_errors.add(provider_errors);
        self.duration.add(duration);
    }
}

impl Sessions {
    fn add(&mut self, other: &Self) {
        let Self {
            accepted,
            closed,
            io,
            heartbeats_received,
            heartbeats_sent,
            read_only_sent,
        } = other;
        self.accepted += accepted;
        self.closed.add(closed);
        self.io.add(io);
        self.heartbeats_received += heartbeats_received;
        self.heartbeats_sent += heartbeats_sent;
        self.read_only_sent += read_only_sent;
    }
}

impl Upstream {
    fn add(&mut self, other: &Self) {
        let Self {
            connected,
            connect_failures,
            lost,
            io,
            heartbeats_received,
            heartbeats_sent,
            read_only_received,
            stray,
            requests_refused,
        } = other;
        self.connected += connected;
        self.connect_failures += connect_failures;
        self.lost.add(lost);
        self.io.add(io);
        self.heartbeats_received += heartbeats_received;
        self.heartbeats_sent += heartbeats_sent;
        self.read_only_received += read_only_received;
        self.stray.add(stray);
        self.requests_refused += requests_refused;
    }
}

impl Io {
    fn add(&mut self, other: &Self) {
        let Self {
            bytes_in,
            bytes_out,
            frames_in,
            frames_out,
            reads,
            writes,
        } = other;
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
        self.frames_in += frames_in;
        self.frames_out += frames_out;
        self.reads += reads;
        self.writes += writes;
    }
}

impl HostStats {
    /// Adds what another shard shows of the same provider; the state of the first one stays.
    fn add(&mut self, other: &Self) {
        self.in_flight += other.in_flight;
        self.queued_bytes += other.queued_bytes;
        self.finished.add(&other.finished);
        self.connected += other.connected;
        self.connect_failures += other.connect_failures;
    }
}

impl ServiceStats {
    fn add(&mut self, other: &Self) {
        for host in &other.hosts {
            if !self.hosts.contains(host) {
                self.hosts.push(*host);
            }
        }
        self.finished.add(&other.finished);
    }
}
