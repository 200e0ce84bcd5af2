//! How a client is made.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dubbo_proto::key::{self, ServiceKey};
use dubbo_proto::mux::link::Timing as Heartbeats;
use fastrand::Rng;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::connection::Options;
use crate::declaration::{self, Declarations};
use crate::failover::{Failover, Timing};
use crate::http::{Peer, Token};
use crate::pool::Pool;
use crate::roster::{self, Roster};
use crate::shared::Shared;
use crate::sidecar;
use crate::time::now;

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

impl Builder {
    pub(crate) fn new() -> Self {
        let local = |port| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Self {
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

    /// How often the sidecar, and each provider while calls go direct, is asked for a sign of life,
    /// and after how long a silence it counts as dead. Default 1 s and 3 s.
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
            timing: self.heartbeats,
            idle: self.sidecar.map(|_| IDLE),
        };
        let failover = Failover::new(now(), self.timing, self.sidecar.is_some());
        let rng = self.seed.map_or_else(Rng::new, Rng::with_seed);
        let shared = Arc::new(Shared::new(failover, rng, roster, Pool::new(to_provider)));
        let mut declarations = Declarations::default();
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
            let admin = Peer {
                address: admin,
                token: self.token,
            };
            let task = roster::follow(Arc::clone(&shared), admin, self.roster);
            running.spawn_on(task, &runtime);
        }
        if let Some(bonder) = self.bonder {
            declarations = Declarations::of(bonder, &self.name, self.lease);
            let bonder = Peer {
                address: bonder,
                token: None,
            };
            let shared = Arc::clone(&shared);
            let task = declaration::keep(shared, bonder, self.name, declarations.follow());
            running.spawn_on(task, &runtime);
        }
        Ok(Client::new(shared, declarations, self.deadline, running))
    }
}

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(1);
/// How long a connection to a provider stays that is not used: long after the sidecar is back.
const IDLE: Duration = Duration::from_secs(30);
