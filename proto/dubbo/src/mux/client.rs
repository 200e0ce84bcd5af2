//! The side that calls.
//!
//! ```text
//!             ┌─ Refused                                   ┌─ Reply
//! send ──────>│                             receive ──────>├─ ReadOnly, Writeable
//!             └─ in flight ─┐                              └─ (strays are counted and dropped)
//!                           ├─ exactly one of: Reply, TimedOut, Lost
//! output ── driver ── sent  │               handle_timeout ─> TimedOut, Dead
//!                           └────────────── into_lost ─────> Lost { written }
//! ```
//! Nothing is queued towards the driver: each verb hands out one event a time, until `None`.

use std::time::Instant;

use super::Config;
use super::inflight::Slots;
use super::link::{Due, Link, Phase};
use super::output::Output;
use super::timer::Timer;
use crate::event;
use crate::frame;
use crate::head::{Kind, RequestId, Serialization, Status};
use crate::reply;

/// One connection's calls. `W` is what the caller keeps of a call until it has ended.
#[derive(Debug)]
pub struct Client<W> {
    config: Config,
    slots: Slots<Pending<W>>,
    timer: Timer,
    link: Link,
    output: Output,
    heartbeats: u64,
    answered: bool,
    strays: u64,
}

/// A call to be sent: its body as it goes on the wire.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// How `body` is written.
    pub serialization: Serialization,
    /// The whole request body.
    pub body: &'a [u8],
    /// When the caller stops waiting.
    pub deadline: Instant,
}

/// A call that was not taken; nothing of it was written.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused<W> {
    /// What the caller gave.
    pub waiter: W,
    /// Why.
    pub why: Refusal,
}

/// Why a call was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The peer said READONLY, or we drain.
    #[error("the connection takes no new calls")]
    Draining,
    /// [`Config::max_calls`] are in flight.
    #[error("too many calls in flight")]
    Calls,
    /// [`Config::max_queued`] bytes wait to be written.
    #[error("the peer does not read fast enough")]
    Queue,
    /// The body is over the limit.
    #[error("the body is too long")]
    TooLong,
}

/// What happened. `'i` is the input that it was read from.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'i, W> {
    /// The peer answered.
    Reply {
        /// What the caller gave.
        waiter: W,
        /// How the call went.
        status: Status,
        /// How `body` is written; not always as the request was.
        serialization: Serialization,
        /// The whole response body.
        body: &'i [u8],
    },
    /// The deadline is over. The peer may run the call all the same, even if it is still in
    /// [`Client::output`]; an answer that still comes is a stray.
    TimedOut {
        /// What the caller gave.
        waiter: W,
    },
    /// The peer said READONLY: it takes no new calls, and answers those it has.
    ReadOnly,
    /// The peer took READONLY back.
    Writeable,
    /// The peer has been silent for too long: close. The last event.
    Dead,
}

/// Whether the peer may have run a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Certainly not: the kernel never took the whole frame.
    No,
    /// Perhaps.
    Maybe,
}

#[derive(Debug)]
struct Pending<W> {
    waiter: W,
    /// Where the stream stands behind the call's frame.
    end: u64,
}

impl<W> Client<W> {
    /// A client on a connection that was opened `now`.
    #[must_use]
    pub fn new(now: Instant, config: Config) -> Self {
        Self {
            config,
            slots: Slots::new(0, config.max_calls),
            timer: Timer::new(now),
            link: Link::new(now, config.timing),
            output: Output::default(),
            heartbeats: 0,
            answered: false,
            strays: 0,
        }
    }

    /// Takes a call that waits for an answer; the id it travels under.
    ///
    /// # Errors
    /// [`Refused`], with the waiter.
    #[inline]
    pub fn send(&mut self, call: Outgoing<'_>, waiter: W) -> Result<RequestId, Refused<W>> {
        if let Some(why) = self.refusal(call.body) {
            return Err(Refused { waiter, why });
        }
        let pending = Pending { waiter, end: 0 };
        let id = self.slots.insert(pending).map_err(|pending| Refused {
            waiter: pending.waiter,
            why: Refusal::Calls,
        })?;
        let kind = Kind::Request { two_way: true };
        self.output.push(kind, call.serialization, id, call.body);
        if let Some(pending) = self.slots.get_mut(id) {
            pending.end = self.output.end();
        }
        self.timer.set(Slots::<W>::slot_of(id), call.deadline);
        Ok(id)
    }

    /// Takes a call that nobody answers.
    ///
    /// # Errors
    /// As [`Self::send`]; there is no waiter to hand back.
    pub fn send_one_way(
        &mut self,
        serialization: Serialization,
        body: &[u8],
    ) -> Result<(), Refusal> {
        if let Some(why) = self.refusal(body) {
            return Err(why);
        }
        let kind = Kind::Request { two_way: false };
        self.output.push(kind, serialization, RequestId(0), body);
        Ok(())
    }

