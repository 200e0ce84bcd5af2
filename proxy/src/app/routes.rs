//! What the shards know of services, kept as the configuration and the names of providers say.

use std::{
    collections::HashSet, net::SocketAddr, path::PathBuf, pin::pin, sync::Arc, time::Duration,
};

use arc_swap::ArcSwap;
use tokio::sync::mpsc;

use crate::{
    admin::Levels,
    config::{self, Config},
    mesh::{Change, Fact, Mesh, Name, Owner, Resolved, Route},
    metrics,
    model::{Address, Profile, Service},
    shard::Shards,
    upstream::resolve::Names,
    xds::client::News,
};

/// What the mesh knows, kept as the configuration and the names say.
pub(super) struct Routes {
    mesh: Arc<Mesh>,
    shards: Arc<Shards>,
    names: Names,
    /// What stands in the configuration.
    fixed: HashSet<Name>,
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
            fixed: HashSet::new(),
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

    /// Tells the shards what changed of the configuration.
    async fn tell(&mut self, config: &Config) {
        let routes = self.routes(config);
        let names = routes.iter().map(|(name, _)| name.clone()).collect();
        let before = std::mem::replace(&mut self.fixed, names);
        let gone = before.difference(&self.fixed);
        let gone = gone.filter_map(|name| self.mesh.remove(Owner::Static, name));
        let set = routes.into_iter().filter_map(|(name, route)| {
            let fact = Fact::Route(route);
            self.mesh.set(Owner::Static, name, fact)
        });
        let changes: Vec<_> = gone.chain(set).collect();
        if !changes.is_empty() {
            self.shards.apply(changes).await;
        }
    }

    /// Follows the configuration, the names of providers and the control plane. Never ends.
    pub(super) async fn keep(
        mut self,
        file: PathBuf,
        mut config: Arc<Config>,
        mut news: mpsc::Receiver<Vec<News>>,
    ) {
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
                Some(news) = news.recv() => {
                    self.learn(&config, news).await;
                    continue;
                }
                _ = again.tick() => {}
            }
            self.look_up(&config, &mut news).await;
            self.tell(&config).await;
        }
    }

    /// Looks names up, and goes on telling what the control plane says meanwhile.
    async fn look_up(&mut self, config: &Config, news: &mut mpsc::Receiver<Vec<News>>) {
        let mut names = std::mem::take(&mut self.names);
        {
            let mut lookups = pin!(names.refresh(addresses(config)));
            loop {
                tokio::select! {
                    () = &mut lookups => break,
                    Some(news) = news.recv() => self.learn(config, news).await,
                }
            }
        }
        self.names = names;
    }

    /// Tells the shards what the control plane says.
    pub(super) async fn learn(&self, config: &Config, news: Vec<News>) {
        let callable = callable(config);
        let change = |news| match news {
            News::Present(service) => {
                let resolved = service.endpoints.iter().filter_map(|endpoint| {
                    let Address::Ip(address) = endpoint.address else {
                        return None;
                    };
                    let profile = endpoint.profile;
                    callable(&address).then_some(Resolved { address, profile })
                });
                let resolved: Vec<_> = resolved.collect();
                let name = Name::Key(service.key.clone());
                let route = Fact::Route(self.mesh.route(service, &resolved));
                self.mesh.set(Owner::Learned, name, route)
            }
            News::Absent(key) => {
                let name = Name::Key(key);
                let change = self.mesh.set(Owner::Learned, name.clone(), Fact::Absent);
                // A shard that asks has not heard it.
                change.or_else(|| self.mesh.now(&name))
            }
            News::Forgotten(key) => {
                let name = Name::Key(key);
                // One that was never answered is nothing to the mesh, but to a shard that asked.
                let change = self.mesh.remove(Owner::Learned, &name);
                change.or_else(|| self.mesh.now(&name).is_none().then_some(Change::Gone(name)))
            }
        };
        let changes: Vec<_> = news.into_iter().filter_map(change).collect();
        if !changes.is_empty() {
            self.shards.apply(changes).await;
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
        let callable = callable(config);
        let outbound = config.services.iter().map(|service| {
            let weighted = service.endpoints.iter().flat_map(|endpoint| {
                let profile = endpoint.profile;
                let addresses = self.names.resolve(&endpoint.address).into_iter();
                let addresses = addresses.filter(&callable);
                addresses.map(move |address| Resolved { address, profile })
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
            let addresses = self.names.resolve(&inbound.provider).into_iter();
            let hosts = addresses.map(|address| Resolved {
                address,
                profile: Profile::default(),
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

/// Whether an address may be called: our own listener may not.
fn callable(config: &Config) -> impl Fn(&SocketAddr) -> bool {
    let own = config::own_addresses();
    move |address| {
        let outbound = config.outbound.as_ref();
        let ours = outbound.is_some_and(|o| o.is_ours(*address, &own));
        if ours {
            tracing::warn!(%address, "a provider leads to our own listener; left out");
        }
        !ours
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
