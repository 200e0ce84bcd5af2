//! The way to a host: when to dial, whether it is up, and how long one may hope for it.
//!
//! ```text
//!            connected                     lost
//! Dialing ──────────────> Up ──────────────────────────┐
//!   ▲  │ failed                                        ▼
//!   │  └───────────────────────────────────────────> Waiting
//!   └───────────────── the wait is over ────────────────┘
//! ```

pub(crate) mod backoff;
pub(crate) mod dial;
pub(crate) mod resolve;

use std::time::{Duration, Instant};

use dubbo_proto::mux::link::{Link, Phase, Timing};

use self::backoff::Backoff;
use crate::metrics::HostState;

/// The state of the way to one host.
#[derive(Debug)]
pub(crate) struct Upstream {
    state: State,
    backoff: Backoff,
    /// Since when it takes no calls; meaningless while it does.
    down_since: Instant,
    /// Why it takes no calls, for the answers to those who wanted it.
    cause: String,
    settings: Settings,
}

/// What an [`Upstream`] needs to know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Heartbeats and silence.
    pub(crate) timing: Timing,
    /// First and longest wait between two dials.
    pub(crate) backoff: (Duration, Duration),
    /// How long a call may hope for a host that is down.
    pub(crate) patience: Duration,
}

#[derive(Debug)]
enum State {
    Dialing,
    Up { link: Link, since: Instant },
    Waiting(Instant),
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Dial now.
    Dial,
    /// Send a heartbeat.
    Heartbeat,
    /// The host is silent: close the connection.
    Dead,
    /// Nobody need hope for it any longer.
    Hopeless,
}

impl Upstream {
    /// A way that is being dialed since `now`.
    pub(crate) fn new(now: Instant, settings: Settings) -> Self {
        Self {
            state: State::Dialing,
            backoff: Backoff::new(settings.backoff),
            down_since: now,
            cause: "not connected yet".into(),
            settings,
        }
    }

    /// The dial succeeded.
    pub(crate) fn connected(&mut self, now: Instant) {
        self.state = State::Up {
            link: Link::new(now, self.settings.timing),
            since: now,
        };
    }

    /// The dial failed, or the connection was lost; `random` is any number. A connection that
    /// lasted starts the waits anew.
    pub(crate) fn failed(&mut self, now: Instant, cause: String, random: u64) {
        if let State::Up { link, since } = &self.state {
            if link.phase() == Phase::Open {
                self.down_since = now;
            }
            if now > *since + self.settings.backoff.1 {
                self.backoff.reset();
            }
        }
        self.cause = cause;
        self.state = State::Waiting(now + self.backoff.next(random));
    }

    /// Bytes came from the host.
    #[inline]
    pub(crate) fn received(&mut self, now: Instant) {
        if let State::Up { link, .. } = &mut self.state {
            link.received(now);
        }
    }

    /// Bytes went to the host.
    #[inline]
    pub(crate) fn sent(&mut self, now: Instant) {
        if let State::Up { link, .. } = &mut self.state {
            link.sent(now);
        }
    }

    /// The host takes no new calls on this connection.
    pub(crate) fn read_only(&mut self, now: Instant) {
        if let State::Up { link, .. } = &mut self.state {
            if link.phase() == Phase::Open {
                self.down_since = now;
                self.cause = "the provider is going away (READONLY)".into();
            }
            link.read_only();
        }
    }

    /// The host takes new calls again.
    pub(crate) fn writeable(&mut self) {
        if let State::Up { link, .. } = &mut self.state {
            link.writeable();
        }
    }

    /// Whether it takes new calls now.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        matches!(&self.state, State::Up { link, .. } if link.phase() == Phase::Open)
    }

    /// Whether a connection exists.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Whether a call may wait for it: it is not ready, but has not been away for long.
    pub(crate) fn is_hopeful(&self, now: Instant) -> bool {
        !self.is_ready() && now < self.down_since + self.settings.patience
    }

    /// Why it takes no calls.
    pub(crate) fn cause(&self) -> &str {
        &self.cause
    }

    /// How it stands, for people.
    pub(crate) fn state(&self) -> HostState {
        match &self.state {
            State::Dialing => HostState::Connecting,
            State::Waiting(_) => HostState::Lost,
            State::Up { .. } if self.is_ready() => HostState::Connected,
            State::Up { .. } => HostState::ReadOnly,
        }
    }

    /// When something will be due.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let hopeless = self.down_since + self.settings.patience;
        let hope = (!self.is_ready() && now < hopeless).then_some(hopeless);
        let own = match &self.state {
            State::Dialing => None,
            State::Up { link, .. } => Some(link.poll_timeout()),
            State::Waiting(until) => Some(*until),
        };
        own.into_iter().chain(hope).min()
    }

    /// What is due now.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Due> {
        use dubbo_proto::mux::link;
        let own = match &mut self.state {
            State::Waiting(until) if now >= *until => {
                self.state = State::Dialing;
                Some(Due::Dial)
            }
            State::Up { link, .. } => link.handle_timeout(now).map(|due| match due {
                link::Due::Heartbeat => Due::Heartbeat,
                link::Due::Dead => Due::Dead,
            }),
            State::Dialing | State::Waiting(_) => None,
        };
        let hopeless = !self.is_ready() && !self.is_hopeful(now);
        own.or_else(|| hopeless.then_some(Due::Hopeless))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn hope_ends_and_dialing_does_not() {
        #[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
        let t0 = Instant::now();
        let settings = Settings {
            timing: Timing {
                heartbeat: 10 * S,
                timeout: 30 * S,
            },
            backoff: (S, 4 * S),
            patience: 3 * S,
        };
        let mut way = Upstream::new(t0, settings);
        assert!(way.is_hopeful(t0) && !way.is_ready());
        way.failed(t0, "refused".into(), 0);
        assert_eq!(way.handle_timeout(t0 + 2 * S), Some(Due::Dial));
        way.failed(t0 + 2 * S, "refused".into(), u64::MAX);
        assert!(!way.is_hopeful(t0 + 3 * S));
        assert_eq!(way.handle_timeout(t0 + 3 * S), Some(Due::Hopeless));
        assert_eq!(way.handle_timeout(t0 + 9 * S), Some(Due::Dial));
        way.connected(t0 + 9 * S);
        assert!(way.is_ready());
        assert_eq!(way.handle_timeout(t0 + 19 * S), Some(Due::Heartbeat));
        way.read_only(t0 + 20 * S);
        assert!(!way.is_ready() && way.is_hopeful(t0 + 22 * S));
        way.failed(t0 + 22 * S, "closed".into(), 0);
        assert!(
            !way.is_hopeful(t0 + 23 * S),
            "the time counts from READONLY"
        );
    }
}
