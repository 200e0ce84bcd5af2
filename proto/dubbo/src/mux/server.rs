//! The side that answers.
//!
//! A server that is owed a reader by its peer stops reading itself: while more than
//! [`Config::max_queued`] bytes wait to be written, [`Server::receive`] takes nothing in.

use std::time::Instant;

use super::Config;
use super::link::{Due, Link, Phase};
use super::output::Output;
use crate::event;
use crate::frame;
use crate::head::{Head, Kind, RequestId, Serialization, Status};
use crate::reply;

/// One connection's calls, on the side that serves them.
#[derive(Debug)]
pub struct Server {
    config: Config,
    link: Link,
    output: Output,
    in_flight: u32,
    heartbeats: u64,
}

/// A call that came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'i> {
    /// To be repeated in the answer.
    pub id: RequestId,
    /// How `body` is written, and how the answer must be.
    pub serialization: Serialization,
    /// Whether an answer is waited for; if not, none may be given.
    pub two_way: bool,
    /// The whole request body.
    pub body: &'i [u8],
}

impl Server {
    /// A server on a connection that was accepted `now`.
    #[must_use]
    pub fn new(now: Instant, config: Config) -> Self {
        Self {
            config,
            link: Link::new(now, config.timing),
            output: Output::default(),
            in_flight: 0,
            heartbeats: 0,
        }
    }

    /// Takes frames off the front of `input` until one of them is a call; `None` when no whole
    /// frame is left or too much waits to be written. What is left must be given again.
    ///
    /// # Errors
    /// The stream is not Dubbo, or a body is too long (the caller has been told, in
    /// [`Self::output`]): write what there is, and close.
    #[inline]
    pub fn receive<'i>(
        &mut self,
        now: Instant,
        input: &mut &'i [u8],
    ) -> Result<Option<Call<'i>>, frame::Error> {
        self.link.received(now);
        while self.has_room() {
            let cut = frame::cut(input, self.config.limits);
            let Some((head, body)) = cut.inspect_err(|e| self.refuse(e))? else {
                return Ok(None);
            };
            match head.kind {
                Kind::Request { two_way } => {
                    if let Some(call) = self.admit(head, two_way, body) {
                        return Ok(Some(call));
                    }
                }
                Kind::Event { two_way: true } => {
                    if event::read(head.serialization, body) == event::Event::Heartbeat {
                        let out = self.output.frames();
                        event::heartbeat_answer(out, head.serialization, head.id);
                    }
                }
                // A caller's notices, and answers: we asked nothing but for signs of life.
                Kind::Event { two_way: false }
                | Kind::Response { .. }
                | Kind::EventResponse { .. } => {}
            }
        }
        Ok(None)
    }

    /// Answers one two-way call: `write` appends one whole frame.
    #[inline]
    pub fn answer(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.in_flight = self.in_flight.saturating_sub(1);
        write(self.output.frames());
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
        self.link.poll_timeout()
    }

    /// Looks at the clock; a heartbeat that is due goes to [`Self::output`].
    pub fn handle_timeout(&mut self, now: Instant) -> Life {
        match self.link.handle_timeout(now) {
            Some(Due::Dead) => return Life::Dead,
            Some(Due::Heartbeat) if self.has_room() => {
                let id = RequestId(self.heartbeats);
                self.heartbeats += 1;
                event::heartbeat(self.output.frames(), Serialization::HESSIAN2, id, true);
            }
            Some(Due::Heartbeat) | None => {}
        }
        Life::Alive
    }

    /// Tells the peer to send no new calls (READONLY). Those that still come are served.
    pub fn drain(&mut self) {
        if self.link.phase() != Phase::Draining {
            self.link.drain();
            event::read_only(self.output.frames(), RequestId(self.heartbeats));
            self.heartbeats += 1;
        }
    }

    /// Whether we drain and owe nothing any more: close.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.link.phase() == Phase::Draining && self.in_flight == 0 && self.output.len() == 0
    }

    /// Two-way calls without an answer.
    #[must_use]
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    #[inline]
    fn admit<'i>(&mut self, head: Head, two_way: bool, body: &'i [u8]) -> Option<Call<'i>> {
        if two_way {
            if self.in_flight >= self.config.max_calls {
                let text = "too many calls without an answer on this connection";
                self.error(head, Status::THREADPOOL_EXHAUSTED, text);
                return None;
            }
            self.in_flight += 1;
        }
        Some(Call {
            id: head.id,
            serialization: head.serialization,
            two_way,
            body,
        })
    }

    /// A header that is good, in front of a body that is too long, names the call that failed.
    #[cold]
    fn refuse(&mut self, error: &frame::Error) {
        if let frame::Error::TooLong { head, .. } = error
            && head.kind == (Kind::Request { two_way: true })
        {
            self.error(*head, Status::BAD_REQUEST, &error.to_string());
        }
    }

    #[cold]
    fn error(&mut self, head: Head, status: Status, text: &str) {
        let out = self.output.frames();
        reply::error(out, head.serialization, head.id, status, text);
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.output.len() < self.config.max_queued
    }
}

/// Whether the peer is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// As far as we know.
    Alive,
    /// It has been silent for too long: close.
    Dead,
}
