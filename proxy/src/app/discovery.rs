//! What the control plane, the file of dependencies and the copy on disk have to do with each other.

use std::{sync::Arc, time::Duration};

use dubbo_proto::key::ServiceKey;
use prometheus::Registry;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::Error;
use crate::{
    admin::Readiness,
    config::{Config, fixed},
    metrics,
    xds::{
        cache::{Cache, Known},
        client::{Client, News, Ways},
        dependencies::{self, Declared},
    },
};

/// Time that the first answers have before the proxy says that it is ready.
const FIRST_ANSWERS: Duration = Duration::from_secs(2);
/// Time for the copy on disk to be written at the end.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// Where news of services come from.
pub(super) struct Discovery {
    client: Option<(Client, mpsc::Receiver<ServiceKey>)>,
    cache: Option<Cache>,
    settled: watch::Receiver<bool>,
    declared: watch::Sender<Declared>,
    /// What is known at once, of the copy on disk.
    pub(super) first: Vec<News>,
    /// What becomes known.
    pub(super) news: mpsc::Receiver<Vec<News>>,
}

impl Discovery {
    /// With what the copy on disk knows. `asks` are the services that calls want to know, where the
    /// configuration names a control plane.
    pub(super) fn new(
        config: &Config,
        asks: Option<mpsc::Receiver<ServiceKey>>,
        usage: metrics::Source,
        shown: Option<metrics::ControlPlane>,
        registry: &Registry,
    ) -> Result<Self, Error> {
        let (sender, news) = mpsc::channel(fixed::NEWS);
        let (settle, settled) = watch::channel(false);
        let file = config.dependencies.as_deref();
        let (declared, declares) = watch::channel(
            file.map(|file| Declared::read(file, config.limits.declared_services))
                .unwrap_or_default(),
        );
        let mut known = Known::default();
        let mut cache = None;
        if let Some(xds) = &config.xds {
            let metrics = metrics::CopyOnDisk::new(registry)?;
            match Cache::open(&xds.cache, config.limits.copied_services, metrics) {
                Ok((opened, found)) => (cache, known) = (Some(opened), found),
                Err(error) => {
                    let folder = xds.cache.display();
                    tracing::warn!(%folder, %error, "no copy on disk of what is known");
                }
            }
        }
        let client = asks.zip(shown).and_then(|(asks, shown)| {
            let ways = Ways {
                declared: declares,
                news: sender,
                settled: settle,
                usage,
                cache: cache.clone(),
                shown,
            };
            let (client, first) = Client::new(config, ways, known)?;
            Some(((client, asks), first))
        });
        let (client, first) = client.unzip();
        Ok(Self {
            client,
            cache,
            settled,
            declared,
            first: first.unwrap_or_default(),
            news,
        })
    }

    /// Starts what runs, and says `ready` once every declared service is known to be there or not,
    /// or has had its time. What is left to be done at the end, and where news come from.
    pub(super) fn start(
        self,
        config: &Arc<Config>,
        ready: Readiness,
        tasks: &mut JoinSet<()>,
    ) -> (LastWrites, mpsc::Receiver<Vec<News>>) {
        match self.client {
            None => ready.set(),
            Some((client, asks)) => {
                tasks.spawn(client.run(asks));
                let mut settled = self.settled;
                tasks.spawn(async move {
                    let first = settled.wait_for(|settled| *settled);
                    if tokio::time::timeout(FIRST_ANSWERS, first).await.is_err() {
                        tracing::warn!("declared services are not known yet; ready without them");
                    }
                    ready.set();
                });
            }
        }
        if let Some(file) = config.dependencies.clone().filter(|_| config.xds.is_some()) {
            tasks.spawn(dependencies::follow(
                file,
                config.limits.declared_services,
                self.declared,
            ));
        }
        (LastWrites(self.cache), self.news)
    }
}

/// What is noted for the copy on disk, and may not be written yet.
pub(super) struct LastWrites(Option<Cache>);

impl LastWrites {
    /// Waits until it is written, within bounds. Blocks.
    pub(super) fn flush(self) {
        if let Some(cache) = self.0
            && !cache.flush(LAST_WRITES)
        {
            tracing::warn!("the copy on disk is not up to date");
        }
    }
}
