//! By the sidecar or direct: a machine that decides, and knows no socket, clock or task.
//!
//! The sidecar, for all services:
//!
//! ```text
//!            proven in time                  lost: broken, silent, READONLY
//! Connecting ──────────────> Up ─────────────────────────────> Down
//!     │                      ▲ └────────── ramp over ────┐      │ proven
//!     └── refused ──> Down   └──────────────────────── Returning┘
//! ```
//! *Proven* is a connection whose first heartbeat was answered: a socket may accept while nobody
//! serves it. While it is `Returning`, a growing share of the calls goes by the sidecar again; the
//! share starts to grow after a random pause, so that the applications of a fleet do not come back
//! at once. Who falls again soon pauses longer.
//!
//! One service that the sidecar knows no route or no healthy host for (`NR`, `UH`):
//!
//! ```text
//!               NR, UH             time for a trial             answered
//! by the sidecar ─────> Direct ───────────────────────> Trial ───────────> Returning ──> by the …
//!                         ▲───────────── NR, UH ──────────┘                    │
//!                         └──────────────────── NR, UH ────────────────────────┘
//! ```
//! A trial is one real call: `NR` and `UH` mean that nothing ran, so it goes direct afterwards. A
//! one-way call proves nothing and would be lost in silence: until a return is over it goes direct.

mod attempt;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use dubbo_proto::key::ServiceKey;
use fastrand::Rng;

pub use attempt::{Ending, Next, Tries};

use crate::error::Code;

/// How patient the machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long calls wait for the first proof of the sidecar before they go direct, if they can.
    /// Default 300 ms.
    pub patience: Duration,
    /// Longest random pause before the return begins; doubled with each loss soon after a return,
    /// five times at most. Default 500 ms.
    pub jitter: Duration,
    /// How long the return takes, from the first call to all. Default 2 s.
    pub ramp: Duration,
    /// After so long a time up, earlier losses are forgotten. Default 60 s.
    pub stable: Duration,
    /// Shortest pause before the sidecar is connected to again, and before a call goes once more to
    /// the providers that it has been to; doubled up to `redial_max`. Default 20 ms.
    pub redial_min: Duration,
    /// Longest pause of these. Default 1 s.
    pub redial_max: Duration,
    /// Shortest pause before a service that went direct is tried by the sidecar; doubled up to
    /// `trial_max`. Default 1 s.
    pub trial_min: Duration,
    /// Longest pause between two trials. Default 30 s.
    pub trial_max: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            patience: Duration::from_millis(300),
            jitter: Duration::from_millis(500),
            ramp: Duration::from_secs(2),
            stable: Duration::from_secs(60),
            redial_min: Duration::from_millis(20),
            redial_max: Duration::from_secs(1),
            trial_min: Duration::from_secs(1),
            trial_max: Duration::from_secs(30),
        }
    }
}

/// Where a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// By the sidecar.
    Sidecar,
    /// By the sidecar, to see whether it knows the service again: see [`Failover::answered`].
    Trial,
    /// To a provider.
    Direct,
    /// Nowhere yet: ask again when something has changed, or at that time.
    Wait(Option<Instant>),
}

/// Whether a call is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// Yes, so that it is known what became of it.
    Once,
    /// No: it is one-way.
    Never,
}

/// Why the sidecar is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It cannot be connected to.
    Refused,
    /// The connection broke.
    Broken,
    /// Its heartbeats stopped.
    Silent,
    /// It said READONLY.
    ReadOnly,
}

/// What is thought of the sidecar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sidecar {
    /// There is none: every call goes direct.
    Absent,
    /// Nothing is known yet.
    Connecting,
    /// It carries the calls.
    Up,
    /// It carries this share of the calls, 0 to 1.
    Returning(f64),
    /// It carries none.
    Down(Cause),
}

/// What happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Attempts by the sidecar.
    pub by_sidecar: u64,
    /// Attempts direct.
    pub direct: u64,
    /// Calls that had certainly not run and were sent again.
    pub moved: u64,
    /// Idempotent calls that may have run and were sent again.
    pub repeated: u64,
    /// Times the sidecar was lost.
    pub losses: u64,
    /// Times it was back entirely.
    pub returns: u64,
    /// Times one service went direct.
    pub switches: u64,
}

