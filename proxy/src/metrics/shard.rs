//! What one shard counts, and what it shows when asked.

use std::{
    net::SocketAddr,
    ops::{Index, IndexMut},
};

use dubbo_proto::key::ServiceKey;

use super::{
    Histogram,
    labels::{CloseReason, Counts, HostState, LostReason, Outcome, ProviderStatus, Stray},
};
use crate::model::{Profile, Side};

/// The counters of one shard. They only grow; a shard that starts anew starts from its
/// predecessor's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shard {
    /// Calls, by the side they came in on.
    pub calls: PerSide<Calls>,
    /// Connections of applications and peers, by side.
    pub sessions: PerSide<Sessions>,
    /// Connections to providers.
    pub upstream: Upstream,
    /// Calls that were held until their service was known.
    pub held: u64,
    /// Batches handed over to other shards.
    pub handoff_batches: u64,
    /// Calls handed over to other shards.
    pub handoff_calls: u64,
    /// Times that the shard failed and started anew.
    pub panics: u64,
    /// Frames refused because a shard had failed on them before.
    pub quarantine_refused: u64,
}

/// Calls of one side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calls {
    /// Calls that ended, by outcome. One-way calls end when they are written.
    pub finished: Counts<Outcome>,
    /// Calls among them that nobody waited for.
    pub one_way: u64,
    /// Further tries, by the outcome of the try before.
    pub retries: Counts<Outcome>,
    /// Calls that ended in [`Outcome::Error`], by the provider's status.
    pub provider_errors: Counts<ProviderStatus>,
    /// Times from the last byte of a call to its answer, two-way calls alone.
    pub duration: Histogram,
}

/// Connections of one side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sessions {
    /// Connections taken over from the listener.
    pub accepted: u64,
    /// Connections that ended.
    pub closed: Counts<CloseReason>,
    /// What passed through them.
    pub io: Io,
    /// Heartbeats that came in and were answered.
    pub heartbeats_received: u64,
    /// Heartbeats of ours.
    pub heartbeats_sent: u64,
    /// READONLY events of ours.
    pub read_only_sent: u64,
}

/// Connections to providers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Upstream {
    /// Connections that came up.
    pub connected: u64,
    /// Attempts to connect that failed.
    pub connect_failures: u64,
    /// Connections that ended.
    pub lost: Counts<LostReason>,
    /// What passed through them.
    pub io: Io,
    /// Heartbeats that came in and were answered.
    pub heartbeats_received: u64,
    /// Heartbeats of ours.
    pub heartbeats_sent: u64,
    /// READONLY events, and other signs of a provider that it drains.
    pub read_only_received: u64,
    /// Answers that found no call, and were dropped.
    pub stray: Counts<Stray>,
    /// Requests of providers, which nobody here serves.
    pub requests_refused: u64,
}

/// What passed through sockets. Frames by reads and by writes tell how well batching works.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Io {
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Frames read whole.
    pub frames_in: u64,
    /// Frames written or queued.
    pub frames_out: u64,
    /// Reads that brought bytes.
    pub reads: u64,
    /// Writes that took bytes.
    pub writes: u64,
}

/// One value per side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PerSide<T> {
    /// The applications' side.
    pub outbound: T,
    /// The peers' side.
    pub inbound: T,
}

/// What a shard shows when asked: its counters and how things stand.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The counters.
    pub shard: Shard,
    /// Connections open now, by side.
    pub sessions: PerSide<u64>,
    /// Calls in flight now.
    pub in_flight: u64,
    /// Calls held now until their service is known.
    pub held_calls: u64,
    /// Bytes of these.
    pub held_bytes: u64,
    /// Bytes of all buffers, in use or pooled.
    pub buffer_bytes: u64,
    /// The providers that this shard holds the connection to.
    pub hosts: Vec<HostStats>,
    /// The services that this shard knows.
    pub services: Vec<ServiceStats>,
}

/// One provider.
#[derive(Debug, Clone, PartialEq)]
pub struct HostStats {
    /// Where it listens.
    pub address: SocketAddr,
    /// How it stands with it.
    pub state: HostState,
    /// Calls in flight.
    pub in_flight: u64,
    /// Bytes that wait for its socket.
    pub queued_bytes: u64,
    /// Tries that ended, by outcome.
    pub finished: Counts<Outcome>,
    /// Connections that came up.
    pub connected: u64,
    /// Attempts to connect that failed.
    pub connect_failures: u64,
}

/// One service.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceStats {
    /// Its name.
    pub key: ServiceKey,
    /// Who calls it.
    pub side: Side,
    /// Whether the key, a bare interface, stands for every group and version of it.
    pub wildcard: bool,
    /// Its providers now, names resolved.
    pub hosts: Vec<ServiceHost>,
    /// Calls that ended, by outcome.
    pub finished: Counts<Outcome>,
}

/// A provider as one service sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceHost {
    /// Where calls go.
    pub address: SocketAddr,
    /// What else is said of it.
    pub profile: Profile,
}

impl<T> Index<Side> for PerSide<T> {
    type Output = T;

    fn index(&self, side: Side) -> &T {
        match side {
            Side::Outbound => &self.outbound,
            Side::Inbound => &self.inbound,
        }
    }
}

impl<T> IndexMut<Side> for PerSide<T> {
    fn index_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Outbound => &mut self.outbound,
            Side::Inbound => &mut self.inbound,
        }
    }
}
