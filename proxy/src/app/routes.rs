//! What the shards know of services, kept as the configuration and the names of providers say.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::sync::mpsc;

use crate::{
    admin::Levels,
    config::{self, Config},
    mesh::{Mesh, Name, Resolved, Route},
    metrics,
    model::{Address, Service},
    shard::Shards,
    upstream::resolve::Names,
};

/// What the mesh knows, kept as the configuration and the names say.
pub(super) struct Routes {
    mesh: Arc<Mesh>,
    shards: Arc<Shards>,
    names: Names,
    shown: Arc<ArcSwap<Config>>,
    levels: Levels,
    reloads: metrics::Reloads,
}

impl Routes {
    /// Nothing is told yet.
    pub(super) fn new(
        mesh: Arc<Mesh>,
        shards: Arc<Shards>,
        shown: Arc<ArcSwap<Config>>,
        levels: Levels,
        reloads: metrics::Reloads,
    ) -> Self {
        Self {
            mesh,
            shards,
            names: Names::default(),
            shown,
            levels,
            reloads,
        }
    }

    /// Tells the shards the services of the configuration: with all addresses if names are
    /// resolved in time, else with those that are known.
    pub(super) async fn begin(&mut self, config: &Config) {
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
    pub(super) async fn keep(mut self, file: PathBuf, mut config: Arc<Config>) {
        let (update, mut updates) = mpsc::channel(1);
        tokio::spawn(config::watch(file, Arc::clone(&config), update));
        let mut again = tokio::time::interval(config.limits.resolve_interval);
        again.tick().await;
        loop {
            tokio::select! {
                Some(update) = updates.recv() => match update {
                    Ok(new) => {
                        self.reloads.done.inc();
                        self.show(&new);
                        config = new;
                    }
                    // The watcher has reported it; the configuration before stays.
                    Err(_) => {
                        self.reloads.refused.inc();
                        continue;
                    }
                },
                _ = again.tick() => {}
            }
            self.names.refresh(addresses(&config)).await;
            self.tell(&config).await;
        }
    }

    /// Lets the admin show a new configuration, and the log follow it.
    fn show(&self, new: &Arc<Config>) {
        if let Err(error) = self.levels.set(&new.logging.level) {
            tracing::warn!(error, "the level of the log stays as it was");
        }
        self.shown.store(Arc::clone(new));
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
                addresses.into_iter().filter(ours).map(|address| Resolved {
                    address,
                    weight: endpoint.weight,
                    mesh: endpoint.mesh,
                    direct: endpoint.direct,
                })
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
                .map(|address| Resolved {
                    address,
                    weight: 100,
                    mesh: false,
                    direct: None,
                });
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

/// Time that names of providers have before the first connection is accepted.
const FIRST_LOOKUP: Duration = Duration::from_secs(2);