    /// Takes frames off the front of `input` until one of them is an event; `None` when no whole
    /// frame is left. What is left must be given again, with what follows.
    ///
    /// # Errors
    /// The stream is not Dubbo, or a body is too long: close.
    #[inline]
    pub fn receive<'i>(
        &mut self,
        now: Instant,
        input: &mut &'i [u8],
    ) -> Result<Option<Event<'i, W>>, frame::Error> {
        self.link.received(now);
        while let Some((head, body)) = frame::cut(input, self.config.limits)? {
            match head.kind {
                Kind::Response { status } => {
                    let Some(pending) = self.slots.remove(head.id) else {
                        self.strays += 1;
                        continue;
                    };
                    self.timer.cancel(Slots::<W>::slot_of(head.id));
                    return Ok(Some(Event::Reply {
                        waiter: pending.waiter,
                        status,
                        serialization: head.serialization,
                        body,
                    }));
                }
                Kind::Event { two_way } => match event::read(head.serialization, body) {
                    event::Event::Heartbeat if two_way => {
                        self.answer_heartbeat(head.serialization, head.id);
                    }
                    event::Event::ReadOnly => {
                        self.link.read_only();
                        return Ok(Some(Event::ReadOnly));
                    }
                    event::Event::Writeable => {
                        self.link.writeable();
                        return Ok(Some(Event::Writeable));
                    }
                    event::Event::Heartbeat | event::Event::Other => {}
                },
                Kind::EventResponse { .. } => {
                    let beat = head.id.0 ^ HEARTBEAT_IDS;
                    self.answered |= beat < self.heartbeats;
                }
                Kind::Request { two_way } => {
                    self.strays += 1;
                    if two_way && self.has_room() {
                        let (out, text) = (self.output.frames(), "this side serves no calls");
                        let status = Status::BAD_REQUEST;
                        reply::error(out, head.serialization, head.id, status, text);
                    }
                }
            }
        }
        Ok(None)
    }

    /// What is to be written, whole frames from where the last write stopped.
    #[must_use]
    #[inline]
    pub fn output(&self) -> &[u8] {
        self.output.bytes()
    }

    /// The first `n` bytes of [`Self::output`] were written.
    #[inline]
    pub fn sent(&mut self, now: Instant, n: usize) {
        self.output.sent(n);
        self.link.sent(now);
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let link = self.link.poll_timeout();
        self.timer.poll_timeout().map_or(link, |at| at.min(link))
    }

    /// Looks at the clock: one [`Event::TimedOut`] a time, [`Event::Dead`], or `None` when nothing
    /// is due any more. A heartbeat goes to [`Self::output`] by itself.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Event<'static, W>> {
        while let Some(slot) = self.timer.expire(now) {
            let id = self.slots.id_at(slot);
            if let Some(pending) = id.and_then(|id| self.slots.remove(id)) {
                let waiter = pending.waiter;
                return Some(Event::TimedOut { waiter });
            }
        }
        match self.link.handle_timeout(now)? {
            Due::Dead => Some(Event::Dead),
            Due::Heartbeat => {
                self.ping();
                None
            }
        }
    }

    /// Asks the peer for a sign of life now.
    pub fn ping(&mut self) {
        if !self.has_room() {
            return;
        }
        let id = RequestId(HEARTBEAT_IDS | self.heartbeats);
        self.heartbeats += 1;
        event::heartbeat(self.output.frames(), Serialization::HESSIAN2, id, true);
    }

    /// Whether the peer has answered a heartbeat, so that a process serves the connection and not
    /// only a socket holds it.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.answered
    }

    /// Takes no new calls from now on; those in flight finish.
    pub fn drain(&mut self) {
        self.link.drain();
    }

    /// Whether new calls are taken.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.link.phase()
    }

    /// Whether a call would be taken now, unless it is too long.
    #[must_use]
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.link.phase() == Phase::Open
            && self.slots.len() < self.config.max_calls
            && self.has_room()
    }

    /// Calls in flight.
    #[must_use]
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.slots.len()
    }

    /// Answers without a call, and calls by the peer: late, double or alien frames so far.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// The connection is gone: every call in flight, and whether the peer may have run it.
    pub fn into_lost(mut self) -> impl Iterator<Item = (W, Written)> {
        let mut slot = 0;
        std::iter::from_fn(move || {
            while !self.slots.is_empty() {
                let id = self.slots.id_at(slot);
                slot += 1;
                if let Some(pending) = id.and_then(|id| self.slots.remove(id)) {
                    let written = self.written(pending.end);
                    return Some((pending.waiter, written));
                }
            }
            None
        })
    }

    #[inline]
    fn refusal(&self, body: &[u8]) -> Option<Refusal> {
        if self.link.phase() != Phase::Open {
            Some(Refusal::Draining)
        } else if body.len() > self.config.limits.max_body as usize {
            Some(Refusal::TooLong)
        } else if !self.has_room() {
            Some(Refusal::Queue)
        } else {
            None
        }
    }

    /// A peer that does not read gets no answers: they would pile up.
    fn answer_heartbeat(&mut self, serialization: Serialization, id: RequestId) {
        if self.has_room() {
            event::heartbeat_answer(self.output.frames(), serialization, id);
        }
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.output.len() < self.config.max_queued
    }

    fn written(&self, end: u64) -> Written {
        if end > self.output.taken() {
            Written::No
        } else {
            Written::Maybe
        }
    }
}

/// Heartbeats have ids that no call of shard 0 has.
const HEARTBEAT_IDS: u64 = 1 << 63;
