//! The client: what an application holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dubbo_proto::key::{self, ServiceKey};
use dubbo_proto::mux::link::Timing as Heartbeats;
use fastrand::Rng;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::call::Call;
use crate::connection::{Connection, Options};
use crate::error::Code;
use crate::failover::{Cause, Counts, Ending, Failover, Next, Route, Sidecar, Timing};
use crate::http::Token;
use crate::pool::Pool;
use crate::roster::{self, Roster};
use crate::time::now;
use crate::{declaration, http, sidecar};

/// Calls services, by way of the sidecar while that is well. Clones are the same client; when the
/// last one is dropped, its connections close.
#[derive(Clone)]
pub struct Client {
    tasks: Arc<Tasks>,
}

/// Makes a [`Client`]. Every address has a default that fits a sidecar with defaults.
#[derive(Debug, Clone)]
pub struct Builder {
    sidecar: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    bonder: Option<SocketAddr>,
    roster: Option<PathBuf>,
    providers: Vec<(String, Vec<SocketAddr>)>,
    name: String,
    token: Option<Token>,
    lease: Duration,
    deadline: Duration,
    timing: Timing,
    heartbeats: Heartbeats,
    seed: Option<u64>,
}

/// Why there is no client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A client is a few tasks, which need somebody to run them.
    #[error("a client is made inside a tokio runtime")]
    NoRuntime,
    /// A service of [`Builder::providers`] has no name.
    #[error(transparent)]
    Key(#[from] key::Error),
}

/// What a client thinks of the world.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// What it thinks of the sidecar.
    pub sidecar: Sidecar,
    /// Services that do not simply go by the sidecar, with the share of calls that does, 0 to 1.
    pub services: BTreeMap<String, f64>,
    /// Providers that it has a connection to, or could not reach lately.
    pub providers: usize,
    /// What happened so far.
    pub counts: Counts,
}

struct Tasks {
    shared: Arc<Shared>,
    declared: watch::Sender<BTreeSet<String>>,
    deadline: Duration,
    /// Dropped with the client, which ends them.
    _running: JoinSet<()>,
}

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
    Send {
        /// Which way.
        route: Route,
        /// On which connection.
        connection: Connection,
        /// The provider, if it goes direct.
        provider: Option<SocketAddr>,
    },
    /// Wait for a change, until then at most.
    Wait(Option<Instant>),
    /// There is nobody left to send it to.
    Nowhere,
}

impl Client {
    /// A client of the sidecar of this container, to be configured.
    #[must_use]
    pub fn builder() -> Builder {
        let local = |port| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Builder {
            sidecar: local(15001),
            admin: local(15000),
            bonder: local(15020),
            roster: None,
            providers: Vec::new(),
            name: "thin-sdk".into(),
            token: None,
            lease: Duration::from_secs(60),
            deadline: Duration::from_secs(5),
            timing: Timing::default(),
            heartbeats: Heartbeats {
                heartbeat: Duration::from_secs(1),
                timeout: Duration::from_secs(3),
            },
            seed: None,
        }
    }

    /// Says which services, as `group/interface:version`, this process is going to call, so that
    /// the first call finds them there. Adds to what was declared before.
    ///
    /// Returns at once: bonder is told in the background, again and again until it has heard.
    ///
    /// # Errors
    /// A malformed key; then nothing is declared.
    pub fn declare<K: AsRef<str>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<(), key::Error> {
        let keys: BTreeSet<String> = keys
            .into_iter()
            .map(|key| Ok(key.as_ref().parse::<ServiceKey>()?.to_string()))
            .collect::<Result<_, _>>()?;
        self.tasks.declared.send_if_modified(|declared| {
            let before = declared.len();
            declared.extend(keys);
            declared.len() > before
        });
        Ok(())
    }

    /// A call of `method` of `service`, which is `group/interface:version`.
    pub fn call(&self, service: &str, method: &str) -> Call {
        let shared = Arc::clone(&self.tasks.shared);
        Call::new(shared, service, method, self.tasks.deadline)
    }

    /// What the client thinks of the world now.
    #[must_use]
    pub fn state(&self) -> State {
        let time = now();
        let mut known = self.tasks.shared.known();
        let services = known.failover.services(time);
        let services = services.map(|(key, share)| (key.to_string(), share));
        State {
            services: services.collect(),
            sidecar: known.failover.sidecar(time),
            counts: known.failover.counts(),
            providers: known.pool.sweep(time),
        }
    }
}

impl Builder {
    /// Where the sidecar takes calls. Default `127.0.0.1:15001`.
    #[must_use]
    pub fn sidecar(mut self, address: SocketAddr) -> Self {
        self.sidecar = Some(address);
        self
    }

