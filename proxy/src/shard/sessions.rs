//! Sessions: the connections of applications and peers, downstream.
//!
//! ```text
//!        says no more, or is told to stop        nothing in flight, all written
//! Open ────────────────────────────────> Ending ──────────────────────────────> closed
//!   └─────────────────────── lost, silent, or too slow ───────────────────────────▲
//! ```

use std::time::Instant;

use dubbo_proto::{
    event, frame,
    head::{Head, RequestId, Serialization, Status},
    mux::link::{Due, Link, Phase, Timing},
    reply,
};

use super::{
    machine::{Action, Attempt, Core, Next, Of, Peer, Taken},
    output::Output,
};
use crate::{
    call::{Failure, SessionId},
    metrics::{CloseReason, Outcome},
    model::Side,
};

/// One downstream connection.
#[derive(Debug)]
pub(crate) struct Session {
    generation: u32,
    /// Who connected.
    pub(crate) side: Side,
    /// What goes back to it.
    pub(crate) output: Output,
    /// Calls that wait for an answer.
    pub(super) in_flight: u32,
    link: Link,
    /// When it last sent something.
    active: Instant,
    /// Why it is to be closed once nothing is in flight.
    ending: Option<CloseReason>,
    touched: bool,
}

impl Session {
    /// Bytes came in.
    #[inline]
    pub(super) fn received(&mut self, now: Instant) {
        self.link.received(now);
        self.active = now;
    }

    /// Bytes went out.
    #[inline]
    pub(crate) fn sent(&mut self, now: Instant) {
        self.link.sent(now);
    }

    /// The output is being written.
    pub(crate) fn untouch(&mut self) {
        self.touched = false;
    }

    /// When it last sent something.
    pub(super) fn active(&self) -> Instant {
        self.active
    }

    fn is_done(&self) -> bool {
        self.in_flight == 0 && self.output.pending() == 0
    }
}

impl Core {
    /// A connection was accepted.
    pub(crate) fn open(&mut self, now: Instant, side: Side) -> SessionId {
        self.next_generation = self.next_generation.wrapping_add(1);
        let limits = &self.settings.limits;
        let (heartbeat, timeout) = (limits.session_heartbeat, limits.session_timeout);
        let link = Link::new(now, Timing { heartbeat, timeout });
        let due = link.poll_timeout();
        let generation = self.next_generation;
        let index = self.sessions.insert(Session {
            generation,
            side,
            output: Output::default(),
            in_flight: 0,
            link,
            active: now,
            ending: None,
            touched: false,
        });
        let index = u32::try_from(index).expect("sessions are bounded far below this");
        self.session_timer.set(index, due);
        self.stats.sessions[side].accepted += 1;
        let id = SessionId { index, generation };
        if self.drain.is_some() {
            self.say_read_only(id);
        }
        id
    }

