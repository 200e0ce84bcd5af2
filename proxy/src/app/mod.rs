//! The composition root: builds the parts, runs them, and ends them in order.

mod discovery;
mod routes;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use dubbo_proto::key::ServiceKey;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
};

use self::{discovery::Discovery, routes::Routes};
use crate::{
    admin::{self, Levels, Readiness},
    config::{self, Config, Listen, fixed},
    drain::{Drain, Phase},
    listener::{self, Acceptor, Bound, Inherited, Keeper},
    mesh::Mesh,
    metrics,
    model::Side,
    policy::balance::Entropy,
    shard::{Common, Shards},
};

/// A proxy whose listeners are bound and whose shards run.
#[derive(Debug)]
pub struct App {
    config: Arc<Config>,
    file: PathBuf,
    mesh: Arc<Mesh>,
    shards: Shards,
    /// Services that calls ask for, where there is a control plane to ask.
    asks: Option<mpsc::Receiver<ServiceKey>>,
    bound: Vec<Bound>,
    admin: TcpListener,
    levels: Levels,
    drain: Drain,
}

/// Why a proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The log cannot be set up.
    #[error("cannot log: {0}")]
    Log(String),
    /// A listener cannot be had.
    #[error(transparent)]
    Listen(#[from] listener::Error),
    /// The admin cannot be bound.
    #[error(transparent)]
    Bind(#[from] config::BindError),
    /// A thread or a runtime cannot be made.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    /// The metrics cannot be registered.
    #[error("cannot register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Runs the proxy that `file` describes, until it is told to end. Where `sockets` is the path of a
/// keeper's socket, that one holds our listening sockets too, and gave us those it held already.
///
/// # Errors
/// If it cannot start; nothing is left behind then.
pub fn run(file: &Path, sockets: Option<&Path>) -> Result<(), Error> {
    let config = Config::load(file)?;
    let levels = Levels::install(&config.logging).map_err(Error::Log)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let app = App::new(file.to_owned(), config, levels, entropy(), sockets)?;
        // For whoever let the system choose the port.
        println!("admin listening on {}", app.admin()?);
        app.serve().await
    })
}

/// Binds what the proxy that `file` describes listens on, and leaves it with the keeper at
/// `sockets`, for the proxy to come.
///
/// # Errors
/// If an address is taken, or there is no keeper; nothing is left behind then.
pub fn bind(file: &Path, sockets: &Path) -> Result<(), Error> {
    let config = Config::load(file)?;
    let _levels = Levels::install(&config.logging).map_err(Error::Log)?;
    listen(&config, Some(sockets))?;
    Ok(())
}

