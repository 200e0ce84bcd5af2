//! The composition root: builds the parts, runs them, and ends them in order.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    config::{self, Config, Listen},
    drain::{Drain, Phase},
    listener::{self, Acceptor, Bound},
    mesh::{Mesh, Name, Route},
    metrics,
    model::{Address, Service, Side},
    policy::balance::Entropy,
    shard::{Common, Shards},
    upstream::resolve::Names,
};

/// A proxy whose listeners are bound and whose shards run.
#[derive(Debug)]
pub struct App {
    config: Arc<Config>,
    file: PathBuf,
    mesh: Arc<Mesh>,
    shards: Shards,
    bound: Vec<Bound>,
    drain: Drain,
    registry: prometheus::Registry,
}

/// Why a proxy did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// A listener cannot be bound.
    #[error(transparent)]
    Bind(#[from] config::BindError),
    /// A thread or a runtime cannot be made.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    /// The metrics cannot be registered.
    #[error("cannot register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Runs the proxy that `file` describes, until it is told to end.
///
/// # Errors
/// If it cannot start; nothing is left behind then.
pub fn run(file: &Path) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async { App::start(file, entropy())?.serve().await })
}

/// Random choices that nobody can foretell.
#[must_use]
pub fn entropy() -> Entropy {
    Arc::new(|| {
        let mut rng = fastrand::Rng::new();
        Box::new(move || rng.u64(..))
    })
}

impl App {
    /// Binds the listeners and starts the shards, which choose by `random`.
    ///
    /// # Errors
    /// If the configuration is wrong or an address is taken.
    pub fn start(file: &Path, random: Entropy) -> Result<Self, Error> {
        let config = Arc::new(Config::load(file)?);
        let bound = listener::bind(&config, &config::own_addresses())?;
        let workers = u8::try_from(config.workers.get()).unwrap_or(u8::MAX);
        let mesh = Arc::new(Mesh::new(workers));
        let shards = Shards::start(&Common {
            workers,
            limits: Arc::new(config.limits.clone()),
            default: config.outbound.as_ref().and_then(|o| o.default.clone()),
            quarantine: config.quarantine.clone(),
            mesh: Arc::clone(&mesh),
            random,
        })?;
        let registry = prometheus::Registry::new();
        let (file, drain) = (file.to_owned(), Drain::new());
        Ok(Self {
            config,
            file,
            mesh,
            shards,
            bound,
            drain,
            registry,
        })
    }

    /// What is bound, with the ports that were chosen for port 0.
    pub fn listeners(&self) -> impl Iterator<Item = (Side, &Listen)> {
        self.bound.iter().map(|bound| (bound.side, &bound.address))
    }

    /// The handle to end it by.
    #[must_use]
    pub fn drain(&self) -> Drain {
        self.drain.clone()
    }

    /// Serves until a signal or the admin ends it.
    ///
    /// # Errors
    /// If the runtime cannot wait for a socket or a signal.
    pub async fn serve(self) -> Result<(), Error> {
        let Self {
            config,
            file,
            mesh,
            shards,
            bound,
            drain,
            registry,
        } = self;
        let listeners = metrics::Listeners::new(&registry)?;
        let mut tasks = JoinSet::new();
        let acceptor = Acceptor::new(bound, shards.accepted(), &config.limits, listeners)?;
        let shards = Arc::new(shards);
        let mut routes = Routes {
            mesh,
            shards: Arc::clone(&shards),
            names: Names::default(),
        };
        // Whoever connects finds the services there: no call is refused because we just started.
        routes.begin(&config).await;
        tasks.spawn(acceptor.run(drain.clone()));
        tasks.spawn(routes.keep(file, Arc::clone(&config)));
        tasks.spawn(signals(drain.clone())?);
        end(&drain, &config, &shards).await;
        tasks.shutdown().await;
        if let Ok(shards) = Arc::try_unwrap(shards) {
            shards.stop();
        }
        Ok(())
    }
}

/// What the mesh knows, kept as the configuration and the names say.
struct Routes {
    mesh: Arc<Mesh>,
    shards: Arc<Shards>,
    names: Names,
}

