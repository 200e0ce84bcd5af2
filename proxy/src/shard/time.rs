//! What time brings: deadlines, heartbeats, drain.

use std::time::{Duration, Instant};

use dubbo_proto::head::RequestId;

use super::machine::{Attempt, Core, Of};
use crate::{
    call::{Failure, HostId, ServiceId},
    metrics::{CloseReason, Outcome},
};

/// Quiet after which a session that was told READONLY is closed.
const QUIET: Duration = Duration::from_millis(200);

/// A drain that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    /// From here on a session is closed as soon as nothing of it is in flight: some peers ignore
    /// READONLY, and go on calling.
    impatient: Instant,
    /// All that is left is closed.
    end: Instant,
    /// When to look again.
    next: Instant,
}

impl Core {
    /// When [`Self::timeout`] is to be called next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let timers = [&self.deadlines, &self.session_timer, &self.host_timer];
        let drain = self.drain.map(|drain| drain.next);
        timers
            .into_iter()
            .filter_map(|timer| timer.poll_timeout())
            .chain(drain)
            .min()
    }

    /// Does what is due.
    pub(crate) fn timeout(&mut self, now: Instant) {
        while let Some(slot) = self.deadlines.expire(now) {
            if let Some(id) = self.calls.id_at(slot) {
                let (failure, details) = self.why_late(id);
                self.count_late(id);
                self.give_up(id, failure, &details);
            }
        }
        while let Some(index) = self.session_timer.expire(now) {
            if let Some(id) = self.session_at(index) {
                self.session_due(now, id);
            }
        }
        while let Some(index) = self.host_timer.expire(now) {
            self.host_due(now, HostId(index));
        }
        self.drain_due(now);
        if self.calls.is_empty() {
            self.calls.shrink();
            self.deadlines.shrink();
        }
    }

    /// Says READONLY to all sessions; each is closed when it is quiet, all within `time`.
    pub(crate) fn drain(&mut self, now: Instant, time: Duration) {
        if self.drain.is_some() {
            return;
        }
        self.drain = Some(Drain {
            impatient: now + time / 2,
            end: now + time,
            next: now + QUIET,
        });
        let all: Vec<_> = self.all_sessions();
        for id in all {
            self.say_read_only(id);
        }
    }

    /// Whether a drain has begun and come to its end.
    pub(crate) fn is_drained(&self) -> bool {
        self.drain.is_some() && self.sessions.is_empty()
    }

    fn drain_due(&mut self, now: Instant) {
        let Some(drain) = &mut self.drain else { return };
        if now < drain.next {
            return;
        }
        drain.next = now + QUIET / 4;
        let drain = *drain;
        for id in self.all_sessions() {
            let Some(session) = self.session_mut(id) else {
                continue;
            };
            let idle = session.in_flight == 0 && session.output.pending() == 0;
            let quiet = now >= session.active() + QUIET || now >= drain.impatient;
            if (idle && quiet) || now >= drain.end {
                self.close_session(id, CloseReason::Drain);
            }
        }
    }

    fn all_sessions(&self) -> Vec<crate::call::SessionId> {
        self.sessions
            .iter()
            .filter_map(|(i, _)| self.session_at(u32::try_from(i).ok()?))
            .collect()
    }

    /// Counts a timeout for each host that has the call.
    fn count_late(&mut self, id: RequestId) {
        let mut next = Some(id);
        while let Some(attempt) = next.and_then(|id| self.calls.get(id)) {
            if let Some(host) = attempt.host {
                self.hosts[host.0 as usize].finished[Outcome::Timeout] += 1;
            }
            next = attempt.next;
        }
    }

    /// What a call whose deadline passed was waiting for.
    fn why_late(&self, id: RequestId) -> (Failure, String) {
        let Some(attempt) = self.calls.get(id) else {
            return (Failure::Timeout, String::new());
        };
        let Of::Call(call) = &attempt.of else {
            return (Failure::Timeout, String::new());
        };
        let wait = call
            .deadline
            .saturating_duration_since(call.started)
            .as_millis();
        let service: ServiceId = call.service;
        let current = std::iter::successors(Some(attempt), |a: &&Attempt| {
            a.next.and_then(|next| self.calls.get(next))
        });
        let hosts: Vec<_> = current.filter_map(|a| a.host).collect();
        let details = match hosts.last() {
            None if self.is_asked(service) => {
                let label = self.services.get(service).label();
                let details =
                    format!("the control plane did not say within {wait} ms what {label} is");
                return (Failure::NoRoute, details);
            }
            Some(host) => {
                let address = self.hosts[host.0 as usize].shared.address;
                format!("no answer of {address} within {wait} ms")
            }
            None => format!("no provider within {wait} ms: {}", self.why_down(service)),
        };
        (Failure::Timeout, details)
    }
}
