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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::frame::Limits;

    #[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
    fn start() -> Instant {
        Instant::now()
    }

    fn frame(kind: Kind, id: u64, body: &[u8]) -> Vec<u8> {
        let mut output = Output::default();
        output.push(kind, Serialization::HESSIAN2, RequestId(id), body);
        output.bytes().to_vec()
    }

    fn heads(mut bytes: &[u8]) -> Vec<(Kind, u64)> {
        let mut heads = Vec::new();
        while let Some((head, _)) = frame::cut(&mut bytes, Limits::default()).expect("frames") {
            heads.push((head.kind, head.id.0));
        }
        assert!(bytes.is_empty());
        heads
    }

    const CALL: Kind = Kind::Request { two_way: true };

    #[test]
    fn calls_are_handed_out_and_heartbeats_are_not() {
        let t0 = start();
        let mut server = Server::new(t0, Config::default());
        let one_way = Kind::Request { two_way: false };
        let bytes = [
            frame(CALL, 1, b"one"),
            frame(Kind::Event { two_way: true }, 2, b"N"),
            frame(Kind::Event { two_way: false }, 3, b"N"),
            frame(one_way, 4, b"four"),
        ]
        .concat();
        let mut input = &bytes[..];
        let call = server
            .receive(t0, &mut input)
            .expect("frames")
            .expect("a call");
        assert_eq!((call.id.0, call.two_way, call.body), (1, true, &b"one"[..]));
        let call = server
            .receive(t0, &mut input)
            .expect("frames")
            .expect("a call");
        assert_eq!(
            (call.id.0, call.two_way, call.body),
            (4, false, &b"four"[..])
        );
        assert_eq!(server.receive(t0, &mut input), Ok(None));
        let ok = Status::OK;
        assert_eq!(
            heads(server.output()),
            [(Kind::EventResponse { status: ok }, 2)]
        );
        assert_eq!(server.in_flight(), 1, "nobody answers the one-way call");
    }

    #[test]
    fn one_call_too_many_is_answered_at_once() {
        let t0 = start();
        let config = Config {
            max_calls: 1,
            ..Config::default()
        };
        let mut server = Server::new(t0, config);
        let bytes = [frame(CALL, 1, b""), frame(CALL, 2, b"")].concat();
        let mut input = &bytes[..];
        assert!(server.receive(t0, &mut input).expect("frames").is_some());
        assert_eq!(server.receive(t0, &mut input), Ok(None));
        let status = Status::THREADPOOL_EXHAUSTED;
        assert_eq!(heads(server.output()), [(Kind::Response { status }, 2)]);
    }

    #[test]
    fn a_peer_that_does_not_read_is_not_read() {
        let t0 = start();
        let config = Config {
            max_queued: 20,
            ..Config::default()
        };
        let mut server = Server::new(t0, config);
        let beat = frame(Kind::Event { two_way: true }, 1, b"N");
        let bytes = beat.repeat(3);
        let mut input = &bytes[..];
        assert_eq!(server.receive(t0, &mut input), Ok(None));
        assert_eq!(input.len(), beat.len(), "the third waits");
        server.sent(t0, server.output().len());
        assert_eq!(server.receive(t0, &mut input), Ok(None));
        assert!(input.is_empty());
    }

    #[test]
    fn a_body_too_long_is_told_before_the_close() {
        let t0 = start();
        let config = Config {
            limits: Limits { max_body: 3 },
            ..Config::default()
        };
        let mut server = Server::new(t0, config);
        assert!(
            server
                .receive(t0, &mut &frame(CALL, 9, b"four")[..])
                .is_err()
        );
        let status = Status::BAD_REQUEST;
        assert_eq!(heads(server.output()), [(Kind::Response { status }, 9)]);
        let mut server = Server::new(t0, config);
        assert!(server.receive(t0, &mut &b"GET / HTTP/1.1"[..]).is_err());
        assert!(server.output().is_empty());
    }

    #[test]
    fn drained_when_the_last_answer_is_written() {
        let t0 = start();
        let mut server = Server::new(t0, Config::default());
        assert!(
            server
                .receive(t0, &mut &frame(CALL, 1, b"")[..])
                .expect("a frame")
                .is_some()
        );
        server.drain();
        server.drain();
        assert_eq!(heads(server.output()).len(), 1, "READONLY once");
        server.sent(t0, server.output().len());
        assert!(!server.is_drained(), "one answer is owed");
        let answer = frame(Kind::Response { status: Status::OK }, 1, b"");
        server.answer(|out| out.extend_from_slice(&answer));
        assert!(!server.is_drained(), "and not yet written");
        server.sent(t0, answer.len());
        assert!(server.is_drained());
    }

    #[test]
    fn a_silent_peer_is_dead() {
        let t0 = start();
        let mut server = Server::new(t0, Config::default());
        assert_eq!(
            server.handle_timeout(t0 + Duration::from_secs(60)),
            Life::Alive
        );
        assert_eq!(heads(server.output()), [(Kind::Event { two_way: true }, 0)]);
        assert_eq!(
            server.handle_timeout(t0 + Duration::from_secs(180)),
            Life::Dead
        );
    }
}