/// The last time that the sidecar was lost, as calls felt it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// From the last answer by the sidecar to the first one direct.
    pub switched: Duration,
    /// From there to the first answer by the sidecar again; `None` until there is one.
    pub away: Option<Duration>,
}

/// The machine.
#[derive(Debug)]
pub struct Failover {
    timing: Timing,
    link: Link,
    /// Which proven connection the link is about.
    epoch: u64,
    /// Losses with no stable time between them.
    losses: u32,
    /// Dials in vain since the last proof.
    dials: u32,
    dial_at: Instant,
    services: HashMap<ServiceKey, Service>,
    counts: Counts,
    /// When the sidecar brought the last answer.
    heard: Option<Instant>,
    /// The last outage: which loss began it, when the first answer came direct.
    outage: Option<(u64, Instant, Outage)>,
}

#[derive(Debug, Clone, Copy)]
enum Link {
    Absent,
    Connecting { since: Instant },
    Up { since: Instant },
    Returning(Ramp),
    Down(Cause),
}

/// A service that does not simply go by the sidecar.
#[derive(Debug, Clone, Copy)]
struct Service {
    /// Trials in vain, and one for the answer that began it.
    failures: u32,
    step: Step,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Direct {
        trial_at: Instant,
    },
    /// One call is on its way; after `until` it counts as forgotten.
    Trial {
        until: Instant,
    },
    Returning(Ramp),
}

/// A share that grows from 0 to 1.
#[derive(Debug, Clone, Copy)]
struct Ramp {
    from: Instant,
    until: Instant,
}

impl Failover {
    /// A machine that waits for its first connection. Without a sidecar everything goes direct.
    #[must_use]
    pub fn new(now: Instant, timing: Timing, sidecar: bool) -> Self {
        Self {
            timing,
            link: if sidecar {
                Link::Connecting { since: now }
            } else {
                Link::Absent
            },
            epoch: 0,
            losses: 0,
            dials: 0,
            dial_at: now,
            services: HashMap::new(),
            counts: Counts::default(),
            heard: None,
            outage: None,
        }
    }

    /// Where a call of `key` goes. `known`: whether providers of it are known that it could go to
    /// direct; asked only if that matters.
    pub fn route(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        key: &ServiceKey,
        answered: Answered,
        known: impl FnOnce() -> bool,
    ) -> Route {
        match self.link_at(now) {
            Link::Absent => Route::Direct,
            Link::Up { .. } if self.services.is_empty() => Route::Sidecar,
            Link::Up { .. } => self.route_service(now, rng, key, answered, known),
            Link::Returning(ramp) => {
                let known = known();
                if known && !ramp.takes(now, rng, answered) {
                    Route::Direct
                } else {
                    self.route_service(now, rng, key, answered, || known)
                }
            }
            Link::Connecting { since } => {
                let over = since + self.timing.patience;
                match known() {
                    true if now >= over => Route::Direct,
                    true => Route::Wait(Some(over)),
                    false => Route::Wait(None),
                }
            }
            Link::Down(_) if known() => Route::Direct,
            Link::Down(_) => Route::Wait(None),
        }
    }

    /// A connection was proven. Its number, for [`Self::lost`].
    pub fn proven(&mut self, now: Instant, rng: &mut Rng) -> u64 {
        self.epoch += 1;
        self.dials = 0;
        self.link = match self.link {
            Link::Connecting { since } if now < since + self.timing.patience => {
                Link::Up { since: now }
            }
            _ => {
                let doubled = self.losses.saturating_sub(1).min(5);
                let pause = self.timing.jitter * (1 << doubled);
                Link::Returning(self.ramp(now + pause.mul_f64(rng.f64())))
            }
        };
        // A sidecar that is new may know what the old one did not.
        for service in self.services.values_mut() {
            let soon = now + self.timing.trial_min.mul_f64(rng.f64());
            match service.step {
                Step::Direct { trial_at: at } | Step::Trial { until: at } => {
                    let trial_at = at.min(soon);
                    service.step = Step::Direct { trial_at };
                }
                Step::Returning(_) => {}
            }
        }
        self.epoch
    }

