//! What the calls and the tasks of a client share, behind one short lock.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dubbo_proto::key::ServiceKey;
use fastrand::Rng;
use tokio::sync::Notify;

use crate::client::State;
use crate::connection::Connection;
use crate::error::Code;
use crate::failover::{self, Answered, Cause, Ending, Failover, Next, Route};
use crate::pool::Pool;
use crate::roster::Roster;
use crate::time::now;

/// What calls and tasks share.
pub(crate) struct Shared {
    known: Mutex<Known>,
    /// The sidecar was proven or lost, or providers became known.
    changed: Notify,
}

struct Known {
    failover: Failover,
    rng: Rng,
    roster: Roster,
    pool: Pool,
    sidecar: Option<(u64, Connection)>,
}

/// What to do with a call now.
pub(crate) enum Choice {
    /// Send it.
    Send(Way),
    /// Wait for a change, until then at most.
    Wait(Option<Instant>),
    /// There is nobody left to send it to.
    Nowhere,
}

/// A way to send a call.
#[derive(Debug)]
pub(crate) struct Way {
    /// By the sidecar, or direct.
    pub(crate) route: Route,
    pub(crate) connection: Connection,
    /// The provider, if it goes direct.
    pub(crate) provider: Option<SocketAddr>,
}

impl Shared {
    /// What is known at the beginning.
    pub(crate) fn new(failover: Failover, rng: Rng, roster: Roster, pool: Pool) -> Self {
        Self {
            known: Mutex::new(Known {
                failover,
                rng,
                roster,
                pool,
                sidecar: None,
            }),
            changed: Notify::new(),
        }
    }

    /// What is known now, for whoever asks.
    pub(crate) fn state(&self) -> State {
        let time = now();
        let mut known = self.known();
        let services = known.failover.services(time);
        let services = services.map(|(key, share)| (key.to_string(), share));
        State {
            services: services.collect(),
            sidecar: known.failover.sidecar(time),
            counts: known.failover.counts(),
            outage: known.failover.outage(),
            providers: known.pool.sweep(time),
        }
    }

    /// What to do with a call of `key` that has tried these providers.
    pub(crate) fn choose(
        &self,
        now: Instant,
        key: &ServiceKey,
        answered: Answered,
        next: Next,
        tried: &[SocketAddr],
    ) -> Choice {
        let mut known = self.known();
        let known = &mut *known;
        loop {
            let left = || known.roster.has_other(key, tried);
            let route = match next {
                Next::Direct => Route::Direct,
                Next::Sidecar if known.sidecar.is_some() => Route::Sidecar,
                _ => {
                    let rng = &mut known.rng;
                    known.failover.route(now, rng, key, answered, left)
                }
            };
            let (connection, provider) = match (route, &known.sidecar) {
                (Route::Wait(until), _) => return Choice::Wait(until),
                (Route::Direct, _) => {
                    let providers = known.roster.providers(key).map_or(&[][..], |all| all);
                    let rng = &mut known.rng;
                    let picked = known.pool.pick(now, rng, key, providers, tried);
                    let Some(address) = picked else {
                        return Choice::Nowhere;
                    };
                    (known.pool.connection(now, address), Some(address))
                }
                (_, Some((epoch, connection))) => match connection.cause() {
                    None => (connection.clone(), None),
                    // Whoever keeps the link has not been told yet.
                    Some(cause) => {
                        let epoch = *epoch;
                        known.lose(now, epoch, cause);
                        continue;
                    }
                },
                (_, None) => return Choice::Wait(None),
            };
            known.failover.count_attempt(route);
            return Choice::Send(Way {
                route,
                connection,
                provider,
            });
        }
    }

    /// A call was answered by whoever serves it.
    pub(crate) fn heard(&self, now: Instant, route: Route) {
        self.known().failover.heard(now, route);
    }

    /// An attempt was answered: by the mesh with `code`, or by a provider.
    pub(crate) fn answered(
        &self,
        now: Instant,
        key: &ServiceKey,
        route: Route,
        code: Option<Code>,
    ) {
        let mut known = self.known();
        let known = &mut *known;
        // Without providers there is nothing to switch to.
        if known.roster.providers(key).is_some()
            && known
                .failover
                .answered(now, &mut known.rng, key, route, code)
        {
            tracing::warn!(service = %key, ?code, "the sidecar does not reach a service: direct");
        }
    }

    /// Whether providers are left that a call has not tried.
    pub(crate) fn has_other(&self, key: &ServiceKey, tried: &[SocketAddr]) -> bool {
        self.known().roster.has_other(key, tried)
    }

    /// When a call may go once more to its providers.
    pub(crate) fn again_at(&self, now: Instant, rounds: u32) -> Instant {
        let mut known = self.known();
        let known = &mut *known;
        known.failover.again_at(now, &mut known.rng, rounds)
    }

    /// A call is sent again.
    pub(crate) fn again(&self, ending: Ending) {
        self.known().failover.count_again(ending);
    }

    /// A provider could not be reached.
    pub(crate) fn avoid(&self, now: Instant, provider: SocketAddr) {
        self.known().pool.avoid(now, provider);
    }

    /// Resolves at the next change. To be enabled before looking.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// When to connect to the sidecar.
    pub(crate) fn dial_at(&self) -> Instant {
        self.known().failover.dial_at()
    }

    /// A connection to the sidecar was proven.
    pub(crate) fn proven(&self, connection: Connection) -> u64 {
        let mut known = self.known();
        let known = &mut *known;
        let epoch = known.failover.proven(now(), &mut known.rng);
        known.sidecar = Some((epoch, connection));
        tracing::info!("the sidecar answers");
        self.changed.notify_waiters();
        epoch
    }

    /// A proven connection to the sidecar takes no calls any more.
    pub(crate) fn lost(&self, epoch: u64, cause: Cause) {
        self.known().lose(now(), epoch, cause);
        self.changed.notify_waiters();
    }

    /// A connection to the sidecar was never proven.
    pub(crate) fn unproven(&self, cause: Cause) {
        let mut known = self.known();
        let known = &mut *known;
        known.failover.unproven(now(), &mut known.rng, cause);
        self.changed.notify_waiters();
    }

    /// Changes the roster.
    pub(crate) fn learn<T>(&self, change: impl FnOnce(&mut Roster) -> T) -> T {
        let result = change(&mut self.known().roster);
        self.changed.notify_waiters();
        result
    }

    /// Half to one and a half of a pause.
    pub(crate) fn spread(&self, pause: Duration) -> Duration {
        failover::spread(pause, &mut self.known().rng)
    }

    /// Never held over an await.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn lose(&mut self, now: Instant, epoch: u64, cause: Cause) {
        self.sidecar.take_if(|(current, _)| *current == epoch);
        if self.failover.lost(now, &mut self.rng, epoch, cause) {
            tracing::warn!(?cause, "the sidecar is lost: direct");
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
