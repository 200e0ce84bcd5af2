//! The composition root: builds the parts, runs them, and ends them in order.
//!
//! The main thread discovers and tells proxies; a thread of its own serves HTTP, so that a long list
//! costs nobody who waits for a change; the registry's own writes.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{Ads, Discovery, api, config, config::Config, incoming};
use crate::{
    logging,
    registry::embedded::{Embedded, StartError},
    server,
};

/// A pilot whose registry is open and whose addresses are bound.
#[derive(Debug)]
pub struct App {
    config: Config,
    registry: Arc<Embedded>,
    xds: TcpListener,
    http: TcpListener,
}

/// Why a pilot did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The log cannot be set up.
    #[error("cannot log: {0}")]
    Log(String),
    /// An address cannot be had.
    #[error("{0}")]
    Bind(String),
    /// There is no registry.
    #[error("registries[0]")]
    Registry(#[from] StartError),
    /// Proxies cannot be listened for any more.
    #[error("xds: {0}")]
    Serve(#[source] tonic::transport::Error),
    /// A thread or a runtime cannot be made.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// Runs the pilot that `file` describes, until it is told to end.
///
/// # Errors
/// If it cannot start; nothing is left behind then but the file of its registry.
pub fn run(file: &Path) -> Result<(), Error> {
    let config = Config::load(file)?;
    logging::install(&config.log_level, io::stderr).map_err(Error::Log)?;
    incoming::lift_files();
    let app = App::new(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // For whoever let the system choose the port.
        println!("xds listening on {}", app.xds()?);
        println!("http listening on {}", app.http()?);
        app.serve().await
    })
}

impl App {
    /// Opens the registry and binds the addresses.
    ///
    /// # Errors
    /// If one of them cannot be had.
    pub fn new(config: Config) -> Result<Self, Error> {
        let xds = server::bind("xds.listen", config.xds.listen).map_err(Error::Bind)?;
        let http = server::bind("http.listen", config.http.listen).map_err(Error::Bind)?;
        let registry = Arc::new(Embedded::open(&config.registry)?);
        Ok(Self {
            config,
            registry,
            xds,
            http,
        })
    }

    /// Where proxies are listened for.
    ///
    /// # Errors
    /// Of the socket.
    pub fn xds(&self) -> io::Result<SocketAddr> {
        self.xds.local_addr()
    }

    /// Where the HTTP listens.
    ///
    /// # Errors
    /// Of the socket.
    pub fn http(&self) -> io::Result<SocketAddr> {
        self.http.local_addr()
    }

    /// Serves until a signal ends it. What was answered then is in the registry's file.
    ///
    /// # Errors
    /// If there is no thread to be had, or nothing can be waited for.
    pub async fn serve(self) -> Result<(), Error> {
        let Self {
            config,
            registry,
            xds,
            http,
        } = self;
        // Before anybody can see that we serve.
        let (mut terminate, mut interrupt) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        // A terminal that closes, or somebody who means a proxy: there is nothing to read again.
        let _hangup = signal(SignalKind::hangup())?;
        let discovery = Discovery::new(Arc::<Embedded>::clone(&registry));
        let started = Instant::now().into_std();
        let stop = CancellationToken::new();
        let ads = Ads::new(discovery.clone(), stop.clone());
        let state = api::State::new(
            Arc::clone(&registry),
            discovery.clone(),
            ads.clients().clone(),
            started,
        );
        let pages = api::router(state, config.http.token);
        let (running, ended) = watch::channel(());
        let http = spawn("http", server::serve(http, pages), ended)?;
        let xds = tokio::net::TcpListener::from_std(xds)?;
        let mut proxies = tokio::spawn(ads.serve(xds, config.xds.token));
        tracing::info!(registry = %config.registry.display(), "serving");
        let failed = tokio::select! {
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            () = discovery.run() => None,
            failed = &mut proxies => Some(failed),
        };
        tracing::info!("ending");
        // Every stream ends, so that its proxy turns to another pilot.
        stop.cancel();
        let served = match failed {
            Some(failed) => failed,
            None => timeout(LAST_STREAMS, proxies).await.unwrap_or(Ok(Ok(()))),
        };
        drop(running);
        if http.join().is_err() {
            tracing::error!("the HTTP server failed");
        }
        // The last one: it writes what it was asked to, and closes its file.
        drop(registry);
        served.map_err(io::Error::other)?.map_err(Error::Serve)
    }
}

/// Runs `task` on a thread of its own, until it ends or nobody holds the other end of `ended`.
fn spawn<T, E: std::fmt::Display>(
    name: &'static str,
    task: impl Future<Output = Result<T, E>> + Send + 'static,
    mut ended: watch::Receiver<()>,
) -> io::Result<thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let until = async move {
        tokio::select! {
            Err(error) = task => tracing::error!(name, %error, "a server failed"),
            _ = ended.changed() => {}
        }
    };
    thread::Builder::new()
        .name(name.into())
        .spawn(move || runtime.block_on(until))
}

/// Time that streams have to end.
const LAST_STREAMS: Duration = Duration::from_secs(2);
