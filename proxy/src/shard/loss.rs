//! What happens to calls whose host is lost, or whose answer cannot be passed on: each is tried
//! elsewhere where that is safe, or fails.

use std::time::Instant;

use dubbo_proto::{
    frame,
    head::{HEAD_LEN, ID, Kind, RequestId},
    mux::inflight::Slots,
};

use super::{
    backlog::Sender,
    core::TABLE_FULL,
    machine::{Action, Attempt, Core, Of, Source},
    output::head_at,
};
use crate::{
    call::{Failure, HostId, SessionId},
    mesh,
    metrics::{LostReason, Outcome},
    model::Side,
    policy::retry,
};

impl Core {
    /// The connection to a host is lost. What the kernel did not wholly take was certainly not
    /// run, and goes elsewhere; the rest may have run.
    pub(crate) fn lose(&mut self, now: Instant, id: HostId, reason: LostReason, cause: &str) {
        let Some(host) = self.hosts.get_mut(id.0 as usize) else {
            return;
        };
        if !host.upstream.is_up() {
            return;
        }
        tracing::warn!(host = %host.shared.address, reason = ?reason, cause, "lost a provider");
        let mut unsent = host.output.take_unsent();
        unsent.extend(host.backlog.take());
        host.upstream.failed(now, cause.to_owned(), (self.random)());
        self.stats.upstream.lost[reason] += 1;
        self.actions.push_back(Action::Hang(id));
        self.watch(now, id);
        self.refresh(now, id);
        self.tell_all_down(id, cause);
        self.move_unsent(now, id, &mut unsent);
        let failure = match reason {
            LostReason::BadHead => Failure::UpstreamProtocol,
            _ => Failure::ConnectionLost,
        };
        self.fail_all(now, id, failure, cause);
    }

    /// What runs on a lost host may have run.
    pub(super) fn fail_all(&mut self, now: Instant, id: HostId, failure: Failure, cause: &str) {
        // Mostly nothing does: then the table need not be walked.
        if self.host_mut(id).is_none_or(|host| host.in_flight == 0) {
            return self.forget_if_unused(id);
        }
        let on_host =
            |(call, attempt): (RequestId, &Attempt)| (attempt.host == Some(id)).then_some(call);
        let lost: Vec<RequestId> = self.calls.iter().filter_map(on_host).collect();
        for call in lost {
            self.attempt_failed(now, call, failure, cause, None);
        }
        self.forget_if_unused(id);
    }

    /// Frames that were certainly not run: each goes elsewhere, or back to its shard.
    pub(super) fn move_unsent(&mut self, now: Instant, from: HostId, frames: &mut [u8]) {
        let mut at = 0;
        while let Some(head) = head_at(frames, at) {
            let Some(frame) = frames.get_mut(at..at + head.frame_len()) else {
                return;
            };
            at += head.frame_len();
            match head.kind {
                Kind::Request { two_way: true } => {
                    let shard = Slots::<Attempt>::shard_of(head.id);
                    if shard != self.settings.shard {
                        self.outbox
                            .unsent(shard, self.hosts[from.0 as usize].number(), frame);
                        continue;
                    }
                    let cause = self.hosts[from.0 as usize].upstream.cause().to_owned();
                    let failure = Failure::Unreachable;
                    self.attempt_failed(now, head.id, failure, &cause, Some(frame));
                }
                Kind::Request { two_way: false } => self.one_way_again(now, Some(from), frame),
                _ => {}
            }
        }
    }

    /// An attempt ended without a reply: tries again where that is safe, or fails the call.
    /// `frame` is there if it was certainly not sent.
    pub(super) fn attempt_failed(
        &mut self,
        now: Instant,
        id: RequestId,
        failure: Failure,
        cause: &str,
        frame: Option<&mut [u8]>,
    ) {
        let left = self.calls.get(id).and_then(|attempt| attempt.host);
        let Some(primary) = self.detach(id, failure) else {
            return;
        };
        let Some(Attempt {
            of: Of::Call(call), ..
        }) = self.calls.get_mut(primary)
        else {
            return;
        };
        let mut copy = call.copy.take();
        let again = retry::grant(call, failure);
        match (again, frame, &mut copy) {
            (true, Some(frame), _) => self.again(now, primary, left, (failure, cause), frame),
            (true, None, Some(copy)) => self.again(now, primary, left, (failure, cause), copy),
            _ => {
                let Some(call) = self.finish(primary) else {
                    return;
                };
                self.fail(call, failure, format_args!("{cause}"));
            }
        }
        self.keep_copy(primary, copy);
    }