    /// The session that `id` names, if it is still there.
    #[inline]
    pub(crate) fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions
            .get_mut(id.index as usize)
            .filter(|s| s.generation == id.generation)
    }

    /// The session at `index`.
    pub(super) fn session_at(&self, index: u32) -> Option<SessionId> {
        let generation = self.sessions.get(index as usize)?.generation;
        Some(SessionId { index, generation })
    }

    /// The application closed its side, and may still read: its answers are written first.
    pub(crate) fn session_ended(&mut self, id: SessionId) {
        self.end_session(id, CloseReason::Peer);
    }

    /// Reads nothing more; closes when nothing is in flight and all is written.
    pub(super) fn end_session(&mut self, id: SessionId, reason: CloseReason) {
        let Some(session) = self.session_mut(id) else {
            return;
        };
        session.ending.get_or_insert(reason);
        self.session_flushed(id);
    }

    /// An output was written, as far as the kernel took it.
    pub(crate) fn session_flushed(&mut self, id: SessionId) {
        let Some(session) = self.session_mut(id) else {
            return;
        };
        if let Some(reason) = session.ending
            && session.is_done()
        {
            self.close_session(id, reason);
        }
    }

    /// Closes a session now. Its calls are forgotten: nobody waits for them.
    pub(crate) fn close_session(&mut self, id: SessionId, reason: CloseReason) {
        let Some(session) = self.session_mut(id) else {
            return;
        };
        let (side, in_flight) = (session.side, session.in_flight);
        if in_flight > 0 {
            let of_session = |(call, attempt): (RequestId, &Attempt)| match &attempt.of {
                Of::Call(c) if c.session == id => Some(call),
                _ => None,
            };
            let calls: Vec<_> = self.calls.iter().filter_map(of_session).collect();
            for call in calls {
                if let Some(call) = self.finish(call) {
                    self.stats.calls[side].finished[Outcome::CallerGone] += 1;
                    self.recycle(call.copy);
                }
            }
        }
        self.sessions.remove(id.index as usize);
        self.session_timer.cancel(id.index);
        self.stats.sessions[side].closed[reason] += 1;
        self.actions.push_back(Action::Close(id));
    }

    /// Writes a frame of our own to a session that reads.
    pub(super) fn tell_session(&mut self, to: SessionId, write: impl FnOnce(&mut Vec<u8>)) {
        let most = self.settings.limits.session_queue;
        let Some(session) = self.session_mut(to) else {
            return;
        };
        if session.output.pending() > most {
            return self.close_session(to, CloseReason::SlowReader);
        }
        write(session.output.queue());
        self.touch_session(to);
    }

    /// Marks an output as having something to write.
    #[inline]
    pub(super) fn touch_session(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(id.index as usize)
            && !std::mem::replace(&mut session.touched, true)
        {
            self.touched.push(Peer::Session(id));
        }
    }

    /// A heartbeat or a notice of an application.
    pub(super) fn session_event(&mut self, from: SessionId, head: &Head, two_way: bool) {
        let Some(session) = self.session_mut(from) else {
            return;
        };
        let side = session.side;
        self.stats.sessions[side].heartbeats_received += 1;
        if two_way {
            self.tell_session(from, |queue| {
                event::heartbeat_answer(queue, head.serialization, head.id);
            });
        }
    }

    /// Something is due on a session's link.
    pub(super) fn session_due(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.session_mut(id) else {
            return;
        };
        let due = session.link.handle_timeout(now);
        let side = session.side;
        match due {
            Some(Due::Dead) => return self.close_session(id, CloseReason::Silent),
            Some(Due::Heartbeat) => {
                event::heartbeat(session.output.queue(), Serialization::HESSIAN2, BEAT, true);
                self.touch_session(id);
                self.stats.sessions[side].heartbeats_sent += 1;
            }
            None => {}
        }
        let Some(session) = self.session_mut(id) else {
            return;
        };
        let next = session.link.poll_timeout();
        self.session_timer.set(id.index, next);
    }

    /// Tells an application that we drain.
    pub(super) fn say_read_only(&mut self, id: SessionId) {
        let Some(session) = self.session_mut(id) else {
            return;
        };
        if session.link.phase() == Phase::Draining {
            return;
        }
        session.link.drain();
        event::read_only(session.output.queue(), BEAT);
        let side = session.side;
        self.stats.sessions[side].read_only_sent += 1;
        self.touch_session(id);
    }

    /// A stream that cannot be followed: answers what can be answered, and reads nothing more.
    pub(super) fn broken_session(
        &mut self,
        now: Instant,
        from: SessionId,
        input: &[u8],
        error: frame::Error,
    ) -> Taken {
        let stop = Taken {
            bytes: 0,
            next: Next::Stop,
        };
        let Some(session) = self.session_mut(from) else {
            return stop;
        };
        let side = session.side;
        session.received(now);
        let reason = match error {
            frame::Error::TooLong { head, .. } => {
                if head.kind == (dubbo_proto::head::Kind::Request { two_way: true }) {
                    let text = Failure::DownstreamProtocol.text(format_args!("{error}"));
                    let status = Status::BAD_REQUEST;
                    let queue = session.output.queue();
                    reply::error(queue, head.serialization, head.id, status, &text);
                    self.stats.calls[side].finished[Outcome::DownstreamProtocol] += 1;
                }
                CloseReason::BadHead
            }
            frame::Error::Magic { .. } => {
                session.output.queue().extend_from_slice(foreign(input));
                CloseReason::NotDubbo
            }
        };
        self.touch_session(from);
        self.end_session(from, reason);
        stop
    }
}

/// What to say to a peer that does not speak Dubbo: in its own words, as far as we know them.
fn foreign(input: &[u8]) -> &'static [u8] {
    const HTTP: [&[u8]; 8] = [
        b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN",
    ];
    if HTTP.iter().any(|method| input.starts_with(method)) {
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 62\r\n\
          Connection: close\r\n\r\n\
          DPE bad request: this port speaks the Dubbo protocol, not HTTP"
    } else if input.first().is_some_and(|b| b.is_ascii_graphic()) && !input.starts_with(b"PRI ") {
        b"DPE bad request: this port speaks the Dubbo protocol, not telnet\r\n"
    } else {
        b""
    }
}

/// The id of our own heartbeats and notices: nobody waits for what answers them.
pub(super) const BEAT: RequestId = RequestId(0);