    /// The proven connection `epoch` takes no calls any more. Whether that was news.
    pub fn lost(&mut self, now: Instant, rng: &mut Rng, epoch: u64, cause: Cause) -> bool {
        let up = match self.link_at(now) {
            Link::Up { since } => now.saturating_duration_since(since),
            Link::Returning(_) => Duration::ZERO,
            Link::Absent | Link::Connecting { .. } | Link::Down(_) => return false,
        };
        if epoch != self.epoch {
            return false;
        }
        self.losses = if up >= self.timing.stable {
            1
        } else {
            self.losses.saturating_add(1)
        };
        self.counts.losses += 1;
        self.link = Link::Down(cause);
        self.redial(now, rng);
        true
    }

    /// A connection could not be made, or ended unproven.
    pub fn unproven(&mut self, now: Instant, rng: &mut Rng, cause: Cause) {
        if matches!(self.link, Link::Connecting { .. } | Link::Down(_)) {
            self.link = Link::Down(cause);
        }
        self.redial(now, rng);
    }

    /// When to connect to the sidecar, if that is to be done.
    #[must_use]
    pub fn dial_at(&self) -> Instant {
        self.dial_at
    }

    /// When a call may go once more to its providers, all of which it has been to `rounds` times
    /// before.
    #[must_use]
    pub fn again_at(&self, now: Instant, rng: &mut Rng, rounds: u32) -> Instant {
        let pause = doubled(self.timing.redial_min, rounds, self.timing.redial_max);
        now + spread(pause, rng)
    }

    /// An attempt of a call of `key` that went `by` was answered: with `code` by the mesh, else by a
    /// provider. Providers of `key` are known.
    ///
    /// Whether the service goes direct from now on, and did not before.
    pub fn answered(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        key: &ServiceKey,
        by: Route,
        code: Option<Code>,
    ) -> bool {
        match (by, code) {
            (Route::Sidecar | Route::Trial, Some(Code::NoRoute | Code::NoHealthyUpstream))
            | (Route::Trial, Some(Code::Unreachable)) => self.unavailable(now, rng, key),
            (Route::Trial, _) => {
                self.served(now, rng, key);
                false
            }
            _ => false,
        }
    }

    /// A call was answered by whoever serves it.
    pub fn heard(&mut self, now: Instant, by: Route) {
        match by {
            Route::Sidecar | Route::Trial => {
                self.heard = Some(now);
                if let Some((_, from, outage)) = &mut self.outage {
                    outage
                        .away
                        .get_or_insert_with(|| now.saturating_duration_since(*from));
                }
            }
            Route::Direct => {
                let loss = self.counts.losses;
                let known = self.outage.map_or(0, |(loss, ..)| loss);
                if let Some(heard) = self.heard.filter(|_| loss > known) {
                    let switched = now.saturating_duration_since(heard);
                    let away = None;
                    self.outage = Some((loss, now, Outage { switched, away }));
                }
            }
            Route::Wait(_) => {}
        }
    }

    /// An attempt begins.
    pub fn count_attempt(&mut self, route: Route) {
        match route {
            Route::Sidecar | Route::Trial => self.counts.by_sidecar += 1,
            Route::Direct => self.counts.direct += 1,
            Route::Wait(_) => {}
        }
    }

    /// A call is sent again after `ending`.
    pub fn count_again(&mut self, ending: Ending) {
        if ending.may_have_run() {
            self.counts.repeated += 1;
        } else {
            self.counts.moved += 1;
        }
    }

    /// What is thought of the sidecar.
    #[must_use]
    pub fn sidecar(&self, now: Instant) -> Sidecar {
        match self.link {
            Link::Absent => Sidecar::Absent,
            Link::Connecting { .. } => Sidecar::Connecting,
            Link::Up { .. } => Sidecar::Up,
            Link::Returning(ramp) if ramp.share(now) >= 1.0 => Sidecar::Up,
            Link::Returning(ramp) => Sidecar::Returning(ramp.share(now)),
            Link::Down(cause) => Sidecar::Down(cause),
        }
    }