    /// Takes an attempt off its host, and out of the table if it is not the primary. Returns the
    /// primary if no other attempt runs.
    fn detach(&mut self, id: RequestId, failure: Failure) -> Option<RequestId> {
        let attempt = self.calls.get_mut(id)?;
        let host = attempt.host.take();
        let primary = match attempt.of {
            Of::Call(_) => id,
            Of::Primary(primary) => primary,
        };
        if let Some(host) = host {
            self.hosts[host.0 as usize].finished[Outcome::from(failure)] += 1;
        }
        self.leave(host);
        if primary != id {
            let next = self.calls.remove(id)?.next;
            let mut before = primary;
            while let Some(attempt) = self.calls.get_mut(before) {
                match attempt.next {
                    Some(found) if found == id => attempt.next = next,
                    Some(other) => {
                        before = other;
                        continue;
                    }
                    None => {}
                }
                break;
            }
        }
        let first = self.calls.get(primary)?;
        (first.host.is_none() && first.next.is_none()).then_some(primary)
    }

    /// A further attempt of a call: on another host than the one it left now, or when there is one.
    fn again(
        &mut self,
        now: Instant,
        primary: RequestId,
        left: Option<HostId>,
        why: (Failure, &str),
        frame: &mut [u8],
    ) {
        let Some(Attempt {
            of: Of::Call(call), ..
        }) = self.calls.get(primary)
        else {
            return;
        };
        let (session, service) = (call.session, call.service);
        let Some(host) = self.pick(service, left) else {
            return self.hold_again(now, primary, why, frame);
        };
        let sender = Sender::Session(session);
        let full = self.room(host, sender, frame.len()).err();
        let further = Attempt {
            host: Some(host),
            next: None,
            of: Of::Primary(primary),
        };
        let id = if full.is_some() {
            None
        } else {
            self.calls.insert(further).ok()
        };
        let Some(id) = id else {
            let Some(call) = self.finish(primary) else {
                return;
            };
            let full = full.unwrap_or_else(|| TABLE_FULL.into());
            return self.fail(call, Failure::Overflow, format_args!("{full}"));
        };
        if let Some(attempt) = self.calls.get_mut(primary) {
            attempt.next = Some(id);
        }
        self.hosts[host.0 as usize].in_flight += 1;
        let side = self.session_mut(session).map_or(Side::Outbound, |s| s.side);
        self.stats.calls[side].retries[Outcome::from(why.0)] += 1;
        frame[ID].copy_from_slice(&id.0.to_be_bytes());
        self.send(now, host, sender, Source::Copy, frame);
    }

    /// A one-way call that was certainly not sent goes elsewhere, or waits: it has no entry in the
    /// table that knows whose it is. `from` is the host it comes back from, if that is still known.
    pub(super) fn one_way_again(&mut self, now: Instant, from: Option<HostId>, frame: &mut [u8]) {
        let one_way = Kind::Request { two_way: false };
        let Some(head) = head_at(frame, 0).filter(|head| head.kind == one_way) else {
            return;
        };
        let inbound = self.services.id(&mesh::Name::Inbound);
        let local = inbound
            .zip(from)
            .is_some_and(|(id, from)| self.services.get(id).hosts.contains(&from));
        let side = if local { Side::Inbound } else { Side::Outbound };
        let call = self.call(now, SessionId::NOBODY, side, &head, &frame[HEAD_LEN..]);
        let Ok(call) = call else { return };
        match self.pick(call.service, from) {
            None => self.hold(now, call, frame),
            Some(host) => match self.room(host, Sender::Own, frame.len()) {
                Ok(()) => self.send(now, host, Sender::Own, Source::Copy, frame),
                Err(full) => self.fail(call, Failure::Overflow, format_args!("{full}")),
            },
        }
    }

    /// An answer over the limit fails its call alone; its body is skipped.
    pub(super) fn reply_too_long(
        &mut self,
        now: Instant,
        from: HostId,
        id: RequestId,
        error: frame::Error,
    ) {
        let cause = format!("{}: {error}", self.hosts[from.0 as usize].shared.address);
        self.attempt_lost(now, from, id, Failure::UpstreamProtocol, &cause);
    }

    /// The answer of an attempt cannot be passed on.
    pub(super) fn attempt_lost(
        &mut self,
        now: Instant,
        from: HostId,
        id: RequestId,
        failure: Failure,
        cause: &str,
    ) {
        let shard = Slots::<Attempt>::shard_of(id);
        if shard != self.settings.shard {
            let host = self.hosts[from.0 as usize].number();
            self.outbox.failed(shard, host, id, failure, cause);
        } else if self
            .calls
            .get(id)
            .is_some_and(|attempt| attempt.host == Some(from))
        {
            self.attempt_failed(now, id, failure, cause, None);
        } else {
            self.stray(id);
        }
    }

    /// Fails the call that an attempt belongs to, whatever may be tried.
    pub(super) fn give_up(&mut self, id: RequestId, failure: Failure, cause: &str) {
        if let Some(call) = self.finish(id) {
            self.fail(call, failure, format_args!("{cause}"));
        }
    }
}