impl Routes {
    /// Tells the shards the services of the configuration: with all addresses if names are
    /// resolved in time, else with those that are known.
    async fn begin(&mut self, config: &Config) {
        let lookups = self.names.refresh(addresses(config));
        if tokio::time::timeout(FIRST_LOOKUP, lookups).await.is_err() {
            tracing::warn!("names of providers are not resolved yet; serving without them");
        }
        self.tell(config).await;
    }

    /// Tells the shards what changed.
    async fn tell(&self, config: &Config) {
        let changes = self.mesh.replace(self.routes(config));
        if !changes.is_empty() {
            self.shards.apply(changes).await;
        }
    }

    /// Follows the configuration and the names of providers. Never ends.
    async fn keep(mut self, file: PathBuf, mut config: Arc<Config>) {
        let (update, mut updates) = mpsc::channel(1);
        tokio::spawn(config::watch(file, Arc::clone(&config), update));
        let mut again = tokio::time::interval(config.limits.resolve_interval);
        again.tick().await;
        loop {
            tokio::select! {
                Some(update) = updates.recv() => {
                    let Ok(new) = update else { continue };
                    config = new;
                }
                _ = again.tick() => {}
            }
            self.names.refresh(addresses(&config)).await;
            self.tell(&config).await;
        }
    }

    /// Every service of the configuration with the addresses of its providers now.
    fn routes(&self, config: &Config) -> Vec<(Name, Arc<Route>)> {
        let own = config::own_addresses();
        let ours = |address: &SocketAddr| {
            let ours = config
                .outbound
                .as_ref()
                .is_some_and(|o| o.is_ours(*address, &own));
            if ours {
                tracing::warn!(%address, "a provider's name leads to our own listener; left out");
            }
            !ours
        };
        let outbound = config.services.iter().map(|service| {
            let weighted = service.endpoints.iter().flat_map(|endpoint| {
                let addresses = self.names.resolve(&endpoint.address);
                addresses
                    .into_iter()
                    .filter(ours)
                    .map(|address| (address, endpoint.weight))
            });
            let hosts: Vec<_> = weighted.collect();
            let key = service.key.clone();
            let name = if service.wildcard {
                Name::Interface(key)
            } else {
                Name::Key(key)
            };
            (name, self.mesh.route(Arc::clone(service), &hosts))
        });
        let inbound = config.inbound.as_ref().map(|inbound| {
            let hosts = self
                .names
                .resolve(&inbound.provider)
                .into_iter()
                .map(|a| (a, 100));
            let service = Service::new(dubbo_proto::key::ServiceKey::new("", "inbound", ""));
            (
                Name::Inbound,
                self.mesh
                    .route(Arc::new(service), &hosts.collect::<Vec<_>>()),
            )
        });
        outbound.chain(inbound).collect()
    }
}

/// Every address that the configuration names.
fn addresses(config: &Config) -> impl Iterator<Item = &Address> {
    let endpoints = config
        .services
        .iter()
        .flat_map(|s| &s.endpoints)
        .map(|e| &e.address);
    endpoints.chain(config.inbound.as_ref().map(|inbound| &inbound.provider))
}

/// The first signal begins the drain, the second ends it.
fn signals(drain: Drain) -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if !drain.begin() {
                drain.skip();
            }
        }
    })
}

/// Walks through the phases of the end as they are wanted.
async fn end(drain: &Drain, config: &Config, shards: &Shards) {
    let time = config.limits.drain_time;
    // Closing what is left at the end of the time takes a moment more.
    let bound = time + Duration::from_secs(1);
    drain.pass(Phase::NotReady, bound, async {}).await;
    drain.pass(Phase::StopAccepting, bound, async {}).await;
    drain
        .pass(Phase::FinishCalls, bound, shards.drain(time))
        .await;
    drain.pass(Phase::CloseUpstreams, bound, async {}).await;
    drain.pass(Phase::Flush, bound, async {}).await;
    drain.pass(Phase::Ended, bound, async {}).await;
}

/// Time that names of providers have before the first connection is accepted.
const FIRST_LOOKUP: Duration = Duration::from_secs(2);
