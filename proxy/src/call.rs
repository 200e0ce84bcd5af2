//! The vocabulary of one call: what we know of it, how it can fail, and what the caller is told.

use std::{fmt, time::Instant};

use dubbo_proto::head::{RequestId, Serialization, Status};

/// One request of an application, from its arrival to its answer.
#[derive(Debug)]
pub(crate) struct Call {
    /// Where the answer goes.
    pub(crate) session: SessionId,
    /// The id the caller chose, restored in the answer.
    pub(crate) id: RequestId,
    /// What it calls.
    pub(crate) service: ServiceId,
    /// When it came in.
    pub(crate) started: Instant,
    /// When we answer that it took too long: a little before the caller gives up.
    pub(crate) deadline: Instant,
    /// How its body is written, and so every answer of ours.
    pub(crate) serialization: Serialization,
    /// Whether anybody waits for an answer.
    pub(crate) two_way: bool,
    /// Whether it may be sent again after it may have run.
    pub(crate) idempotent: bool,
    /// Further tries that are allowed.
    pub(crate) retries: u32,
    /// Times it moved to another host without having been sent.
    pub(crate) moves: u32,
    /// Whether it waits for a host.
    pub(crate) held: bool,
    /// The frame, kept while it is held or may be sent again.
    pub(crate) copy: Option<Vec<u8>>,
}

/// Names a downstream connection of a shard; the generation tells it from later tenants of its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SessionId {
    /// Place in the shard's table.
    pub(crate) index: u32,
    /// Tenant of that place.
    pub(crate) generation: u32,
}

impl SessionId {
    /// None that is there: whose a call was is not known any more.
    pub(crate) const NOBODY: Self = Self {
        index: u32::MAX,
        generation: 0,
    };
}

/// Names a service of a shard: its place, which is another's only once no call is for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServiceId(pub(crate) u32);

/// Names a host of a shard: its place in the shard's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct HostId(pub(crate) u32);

/// Why a call got no reply of a provider. The one table of what follows from it is [`Failure::facts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Unknown service, or no rule matches.
    NoRoute,
    /// No host of the service can take a call.
    NoHealthyUpstream,
    /// Could not connect, or lost before the call was written.
    Unreachable,
    /// Connection lost, the call may have run.
    ConnectionLost,
    /// The deadline passed.
    Timeout,
    /// A limit is reached or a queue is full.
    Overflow,
    /// Bad body, or an unsupported request, from downstream.
    DownstreamProtocol,
    /// Unreadable or over-long answer from upstream.
    UpstreamProtocol,
}

/// What follows from a [`Failure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Envoy's response flag: the first word of the answer, and the metrics' label.
    pub code: &'static str,
    /// The next words of the answer.
    pub description: &'static str,
    /// The status of the answer.
    pub status: Status,
    /// Whether another host may be tried.
    pub again: Again,
}

/// Whether a failed attempt may be followed by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// No.
    Never,
    /// Yes: nothing was sent.
    Always,
    /// Only if the service allows it: the call may have run.
    IfIdempotent,
}

impl Failure {
    /// Every failure, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::NoRoute,
        Self::NoHealthyUpstream,
        Self::Unreachable,
        Self::ConnectionLost,
        Self::Timeout,
        Self::Overflow,
        Self::DownstreamProtocol,
        Self::UpstreamProtocol,
    ];

    /// The one table: code, text, status, and whether another try may follow.
    #[must_use]
    pub const fn facts(self) -> Facts {
        let (code, description, status, again) = match self {
            Self::NoRoute => (
                "NR",
                "no route found",
                Status::SERVICE_NOT_FOUND,
                Again::Never,
            ),
            Self::NoHealthyUpstream => (
                "UH",
                "no healthy upstream",
                Status::SERVER_ERROR,
                Again::Never,
            ),
            Self::Unreachable => (
                "UF",
                "upstream connection failure",
                Status::SERVER_ERROR,
                Again::Always,
            ),
            Self::ConnectionLost => (
                "UC",
                "upstream connection lost",
                Status::SERVER_ERROR,
                Again::IfIdempotent,
            ),
            Self::Timeout => (
                "UT",
                "deadline passed",
                Status::SERVER_TIMEOUT,
                Again::Never,
            ),
            Self::Overflow => ("UO", "overflow", Status::THREADPOOL_EXHAUSTED, Again::Never),
            Self::DownstreamProtocol => ("DPE", "bad request", Status::BAD_REQUEST, Again::Never),
            Self::UpstreamProtocol => (
                "UPE",
                "bad answer from upstream",
                Status::SERVER_ERROR,
                Again::IfIdempotent,
            ),
        };
        Facts {
            code,
            description,
            status,
            again,
        }
    }

    /// The text of the answer: `CODE description: details`.
    pub(crate) fn text(self, details: fmt::Arguments<'_>) -> String {
        let Facts {
            code, description, ..
        } = self.facts();
        format!("{code} {description}: {details}")
    }
}
