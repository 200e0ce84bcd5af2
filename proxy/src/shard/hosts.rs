//! Hosts: the connections to providers, upstream, and what happens when one is lost.
//!
//! A host belongs to one shard, which owns its socket. The other shards know the host too, hear of
//! its ups and downs, and hand their calls over.

use std::{sync::Arc, time::Instant};

use dubbo_proto::{
    event::{self, Event},
    frame,
    head::{HEAD_LEN, Head, ID, Kind, RequestId, Serialization},
    mux::{inflight::Slots, link::Timing},
    reply,
};

use super::{
    backlog::{Backlog, Sender},
    core::{Action, Attempt, Core, Of, Peer, Source},
    output::{Output, head_at},
    sessions::BEAT,
};
use crate::{
    call::{Call, Failure, HostId, SessionId},
    mesh,
    metrics::{Counts, LostReason, Outcome, Stray},
    model::Side,
    policy::retry,
    upstream::{self, Settings, Upstream},
};

/// One provider, as a shard knows it.
#[derive(Debug)]
pub(crate) struct Host {
    /// What all shards know of it.
    pub(super) shared: Arc<mesh::host::Host>,
    /// The way to it; that of another shard's host follows what its owner tells.
    pub(crate) upstream: Upstream,
    /// What goes to it.
    pub(crate) output: Output,
    /// What waits until it takes bytes again.
    pub(super) backlog: Backlog,
    /// Attempts of this shard that run on it.
    pub(super) in_flight: u32,
    /// Frames of other shards that it has and did not answer.
    pub(super) foreign: u32,
    /// Attempts that ended, by outcome.
    pub(super) finished: Counts<Outcome>,
    pub(super) connected: u64,
    pub(super) connect_failures: u64,
    /// A sidecar of the mesh listens there.
    pub(super) mesh: bool,
    /// No service names it any more.
    pub(super) retired: bool,
    touched: bool,
}

impl Host {
    #[inline]
    pub(super) fn shard(&self) -> u8 {
        self.shared.shard
    }

    /// Its number in the process.
    pub(crate) fn number(&self) -> u32 {
        self.shared.id
    }

    /// Where it is.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.shared.address
    }

    /// The output is being written.
    pub(crate) fn untouch(&mut self) {
        self.touched = false;
    }

    /// Bytes that wait for its socket.
    pub(crate) fn pending(&self) -> usize {
        self.output.pending() + self.backlog.bytes()
    }

    /// The socket takes bytes again: lets the next of the backlog go.
    pub(crate) fn refill(&mut self) {
        self.output.unblock();
        self.backlog
            .refill(&mut self.output, super::buffers::HOST_READ);
    }
}

impl Core {
    /// The place of a host, made and dialed if it is new.
    pub(super) fn host(&mut self, now: Instant, target: &mesh::Target) -> HostId {
        let shared = &target.host;
        if let Some((at, _)) = self
            .hosts
            .iter()
            .find(|(_, h)| Arc::ptr_eq(&h.shared, shared))
        {
            let id = HostId(u32::try_from(at).expect("hosts are bounded"));
            self.hosts[at].retired = false;
            self.hosts[at].mesh = target.mesh;
            return id;
        }
        let limits = &self.settings.limits;
        let settings = Settings {
            timing: Timing {
                heartbeat: limits.host_heartbeat,
                timeout: limits.host_timeout,
            },
            backoff: (limits.reconnect_min, limits.reconnect_max),
            patience: limits.reconnect_wait,
        };
        let at = self.hosts.insert(Host {
            shared: Arc::clone(shared),
            upstream: Upstream::new(now, settings),
            output: Output::default(),
            backlog: Backlog::default(),
            in_flight: 0,
            foreign: 0,
            finished: Counts::default(),
            connected: 0,
            connect_failures: 0,
            mesh: target.mesh,
            retired: false,
            touched: false,
        });
        let id = HostId(u32::try_from(at).expect("hosts are bounded"));
        if shared.shard == self.settings.shard {
            let (number, address) = (shared.id, shared.address);
            self.actions.push_back(Action::Dial {
                host: id,
                number,
                address,
            });
        } else {
            self.outbox.ask(shared.shard, shared.id);
        }
        self.watch(now, id);
        id
    }

