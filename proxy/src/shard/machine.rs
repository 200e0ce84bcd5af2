//! The machine of one shard: what it holds, and what it yields beside bytes.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Instant};

use dubbo_proto::{
    frame,
    head::RequestId,
    hessian2,
    invocation::Scratch,
    key::ServiceKey,
    mux::{inflight::Slots, timer::Timer},
};
use memchr::memmem::Finder;
use slab::Slab;

use super::{
    handoff::Outbox,
    held,
    hosts::{CLOSING, Host},
    links::Loss,
    output::Place,
    quarantine::Quarantine,
    recent::Recent,
    services::Services,
    sessions::Session,
    time::Drain,
};
use crate::{
    call::{Call, HostId, SessionId},
    config::Limits,
    metrics::{self, CloseReason, LostReason},
    policy::balance::Random,
};

/// The machine of one shard.
pub(crate) struct Core {
    pub(super) settings: Settings,
    pub(super) frames: frame::Limits,
    pub(super) bodies: hessian2::Limits,
    pub(super) scratch: Scratch,
    /// Looks for dubbo-go's sign of a closing provider; made once, since making it costs more
    /// than a look.
    pub(super) closing: Finder<'static>,
    pub(super) random: Random,
    /// Calls in flight, by the id they travel under.
    pub(super) calls: Slots<Attempt>,
    /// Their deadlines, by slot.
    pub(super) deadlines: Timer,
    pub(super) sessions: Slab<Session>,
    pub(super) hosts: Slab<Host>,
    pub(super) services: Services,
    pub(super) recent: Recent,
    /// Outputs with something new to write.
    pub(super) touched: Vec<Peer>,
    pub(super) actions: VecDeque<Action>,
    /// Hosts that no service names, and that a call or the last bytes have just left.
    pub(super) retired: Vec<HostId>,
    pub(super) outbox: Outbox,
    /// The last loss of a connection that other shards were told of.
    pub(super) losses: Loss,
    /// Frames of calls that are held or may be sent again: taken from here, and given back.
    pub(super) copies: Vec<Vec<u8>>,
    /// Bytes of all copies that calls have.
    pub(super) copied: usize,
    pub(super) held: held::Count,
    /// Heartbeats of sessions, by index; reconnects and heartbeats of hosts, by index.
    pub(super) session_timer: Timer,
    pub(super) host_timer: Timer,
    pub(super) drain: Option<Drain>,
    pub(super) next_generation: u32,
    pub(super) quarantine: Quarantine,
    /// Why the stream of the host at hand cannot be followed: it is to be lost once what waits for
    /// it is out of the read buffers.
    pub(super) broken: Option<String>,
    /// The frame at hand, should the shard fail on it.
    pub(super) at_hand: Option<Place>,
    pub(super) stats: metrics::Shard,
}

/// What a core is made with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Which shard this is.
    pub(crate) shard: u8,
    /// Every bound and every wait.
    pub(crate) limits: Arc<Limits>,
    /// Where calls go whose service cannot be read.
    pub(crate) default: Option<ServiceKey>,
    /// Whether there is anybody to ask for services that are not known.
    pub(crate) may_ask: bool,
}

/// One attempt of a call. The first is the call's primary; further ones point to it.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Where it runs; `None` while the call is held, or after the host was lost.
    pub(super) host: Option<HostId>,
    /// The next attempt of the same call.
    pub(super) next: Option<RequestId>,
    pub(super) of: Of,
}

/// Whose attempt it is.
#[derive(Debug)]
pub(super) enum Of {
    /// The primary: the call stands here.
    Call(Call),
    /// A further attempt of the call that stands there.
    Primary(RequestId),
}

/// Whose output it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// An application or a peer of the mesh.
    Session(SessionId),
    /// A provider.
    Host(HostId),
}

/// What the driver is to do beside moving bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Connect to a host.
    Dial {
        /// Its place.
        host: HostId,
        /// Its number in the process.
        number: u32,
        /// Where it is.
        address: SocketAddr,
    },
    /// Close the connection to a host, if there is one.
    Hang(HostId),
    /// Ask for a service that nobody has named yet.
    Subscribe(ServiceKey),
    /// Close a session; what its socket has not taken is lost.
    Close(SessionId),
}

