//! Calls that wait for a host of their service: one that is being connected, or comes back; and for
//! a service that is not known yet ([`super::discovery`]).
//!
//! A call that is held stands in the table like any other, without a host and with a copy of its
//! frame. Its deadline ends the wait; so does the end of hope for every host of the service.

use std::time::Instant;

use dubbo_proto::head::{ID, RequestId};

use super::{
    backlog::Sender,
    core::TABLE_FULL,
    machine::{Attempt, Core, Of, Source},
};
use crate::call::{Call, Failure, HostId, ServiceId};

/// What is held now.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) calls: usize,
    pub(super) bytes: usize,
}

/// Bytes of a copy that goes back to the pool.
const POOLED: usize = 64 * 1024;
/// Copies kept for the next calls.
const KEPT: usize = 64;

impl Core {
    /// Holds a call that found no host, if one may come.
    #[cold]
    pub(super) fn hold(&mut self, now: Instant, mut call: Call, frame: &[u8]) {
        if let Err((failure, cause)) = self.may_wait(now, call.service, frame.len()) {
            return self.fail(call, failure, format_args!("{cause}"));
        }
        let service = call.service;
        if self.is_asked(service) {
            call.deadline = call.deadline.min(now + self.settings.limits.held_time);
        }
        call.copy = Some(self.copy_of(frame));
        match self.track(call, None) {
            Ok(id) => self.wait(service, id, frame.len()),
            Err(call) => {
                self.fail(call, Failure::Overflow, format_args!("{TABLE_FULL}"));
            }
        }
    }

    /// Holds a call of the table that left its host, and why; fails it so if nobody may come.
    #[cold]
    pub(super) fn hold_again(
        &mut self,
        now: Instant,
        id: RequestId,
        (failure, cause): (Failure, &str),
        frame: &[u8],
    ) {
        let Some(Attempt {
            of: Of::Call(call), ..
        }) = self.calls.get(id)
        else {
            return;
        };
        let service = call.service;
        match self.may_wait(now, service, frame.len()) {
            Ok(()) => {}
            Err((Failure::NoHealthyUpstream, _)) => return self.give_up(id, failure, cause),
            Err((failure, cause)) => return self.give_up(id, failure, &cause),
        }
        let copy = self.copy_of(frame);
        self.keep_copy(id, Some(copy));
        self.wait(service, id, frame.len());
    }

    /// Sends the calls that wait for a service, if it has a host now; fails them if no hope is
    /// left.
    pub(super) fn release(&mut self, now: Instant, service: ServiceId) {
        let index = self.services.get(service);
        if index.held.is_empty()
            || self.is_asked(service)
            || (index.ready.is_empty() && self.is_hopeful(now, service))
        {
            return;
        }
        let held = std::mem::take(&mut self.services.get_mut(service).held);
        for id in held {
            self.release_one(now, service, id);
        }
    }

    fn release_one(&mut self, now: Instant, service: ServiceId, id: RequestId) {
        let Some(Attempt {
            of: Of::Call(call), ..
        }) = self.calls.get_mut(id)
        else {
            return;
        };
        if !call.held {
            return;
        }
        unhold(&mut self.held, call);
        let Some(mut copy) = call.copy.take() else {
            return;
        };
        let session = call.session;
        let Some(host) = self.pick(service, None) else {
            let cause = self.why_down(service);
            self.recycle(Some(copy));
            return self.give_up(id, Failure::Unreachable, &cause);
        };
        let sender = Sender::Session(session);
        if let Err(full) = self.room(host, sender, copy.len()) {
            self.recycle(Some(copy));
            return self.give_up(id, Failure::Overflow, &full);
        }
        let keep = match self.calls.get(id) {
            Some(Attempt {
                of: Of::Call(call), ..
            }) => self.may_send_again(call, host),
            _ => false,
        };
        self.dispatch_held(now, id, host, sender, &mut copy);
        if keep {
            self.keep_copy(id, Some(copy));
        } else {
            self.recycle(Some(copy));
        }
    }

    /// Sends a held call under its primary's id, which no living connection has seen.
    fn dispatch_held(
        &mut self,
        now: Instant,
        id: RequestId,
        host: HostId,
        sender: Sender,
        frame: &mut [u8],
    ) {
        let Some(attempt) = self.calls.get_mut(id) else {
            return;
        };
        let Of::Call(call) = &attempt.of else { return };
        if call.two_way {
            attempt.host = Some(host);
            self.hosts[host.0 as usize].in_flight += 1;
            frame[ID].copy_from_slice(&id.0.to_be_bytes());
            self.send(now, host, sender, Source::Copy, frame);
        } else if let Some(call) = self.finish(id) {
            self.count_one_way(&call);
            self.send(now, host, sender, Source::Copy, frame);
            self.session_flushed(call.session);
        }
    }