    /// The host at a place.
    #[inline]
    pub(crate) fn host_mut(&mut self, id: HostId) -> Option<&mut Host> {
        self.hosts.get_mut(id.0 as usize)
    }

    /// The place of a host by its number in the process.
    pub(super) fn host_by_id(&self, id: u32) -> Option<HostId> {
        let (at, _) = self.hosts.iter().find(|(_, h)| h.number() == id)?;
        Some(HostId(u32::try_from(at).ok()?))
    }

    /// Forgets a host that no service names any more, once nothing runs on it.
    pub(super) fn forget_if_unused(&mut self, id: HostId) {
        let Some(host) = self.hosts.get(id.0 as usize) else {
            return;
        };
        if !self.services.of_host(id).is_empty() {
            return;
        }
        if host.in_flight > 0 || host.foreign > 0 || host.pending() > 0 {
            self.hosts[id.0 as usize].retired = true;
            return;
        }
        if host.upstream.is_up() && host.shard() == self.settings.shard {
            self.stats.upstream.lost[LostReason::Removed] += 1;
            let number = host.number();
            self.outbox.down(number, "no service names it any more");
            self.outbox.lost(number, "no service names it any more");
        }
        self.hosts.remove(id.0 as usize);
        self.host_timer.cancel(id.0);
        self.actions.push_back(Action::Hang(id));
    }

    /// Whether `len` more bytes of `sender` may wait for a host; the error says whose queue is
    /// full. One sender may fill half of it.
    #[inline]
    pub(super) fn room(&self, host: HostId, sender: Sender, len: usize) -> Result<(), String> {
        let limits = &self.settings.limits;
        let host = &self.hosts[host.0 as usize];
        let (waiting, most) = if host.shard() == self.settings.shard {
            (host.pending(), limits.host_queue)
        } else {
            (self.outbox.pending(host.shard()), limits.handoff)
        };
        // Whatever waits alone is let through, so that no frame is too long for the queue.
        if waiting == 0 || waiting + len <= most / 2 {
            return Ok(());
        }
        let own = host.backlog.bytes_of(sender);
        let address = host.shared.address;
        if waiting + len > most {
            return Err(format!(
                "the queue to {address} is full (limits.host_queue, limits.handoff)"
            ));
        }
        if own + len > most / 2 {
            return Err(format!(
                "this connection fills half of the queue to {address} (limits.host_queue)"
            ));
        }
        Ok(())
    }

    /// A host is connected: calls may go there, and those that waited for it do.
    pub(crate) fn connected(&mut self, now: Instant, id: HostId) {
        let Some(host) = self.hosts.get_mut(id.0 as usize) else {
            return;
        };
        host.upstream.connected(now);
        host.connected += 1;
        if host.shard() == self.settings.shard {
            // What was written for the connection before is of no use to this one.
            host.output = Output::default();
            host.backlog = Backlog::default();
            host.foreign = 0;
            self.stats.upstream.connected += 1;
            self.outbox.up(host.number());
        }
        self.watch(now, id);
        self.refresh(now, id);
    }

