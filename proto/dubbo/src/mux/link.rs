//! Is the peer still there, and does it still take calls: heartbeats, silence, READONLY, drain.
//!
//! ```text
//!          peer says READONLY             we drain
//! Open ─────────────────────> ReadOnly ────────────> Draining
//!   ▲ └───────────────────────────│───────────────────▲
//!   └──── peer says WRITEABLE ────┘
//! ```
//! A link knows no bytes and no socket. It is told when something was read or written, and says
//! when a heartbeat is due and when the peer has been silent for too long.

use std::time::{Duration, Instant};

/// When to speak and when to give up.
///
/// Java's consumers send a heartbeat after 60 s without a read and both sides give up after 180 s
/// (apache/dubbo, `HeartbeatTimerTask`, `CloseTimerTask`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Silence, in either direction, after which a heartbeat is sent. Default 60 s.
    pub heartbeat: Duration,
    /// Time without a read after which the peer is dead. Default 180 s.
    pub timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(60),
            timeout: Duration::from_secs(180),
        }
    }
}

/// Whether new calls may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Yes.
    Open,
    /// No: the peer said READONLY. Calls in flight finish.
    ReadOnly,
    /// No: we said READONLY, and close when the calls in flight are done.
    Draining,
}

/// What is due on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Send a heartbeat.
    Heartbeat,
    /// Nothing was read for [`Timing::timeout`]: close.
    Dead,
}

/// The state of one connection's peer.
#[derive(Debug, Clone)]
pub struct Link {
    timing: Timing,
    phase: Phase,
    read: Instant,
    written: Instant,
    beat: Instant,
}

impl Link {
    /// A link that was opened `now`.
    #[must_use]
    pub fn new(now: Instant, timing: Timing) -> Self {
        Self {
            timing,
            phase: Phase::Open,
            read: now,
            written: now,
            beat: now,
        }
    }

    /// Bytes came in.
    #[inline]
    pub fn received(&mut self, now: Instant) {
        self.read = now;
    }

    /// Bytes went out.
    #[inline]
    pub fn sent(&mut self, now: Instant) {
        self.written = now;
    }

    /// The peer said READONLY.
    pub fn read_only(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::ReadOnly;
        }
    }

    /// The peer took READONLY back.
    pub fn writeable(&mut self) {
        if self.phase == Phase::ReadOnly {
            self.phase = Phase::Open;
        }
    }

    /// We drain.
    pub fn drain(&mut self) {
        self.phase = Phase::Draining;
    }

    /// Whether new calls may be sent.
    #[must_use]
    #[inline]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// When something will be due.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.next_beat().min(self.read + self.timing.timeout)
    }

    /// What is due now. A heartbeat is reported once per interval.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Due> {
        if now >= self.read + self.timing.timeout {
            return Some(Due::Dead);
        }
        if now >= self.next_beat() {
            self.beat = now;
            return Some(Due::Heartbeat);
        }
        None
    }

    fn next_beat(&self) -> Instant {
        self.read.min(self.written).max(self.beat) + self.timing.heartbeat
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_asked_and_then_given_up() {
        #[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
        let t0 = Instant::now();
        let at = |s| t0 + Duration::from_secs(s);
        let mut link = Link::new(t0, Timing::default());
        assert_eq!(link.poll_timeout(), at(60));
        assert_eq!(link.handle_timeout(at(59)), None);
        assert_eq!(link.handle_timeout(at(60)), Some(Due::Heartbeat));
        assert_eq!(link.handle_timeout(at(60)), None, "once");
        link.sent(at(60));
        link.received(at(61));
        assert_eq!(link.poll_timeout(), at(120), "we have been silent since 60");
        assert_eq!(link.handle_timeout(at(120)), Some(Due::Heartbeat));
        assert_eq!(link.handle_timeout(at(180)), Some(Due::Heartbeat));
        assert_eq!(link.handle_timeout(at(241)), Some(Due::Dead));
    }

    #[test]
    fn readonly_is_idempotent_and_drain_is_final() {
        #[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
        let mut link = Link::new(Instant::now(), Timing::default());
        link.read_only();
        link.read_only();
        assert_eq!(link.phase(), Phase::ReadOnly);
        link.writeable();
        assert_eq!(link.phase(), Phase::Open);
        link.drain();
        link.writeable();
        link.read_only();
        assert_eq!(link.phase(), Phase::Draining);
    }
}