    /// The services that do not simply go by the sidecar, with the share that does.
    pub fn services(&self, now: Instant) -> impl Iterator<Item = (&ServiceKey, f64)> {
        let all = self.services.iter();
        all.map(move |(key, service)| match service.step {
            Step::Direct { .. } | Step::Trial { .. } => (key, 0.0),
            Step::Returning(ramp) => (key, ramp.share(now)),
        })
        .filter(|(_, share)| *share < 1.0)
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The last time that the sidecar was lost, once a call was answered direct.
    #[must_use]
    pub fn outage(&self) -> Option<Outage> {
        self.outage.map(|(.., outage)| outage)
    }

    /// The sidecar cannot reach a service. Whether that was news.
    fn unavailable(&mut self, now: Instant, rng: &mut Rng, key: &ServiceKey) -> bool {
        let failures = match self.services.get(key) {
            // Calls that were on their way when the first of them came back.
            Some(Service {
                step: Step::Direct { .. },
                ..
            }) => return false,
            Some(service) => service.failures.saturating_add(1),
            None => 1,
        };
        self.counts.switches += u64::from(failures == 1);
        let pause = doubled(self.timing.trial_min, failures - 1, self.timing.trial_max);
        let step = Step::Direct {
            trial_at: now + spread(pause, rng),
        };
        self.services
            .insert(key.clone(), Service { failures, step });
        failures == 1
    }

    /// The sidecar reaches a service again.
    fn served(&mut self, now: Instant, rng: &mut Rng, key: &ServiceKey) {
        let pause = self.timing.jitter.mul_f64(rng.f64());
        let ramp = self.ramp(now + pause);
        if let Some(service) = self.services.get_mut(key)
            && matches!(service.step, Step::Trial { .. })
        {
            service.step = Step::Returning(ramp);
        }
    }

    fn route_service(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        key: &ServiceKey,
        answered: Answered,
        known: impl FnOnce() -> bool,
    ) -> Route {
        let Some(service) = self.services.get_mut(key) else {
            return Route::Sidecar;
        };
        if !known() {
            return Route::Sidecar;
        }
        match service.step {
            Step::Direct { trial_at: at } | Step::Trial { until: at }
                if now >= at && answered == Answered::Once =>
            {
                let until = now + self.timing.trial_max;
                service.step = Step::Trial { until };
                Route::Trial
            }
            Step::Direct { .. } | Step::Trial { .. } => Route::Direct,
            Step::Returning(ramp) if ramp.share(now) >= 1.0 => {
                self.services.remove(key);
                Route::Sidecar
            }
            Step::Returning(ramp) if ramp.takes(now, rng, answered) => Route::Sidecar,
            Step::Returning(_) => Route::Direct,
        }
    }

    /// The link, with a return that is over taken for what it is.
    fn link_at(&mut self, now: Instant) -> Link {
        if let Link::Returning(ramp) = self.link
            && ramp.share(now) >= 1.0
        {
            self.counts.returns += 1;
            self.link = Link::Up { since: ramp.until };
        }
        self.link
    }

    fn ramp(&self, from: Instant) -> Ramp {
        let until = from + self.timing.ramp;
        Ramp { from, until }
    }

    fn redial(&mut self, now: Instant, rng: &mut Rng) {
        // One that answers and falls, again and again, is left alone as one that does not answer.
        let times = self.dials.max(self.losses.saturating_sub(1));
        let pause = doubled(self.timing.redial_min, times, self.timing.redial_max);
        self.dials = self.dials.saturating_add(1);
        self.dial_at = now + spread(pause, rng);
    }
}

impl Ramp {
    fn share(self, now: Instant) -> f64 {
        if now >= self.until {
            return 1.0;
        }
        let passed = now.saturating_duration_since(self.from);
        passed.as_secs_f64() / (self.until - self.from).as_secs_f64()
    }

    fn takes(self, now: Instant, rng: &mut Rng, answered: Answered) -> bool {
        answered == Answered::Once && rng.f64() < self.share(now)
    }
}

fn doubled(pause: Duration, times: u32, max: Duration) -> Duration {
    let factor = 1u32.checked_shl(times).unwrap_or(u32::MAX);
    pause.saturating_mul(factor).min(max)
}

/// Half to one and a half of a pause.
pub(crate) fn spread(pause: Duration, rng: &mut Rng) -> Duration {
    pause.mul_f64(0.5 + rng.f64())
}
