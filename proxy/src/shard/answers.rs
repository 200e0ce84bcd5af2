//! What we answer ourselves: refusals and failures.

use std::{fmt, time::Instant};

use dubbo_proto::{
    head::{Head, Kind, Serialization, Status},
    invocation::{self, Invocation},
    reply,
};

use super::machine::{Core, Peer};
use crate::{
    call::{Call, Failure, HostId, SessionId},
    metrics::Outcome,
};

/// Why a request does not become a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The body cannot be read.
    Malformed(invocation::Error),
    /// The serialization cannot be read, and there is no default for such calls.
    Unreadable(Serialization),
    /// Nobody knows the service.
    UnknownService(String),
    /// Calls ask for too many services that nobody has named.
    TooManyServices,
    /// The caller's deadline has passed.
    Expired,
    /// Calls the other way round are not carried.
    Callback,
    /// A shard failed on this frame before.
    Quarantined,
    /// The budget for long bodies is used up.
    NoMemory,
}

impl Refusal {
    /// Nobody knows the service of this call.
    pub(super) fn unknown(call: &Invocation<'_>) -> Self {
        let (group, path, version) = (call.group(), call.path(), call.version());
        let key =
            dubbo_proto::key::KeyRef::new(&group.to_utf8(), &path.to_utf8(), &version.to_utf8())
                .to_string();
        Self::UnknownService(key)
    }

    fn failure(&self) -> Failure {
        match self {
            Self::Malformed(_) | Self::Callback | Self::Quarantined => Failure::DownstreamProtocol,
            Self::Unreadable(_) | Self::UnknownService(_) => Failure::NoRoute,
            Self::Expired => Failure::Timeout,
            Self::NoMemory | Self::TooManyServices => Failure::Overflow,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::Unreadable(serialization) => write!(
                f,
                "the service of a call in serialization {} cannot be read, and outbound.default \
                 is not set",
                serialization.bits()
            ),
            Self::UnknownService(key) => {
                write!(
                    f,
                    "service {key} is not known to this sidecar; check group and version"
                )
            }
            Self::TooManyServices => f.write_str(
                "calls ask for too many services that nobody declared (limits.learned_services)",
            ),
            Self::Expired => f.write_str("the caller's deadline (_TO) had passed on arrival"),
            Self::Callback => f.write_str(
                "callback arguments and stub events need a connection of their own to the \
                 provider, and are not carried by the sidecar; call the provider directly",
            ),
            Self::NoMemory => f.write_str("too many long bodies at a time (limits.big_bodies)"),
            Self::Quarantined => {
                f.write_str("an earlier frame with this body made a shard fail, and is refused")
            }
        }
    }
}

impl Core {
    /// Answers a request that did not become a call.
    #[cold]
    pub(super) fn refuse(&mut self, to: SessionId, head: &Head, refusal: Refusal) {
        let failure = refusal.failure();
        let two_way = matches!(head.kind, Kind::Request { two_way: true });
        let Some(session) = self.session_mut(to) else {
            return;
        };
        let side = session.side;
        if two_way {
            let text = failure.text(format_args!("{refusal}"));
            let status = failure.facts().status;
            self.tell_session(to, |queue| {
                reply::error(queue, head.serialization, head.id, status, &text);
            });
        }
        self.stats.calls[side].finished[Outcome::from(failure)] += 1;
    }

    /// Ends a call that is not, or no longer, in the table without a provider's answer.
    #[cold]
    pub(super) fn fail(&mut self, call: Call, failure: Failure, details: fmt::Arguments<'_>) {
        let text = failure.text(details);
        tracing::debug!(id = %call.id, text, "call failed");
        self.services.get_mut(call.service).finished[Outcome::from(failure)] += 1;
        if let Some(session) = self.session_mut(call.session) {
            let side = session.side;
            if call.two_way {
                let status = failure.facts().status;
                self.tell_session(call.session, |queue| {
                    reply::error(queue, call.serialization, call.id, status, &text);
                });
            }
            self.stats.calls[side].finished[Outcome::from(failure)] += 1;
        }
        self.recycle(call.copy);
        self.session_flushed(call.session);
    }

    /// A long frame does not fit into the budget of the process: its call fails, alone.
    #[cold]
    pub(super) fn refuse_long(&mut self, now: Instant, of: Peer, head: &Head) {
        match of {
            Peer::Session(from) => self.refuse(from, head, Refusal::NoMemory),
            Peer::Host(from) => {
                let cause = Refusal::NoMemory.to_string();
                self.attempt_lost(now, from, head.id, Failure::Overflow, &cause);
            }
        }
    }

    /// A call counts as ended where nobody waits for its answer; one that came back did before.
    pub(super) fn count_one_way(&mut self, call: &Call) {
        if call.session == SessionId::NOBODY {
            return;
        }
        let side = self.side(call.session);
        let calls = &mut self.stats.calls[side];
        calls.one_way += 1;
        calls.finished[Outcome::Ok] += 1;
        self.services.get_mut(call.service).finished[Outcome::Ok] += 1;
    }

    /// Answers a request that a provider sent: nobody here serves it.
    #[cold]
    pub(super) fn refuse_host(&mut self, to: HostId, head: &Head, two_way: bool) {
        self.stats.upstream.requests_refused += 1;
        if two_way {
            let text = Failure::DownstreamProtocol.text(format_args!(
                "a sidecar serves no calls of providers; callbacks are not carried"
            ));
            self.tell_host(to, |queue| {
                reply::error(
                    queue,
                    head.serialization,
                    head.id,
                    Status::BAD_REQUEST,
                    &text,
                );
            });
        }
    }
}