    /// Where the sidecar tells the addresses of providers. Default `127.0.0.1:15000`; `None`: it is
    /// not asked.
    #[must_use]
    pub fn admin(mut self, address: Option<SocketAddr>) -> Self {
        self.admin = address;
        self
    }

    /// Where bonder takes declarations. Default `127.0.0.1:15020`; `None`: it is not told.
    #[must_use]
    pub fn bonder(mut self, address: Option<SocketAddr>) -> Self {
        self.bonder = address;
        self
    }

    /// No sidecar, nor what belongs to it: every call goes direct, to [`Self::providers`].
    #[must_use]
    pub fn direct(mut self) -> Self {
        (self.sidecar, self.admin, self.bonder) = (None, None, None);
        self
    }

    /// A file to keep the addresses of providers in, so that a process that starts while the
    /// sidecar is broken knows some. Default: they are kept in memory alone.
    #[must_use]
    pub fn roster(mut self, file: impl Into<PathBuf>) -> Self {
        self.roster = Some(file.into());
        self
    }

    /// Providers of a service, until others are learned.
    #[must_use]
    pub fn providers(
        mut self,
        service: impl Into<String>,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        let addresses = addresses.into_iter().collect();
        self.providers.push((service.into(), addresses));
        self
    }

    /// How this process is called where bonder lists it. Default `thin-sdk`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The token of the sidecar's admin, if it wants one. Default: none. Never printed.
    #[must_use]
    pub fn admin_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Token(token.into()));
        self
    }

    /// How long bonder remembers a declaration without hearing it again; it is told several
    /// times as often. At least a second. Default 60 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_secs(1));
        self
    }

    /// How long a call may take that does not say it itself. Default 5 s.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// When to leave the sidecar and how to come back.
    #[must_use]
    pub fn failover(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// How often the sidecar is asked for a sign of life, and after how long a silence it counts
    /// as dead. Default 1 s and 3 s.
    #[must_use]
    pub fn heartbeats(mut self, every: Duration, dead_after: Duration) -> Self {
        self.heartbeats = Heartbeats {
            heartbeat: every,
            timeout: dead_after,
        };
        self
    }

    /// The seed of jitter and of where turns begin, to make a test repeatable. Default: another
    /// one in each process.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the client. It connects in the background; calls wait for it.
    ///
    /// # Errors
    /// Outside of a tokio runtime, or with a malformed service key.
    pub fn build(self) -> Result<Client, BuildError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let mut roster = self.roster.as_deref().map(Roster::load).unwrap_or_default();
        for (service, addresses) in self.providers {
            let key: ServiceKey = service.parse()?;
            if roster.providers(&key).is_none() {
                roster.set(key, addresses);
            }
        }
        let to_provider = Options {
            connect: CONNECT,
            timing: Heartbeats::default(),
            idle: self.sidecar.map(|_| IDLE),
        };
        let shared = Arc::new(Shared {
            known: Mutex::new(Known {
                failover: Failover::new(now(), self.timing, self.sidecar.is_some()),
                rng: self.seed.map_or_else(Rng::new, Rng::with_seed),
                roster,
                pool: Pool::new(to_provider),
                sidecar: None,
            }),
            changed: Notify::new(),
        });
        let (declared, declarations) = watch::channel(BTreeSet::new());
        let mut running = JoinSet::new();
        if let Some(address) = self.sidecar {
            let options = Options {
                connect: CONNECT,
                timing: self.heartbeats,
                idle: None,
            };
            let task = sidecar::keep(Arc::clone(&shared), address, options);
            running.spawn_on(task, &runtime);
        }
        if let Some(admin) = self.admin {
            let admin = http::Peer {
                address: admin,
                token: self.token,
            };
            let task = roster::follow(Arc::clone(&shared), admin, self.roster);
            running.spawn_on(task, &runtime);
        }
        if let Some(bonder) = self.bonder {
            let bonder = http::Peer {
                address: bonder,
                token: None,
            };
            let shared = Arc::clone(&shared);
            let task = declaration::keep(shared, bonder, self.name, self.lease, declarations);
            running.spawn_on(task, &runtime);
        }
        let tasks = Tasks {
            shared,
            declared,
            deadline: self.deadline,
            _running: running,
        };
        Ok(Client {
            tasks: Arc::new(tasks),
        })
    }
}

impl Shared {
    /// What to do with a call of `key` that has tried these providers.
    pub(crate) fn choose(
        &self,
        now: Instant,
        key: &ServiceKey,
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
                _ => known.failover.route(now, &mut known.rng, key, left),
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
            return Choice::Send {
                route,
                connection,
                provider,
            };
        }
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
        pause.mul_f64(0.5 + self.known().rng.f64())
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

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("state", &self.state())
            .finish()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(1);
/// How long a connection to a provider stays that is not used: long after the sidecar is back.
const IDLE: Duration = Duration::from_secs(30);