/// What was taken of an input, and what stands behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes of whole frames.
    pub(crate) bytes: usize,
    /// What follows them.
    pub(crate) next: Next,
}

/// What the rest of an input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Less than a head.
    Head,
    /// The beginning of a frame of so many bytes.
    Frame(usize),
    /// Bytes of the stream to drop.
    Skip(usize),
    /// Nothing more is read from this connection.
    Stop,
}

/// Where the bytes of a frame are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// In a read buffer that stays until the flush.
    Read(Place),
    /// Somewhere else: they must be copied.
    Copy,
}

impl Core {
    /// A core that knows no service yet.
    pub(crate) fn new(
        now: Instant,
        settings: Settings,
        workers: u8,
        random: Random,
        quarantine: Quarantine,
    ) -> Self {
        let limits = &settings.limits;
        Self {
            frames: frame_limits(limits),
            bodies: body_limits(limits),
            scratch: Scratch::default(),
            closing: Finder::new(CLOSING),
            random,
            calls: Slots::new(
                settings.shard,
                limits.max_in_flight.try_into().unwrap_or(u32::MAX),
            ),
            deadlines: Timer::new(now),
            sessions: Slab::new(),
            hosts: Slab::new(),
            services: Services::new(
                settings.default.clone(),
                if settings.may_ask {
                    limits.learned_services
                } else {
                    0
                },
            ),
            recent: Recent::default(),
            touched: Vec::new(),
            actions: VecDeque::new(),
            retired: Vec::new(),
            outbox: Outbox::new(settings.shard, workers, limits.handoff),
            losses: Loss::default(),
            copies: Vec::new(),
            copied: 0,
            held: held::Count::default(),
            session_timer: Timer::new(now),
            host_timer: Timer::new(now),
            drain: None,
            next_generation: 0,
            quarantine,
            broken: None,
            at_hand: None,
            stats: metrics::Shard::default(),
            settings,
        }
    }

    /// What is left of a core that failed: ids that are never used again, counters, and news for
    /// the other shards, in the core that follows it.
    pub(crate) fn bequeath(mut self, next: &mut Self) {
        let sessions = self.sessions.iter().map(|(_, s)| s.side);
        for side in sessions.collect::<Vec<_>>() {
            self.stats.sessions[side].closed[CloseReason::Panic] += 1;
        }
        let hosts: Vec<_> = self.hosts.iter().map(|(at, _)| at).collect();
        for at in hosts {
            let host = &self.hosts[at];
            if host.shard() != self.settings.shard {
                self.outbox.left(host.shard(), host.number());
                continue;
            }
            self.stats.upstream.lost[LostReason::Panic] += u64::from(host.upstream.is_up());
            let id = HostId(u32::try_from(at).expect("hosts are bounded"));
            self.tell_all_down(id, "the shard that owns the connection failed");
            let host = &self.hosts[at];
            if let Some(id) = next.host_by_id(host.number()) {
                next.hosts[id.0 as usize].links = host.links;
            }
        }
        for (_, host) in &next.hosts {
            if host.shard() != self.settings.shard {
                self.outbox.ask(host.shard(), host.number());
            }
        }
        self.outbox.quarantine();
        next.outbox = self.outbox;
        next.losses = self.losses;
        self.calls.clear();
        next.calls = self.calls;
        next.next_generation = self.next_generation;
        next.drain = self.drain;
        next.stats = self.stats;
        next.stats.panics += 1;
    }
}

impl Taken {
    /// Nothing more is read.
    pub(super) const STOP: Self = Self {
        bytes: 0,
        next: Next::Stop,
    };
}

/// The bounds of a frame.
fn frame_limits(limits: &Limits) -> frame::Limits {
    frame::Limits {
        max_body: u32::try_from(limits.max_body).unwrap_or(u32::MAX),
    }
}

/// The bounds of a body that is walked.
fn body_limits(limits: &Limits) -> hessian2::Limits {
    hessian2::Limits {
        depth: limits.body_depth,
        classes: limits.body_types,
        fields: limits.body_fields,
        types: limits.body_types,
        slots: u32::try_from(limits.body_references).unwrap_or(u32::MAX),
        attachments: limits.attachments,
        ..hessian2::Limits::default()
    }
}