/// Every listener of the configuration, those that a keeper holds included.
fn listen(config: &Config, sockets: Option<&Path>) -> Result<Vec<Bound>, listener::Error> {
    let own = config::own_addresses();
    let Some(path) = sockets else {
        return listener::bind(config, &own, Inherited::default());
    };
    let (keeper, inherited) = Keeper::ask(path)?;
    let mut bound = listener::bind(config, &own, inherited)?;
    keeper.give(&mut bound)?;
    Ok(bound)
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
    /// Binds the listeners and starts the shards, which choose by `random`. `config` is what
    /// `file` says, which is watched while the proxy serves; `levels` is what is logged; `sockets`
    /// is as in [`run`].
    ///
    /// # Errors
    /// If an address is taken, or no thread is to be had.
    pub fn new(
        file: PathBuf,
        config: Config,
        levels: Levels,
        random: Entropy,
        sockets: Option<&Path>,
    ) -> Result<Self, Error> {
        let admin = admin::bind(&config.admin)?;
        let bound = listen(&config, sockets)?;
        let workers = u8::try_from(config.workers.get()).unwrap_or(u8::MAX);
        let mesh = Arc::new(Mesh::new(workers));
        let (asks, asked) = match config.xds {
            Some(_) => Some(mpsc::channel(fixed::ASKS)).unzip(),
            None => (None, None),
        };
        let shards = Shards::start(&Common {
            workers,
            limits: Arc::new(config.limits.clone()),
            default: config.outbound.as_ref().and_then(|o| o.default.clone()),
            quarantine: config.quarantine.clone(),
            mesh: Arc::clone(&mesh),
            random,
            asks,
        })?;
        let (config, drain) = (Arc::new(config), Drain::new());
        Ok(Self {
            config,
            file,
            mesh,
            shards,
            asks: asked,
            bound,
            admin,
            levels,
            drain,
        })
    }

    /// What is bound, with the ports that were chosen for port 0.
    pub fn listeners(&self) -> impl Iterator<Item = (Side, &Listen)> {
        self.bound.iter().map(|bound| (bound.side, &bound.address))
    }

    /// Where the admin listens.
    ///
    /// # Errors
    /// Of the socket.
    pub fn admin(&self) -> io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// The handle to end it by.
    #[must_use]
    pub fn drain(&self) -> Drain {
        self.drain.clone()
    }

    /// Serves until a signal or the admin ends it.
    ///
    /// # Errors
    /// If there is no thread to be had, or nothing can be waited for.
    pub async fn serve(self) -> Result<(), Error> {
        let Self {
            config,
            file,
            mesh,
            shards,
            asks,
            bound,
            admin,
            levels,
            drain,
        } = self;
        let registry = prometheus::Registry::new();
        let shown = Arc::new(ArcSwap::new(Arc::clone(&config)));
        let ready = Readiness::default();
        let control_plane = match config.xds {
            Some(_) => Some(metrics::ControlPlane::new(&registry)?),
            None => None,
        };
        let name = |bound: &Bound| (bound.side.as_str(), bound.address.clone());
        let admin = admin::start(
            admin,
            admin::State {
                config: Arc::clone(&shown),
                shards: metrics::Shards::new(shards.source(), &registry)?,
                requests: metrics::AdminRequests::new(&registry)?,
                ready: ready.clone(),
                drain: drain.clone(),
                listeners: bound.iter().map(name).collect(),
                levels: levels.clone(),
                failover: admin::Failover::default(),
                control_plane: control_plane.clone(),
                started: now(),
                registry: registry.clone(),
            },
        )?;
        let counters = metrics::Listeners::new(&registry)?;
        let acceptor = Acceptor::new(bound, shards.accepted(), &config.limits, counters)?;
        let usage = shards.source();
        let mut discovery = Discovery::new(&config, asks, usage, control_plane, &registry)?;
        let shards = Arc::new(shards);
        let reloads = metrics::Reloads::new(&registry)?;
        let mut routes = Routes::new(mesh, Arc::clone(&shards), shown, levels, reloads);
        // Whoever connects finds the services there: no call is refused because we just started.
        routes.begin(&config).await;
        routes
            .learn(&config, std::mem::take(&mut discovery.first))
            .await;
        let mut tasks = JoinSet::new();
        let (writes, news) = discovery.start(&config, ready, &mut tasks);
        tasks.spawn(acceptor.run(drain.clone()));
        tasks.spawn(routes.keep(file, Arc::clone(&config), news));
        tasks.spawn(signals(drain.clone())?);
        end(&drain, &config, &shards).await;
        tasks.shutdown().await;
        writes.flush();
        if let Ok(shards) = Arc::try_unwrap(shards) {
            shards.stop();
        }
        if admin.join().is_err() {
            tracing::error!("the admin failed");
        }
        Ok(())
    }
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
    let told = drain
        .pass(Phase::StopAccepting, bound, shards.drain(time))
        .await;
    let finished = async {
        if let Some(closed) = told {
            closed.await;
        }
    };
    drain.pass(Phase::FinishCalls, bound, finished).await;
    drain.pass(Phase::CloseUpstreams, bound, async {}).await;
    drain.pass(Phase::Flush, bound, async {}).await;
    drain.pass(Phase::Ended, bound, async {}).await;
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time of the start, for the admin to show"
)]
fn now() -> Instant {
    Instant::now()
}