    /// Whether a call may wait for a service, or how it fails.
    fn may_wait(
        &self,
        now: Instant,
        service: ServiceId,
        len: usize,
    ) -> Result<(), (Failure, String)> {
        let asked = self.is_asked(service);
        if !asked && self.services.get(service).route.is_none() {
            let label = self.services.get(service).label();
            return Err((
                Failure::NoRoute,
                format!("service {label} is not known any more"),
            ));
        }
        if !asked && !self.is_hopeful(now, service) {
            return Err((Failure::NoHealthyUpstream, self.why_down(service)));
        }
        let limits = &self.settings.limits;
        if self.held.calls >= limits.held_calls || self.held.bytes + len > limits.held_bytes {
            let full = "too many calls wait for a service or a provider (limits.held_calls, limits.held_bytes)";
            return Err((Failure::Overflow, full.into()));
        }
        Ok(())
    }

    fn wait(&mut self, service: ServiceId, id: RequestId, len: usize) {
        if let Some(Attempt {
            of: Of::Call(call), ..
        }) = self.calls.get_mut(id)
        {
            call.held = true;
            self.held.calls += 1;
            self.held.bytes += len;
        }
        self.stats.held += 1;
        let live = self.held.calls;
        let calls = &self.calls;
        let held = &mut self.services.get_mut(service).held;
        held.push(id);
        // Calls whose deadline passed leave their ids behind; they are swept before they pile up.
        if held.len() > 2 * live + 64 {
            held.retain(|id| calls.get(*id).is_some());
        }
    }

    /// A call leaves the table: it is no longer held, if it was.
    #[inline]
    pub(super) fn unhold(&mut self, call: &mut Call) {
        if call.held {
            unhold(&mut self.held, call);
        }
    }

    /// Whether a host of the service may come soon.
    fn is_hopeful(&self, now: Instant, service: ServiceId) -> bool {
        let hosts = &self.services.get(service).hosts;
        hosts
            .iter()
            .any(|h| self.hosts[h.0 as usize].upstream.is_hopeful(now))
    }

    /// Why no host of a service takes calls: one cause stands for all.
    pub(super) fn why_down(&self, service: ServiceId) -> String {
        let index = self.services.get(service);
        match index.hosts.as_slice() {
            [] => format!("service {} has no provider", index.label()),
            [first, rest @ ..] => {
                let host = &self.hosts[first.0 as usize];
                let (address, cause) = (host.shared.address, host.upstream.cause());
                let label = index.label();
                match rest.len() {
                    0 => format!("service {label}: {address}: {cause}"),
                    more => format!("service {label}: {address}: {cause}; and {more} more"),
                }
            }
        }
    }

    /// Whether a call that is sent to a host may be sent again, and so needs its copy.
    #[inline]
    pub(super) fn may_send_again(&self, call: &Call, host: HostId) -> bool {
        call.idempotent || self.hosts[host.0 as usize].mesh
    }

    /// A copy of a frame, in memory of the pool.
    pub(super) fn copy_of(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut copy = self.copies.pop().unwrap_or_default();
        copy.extend_from_slice(frame);
        self.copied += frame.len();
        copy
    }

    /// Leaves a copy with the call it belongs to, or in the pool if the call is gone.
    pub(super) fn keep_copy(&mut self, id: RequestId, copy: Option<Vec<u8>>) {
        let copy = match self.calls.get_mut(id) {
            Some(Attempt {
                of: Of::Call(call), ..
            }) if call.copy.is_none() => {
                call.copy = copy;
                return;
            }
            _ => copy,
        };
        self.recycle(copy);
    }

    /// Gives the memory of a copy back.
    #[inline]
    pub(super) fn recycle(&mut self, copy: Option<Vec<u8>>) {
        let Some(mut copy) = copy else {
            return;
        };
        self.copied -= copy.len();
        if copy.capacity() <= POOLED && self.copies.len() < KEPT {
            copy.clear();
            self.copies.push(copy);
        }
    }
}

/// A call is no longer held.
fn unhold(held: &mut Count, call: &mut Call) {
    call.held = false;
    held.calls -= 1;
    held.bytes -= call.copy.as_ref().map_or(0, Vec::len);
}