    /// A host could not be connected.
    pub(crate) fn unreachable(&mut self, now: Instant, id: HostId, cause: &str) {
        let Some(host) = self.hosts.get_mut(id.0 as usize) else {
            return;
        };
        host.upstream.failed(now, cause.to_owned(), (self.random)());
        host.connect_failures += 1;
        if host.shard() == self.settings.shard {
            self.stats.upstream.connect_failures += 1;
            self.outbox.down(host.number(), cause);
        }
        self.watch(now, id);
        self.refresh(now, id);
    }

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
        let number = self.hosts[id.0 as usize].number();
        self.outbox.down(number, cause);
        self.move_unsent(now, id, &mut unsent);
        self.outbox.lost(number, cause);
        let failure = match reason {
            LostReason::BadHead => Failure::UpstreamProtocol,
            _ => Failure::ConnectionLost,
        };
        self.fail_all(now, id, failure, cause);
    }

    /// What runs on a lost host may have run.
    pub(super) fn fail_all(&mut self, now: Instant, id: HostId, failure: Failure, cause: &str) {
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
                Kind::Request { two_way: false } => self.one_way_again(now, from, &head, frame),
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
            let full = full.unwrap_or_else(|| super::core::TABLE_FULL.into());
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

    /// A one-way call that was certainly not sent goes elsewhere: it has no entry in the table.
    fn one_way_again(&mut self, now: Instant, from: HostId, head: &Head, frame: &mut [u8]) {
        let nobody = SessionId {
            index: u32::MAX,
            generation: 0,
        };
        let inbound = self.services.id(&mesh::Name::Inbound);
        let local = inbound.is_some_and(|id| self.services.get(id).hosts.contains(&from));
        let side = if local { Side::Inbound } else { Side::Outbound };
        let call = self.call(now, nobody, side, head, &frame[HEAD_LEN..]);
        if let Ok(Call { service, .. }) = call
            && let Some(host) = self.pick(service, Some(from))
            && self.room(host, Sender::Own, frame.len()).is_ok()
        {
            self.send(now, host, Sender::Own, Source::Copy, frame);
        }
    }

    /// A host came or went: which of them are ready is worked out anew for its services.
    pub(super) fn refresh(&mut self, now: Instant, id: HostId) {
        for service in self.services.of_host(id) {
            self.refresh_service(service);
            self.release(now, service);
        }
    }

    /// Tells the host's timer what is due next.
    pub(super) fn watch(&mut self, now: Instant, id: HostId) {
        match self.hosts[id.0 as usize].upstream.poll_timeout(now) {
            Some(at) => self.host_timer.set(id.0, at),
            None => self.host_timer.cancel(id.0),
        }
    }

    /// Something is due on the way to a host.
    pub(super) fn host_due(&mut self, now: Instant, id: HostId) {
        let Some(host) = self.hosts.get_mut(id.0 as usize) else {
            return;
        };
        let own = host.shard() == self.settings.shard;
        let address = host.shared.address;
        if !own {
            // Whether it is silent is its owner's to find out.
            host.upstream.received(now);
            host.upstream.sent(now);
        }
        match host.upstream.handle_timeout(now) {
            Some(upstream::Due::Dial) if own => {
                let number = host.number();
                self.actions.push_back(Action::Dial {
                    host: id,
                    number,
                    address,
                });
            }
            Some(upstream::Due::Heartbeat) if own => {
                event::heartbeat(host.output.queue(), Serialization::HESSIAN2, BEAT, true);
                host.upstream.sent(now);
                self.stats.upstream.heartbeats_sent += 1;
                self.touch_host(id);
            }
            Some(upstream::Due::Dead) if own => {
                let cause = format!("{address} was silent for too long (limits.host_timeout)");
                self.lose(now, id, LostReason::Silent, &cause);
            }
            Some(upstream::Due::Hopeless) => {
                for service in self.services.of_host(id) {
                    self.release(now, service);
                }
            }
            _ => {}
        }
        if self.hosts.contains(id.0 as usize) {
            self.watch(now, id);
        }
    }

    /// A heartbeat or a notice of a provider. READONLY is ours to act on, and goes no further.
    pub(super) fn host_event(
        &mut self,
        now: Instant,
        from: HostId,
        head: &Head,
        two_way: bool,
        frame: &[u8],
    ) {
        let host = &mut self.hosts[from.0 as usize];
        match event::read(head.serialization, &frame[HEAD_LEN..]) {
            Event::ReadOnly => self.read_only(now, from),
            Event::Writeable if host.upstream.is_ready() => {}
            Event::Writeable => {
                host.upstream.writeable();
                self.outbox.up(host.number());
                self.refresh(now, from);
            }
            Event::Heartbeat | Event::Other => {
                self.stats.upstream.heartbeats_received += 1;
                if two_way {
                    self.tell_host(from, |queue| {
                        event::heartbeat_answer(queue, head.serialization, head.id);
                    });
                }
            }
        }
    }

    /// A provider takes no new calls on this connection.
    pub(super) fn read_only(&mut self, now: Instant, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        // It is said again in every answer by some.
        if !host.upstream.is_ready() {
            return;
        }
        host.upstream.read_only(now);
        if host.shard() == self.settings.shard {
            self.stats.upstream.read_only_received += 1;
            self.outbox.read_only(host.number());
        }
        self.watch(now, id);
        self.refresh(now, id);
    }

    /// dubbo-go says in an answer's attachments that the *address* is closing. Here the address is
    /// the sidecar's, so the host leaves the picks and the word is cut out. The frame without it.
    #[inline]
    pub(super) fn closing(
        &mut self,
        now: Instant,
        from: HostId,
        head: &Head,
        frame: &[u8],
    ) -> Option<Vec<u8>> {
        let tail = &frame[frame.len().saturating_sub(TAIL).max(HEAD_LEN)..];
        memchr::memmem::find(tail, CLOSING)?;
        let body = &frame[HEAD_LEN..];
        let (cut, value) = reply::take_attachment(
            head.serialization,
            body,
            "closing",
            &self.bodies,
            &mut self.scratch,
        )?;
        if !value.is(b"true") {
            return None;
        }
        self.read_only(now, from);
        let body_len = u32::try_from(body.len() - cut.len()).ok()?;
        let mut stripped = Head { body_len, ..*head }.encode().to_vec();
        stripped[ID].copy_from_slice(&frame[ID]);
        stripped.extend_from_slice(&body[..cut.start]);
        stripped.extend_from_slice(&body[cut.end..]);
        Some(stripped)
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

    /// Counts an answer that found no call.
    #[cold]
    pub(super) fn stray(&mut self, id: RequestId) {
        let kind =
            if Slots::<Attempt>::shard_of(id) == self.settings.shard && self.calls.has_been(id) {
                Stray::Late
            } else {
                Stray::Alien
            };
        self.stats.upstream.stray[kind] += 1;
    }

    /// Writes a frame of our own to a host that reads; one that does not is told nothing.
    pub(super) fn tell_host(&mut self, to: HostId, write: impl FnOnce(&mut Vec<u8>)) {
        let host = &mut self.hosts[to.0 as usize];
        if host.pending() <= self.settings.limits.host_queue {
            write(host.output.queue());
            self.touch_host(to);
        }
    }

    /// An output was written, as far as the kernel took it.
    pub(crate) fn host_flushed(&mut self, id: HostId) {
        if self
            .hosts
            .get(id.0 as usize)
            .is_some_and(|host| host.retired)
        {
            self.retired.push(id);
        }
    }

    /// Marks an output as having something to write.
    #[inline]
    pub(super) fn touch_host(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        if !std::mem::replace(&mut host.touched, true) {
            self.touched.push(Peer::Host(id));
        }
    }

    /// Fails the call that an attempt belongs to, whatever may be tried.
    pub(super) fn give_up(&mut self, id: RequestId, failure: Failure, cause: &str) {
        if let Some(call) = self.finish(id) {
            self.fail(call, failure, format_args!("{cause}"));
        }
    }
}

/// dubbo-go's sign of a closing provider, as a hessian string.
const CLOSING: &[u8] = b"\x07closing";
/// Bytes of an answer's end in which its attachments are looked for: they stand last.
const TAIL: usize = 4096;
