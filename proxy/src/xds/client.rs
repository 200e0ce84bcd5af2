//! Keeps what the control plane says: asks for what is declared and for what calls want, tells what
//! is known of it, and keeps the copy on disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use dubbo_proto::key::ServiceKey;
use mesh_proto::{
    names,
    xds::{
        core::Node,
        discovery::DeltaDiscoveryRequest,
        protobuf::{ListValue, Struct, Value, value::Kind},
    },
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    cache::{Cache, Known, Learned},
    dependencies::Declared,
    stream::{self, Event},
    subscription::{Subscription, Update},
    translate::Bounds,
};
use crate::{
    config::{Config, Xds, fixed},
    metrics::{self, Source},
    model::Service,
};

/// What is known of a service from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It is this.
    Present(Arc<Service>),
    /// There is none.
    Absent(ServiceKey),
    /// Nobody asks for it any more.
    Forgotten(ServiceKey),
}

/// What a client is connected to.
#[derive(Debug)]
pub struct Ways {
    /// Services that applications declare.
    pub declared: watch::Receiver<Declared>,
    /// Where news go.
    pub news: mpsc::Sender<Vec<News>>,
    /// Told once every declared service is known to be there or not.
    pub settled: watch::Sender<bool>,
    /// Tells which services are called.
    pub usage: Source,
    /// The copy on disk, if there is one.
    pub cache: Option<Cache>,
    /// What is shown of all this.
    pub shown: metrics::ControlPlane,
}

/// Asks for services and follows what is said of them.
#[derive(Debug)]
pub struct Client {
    xds: Xds,
    identity: (String, String),
    idle: Duration,
    max_message: usize,
    ways: Ways,
    subscription: Subscription,
    declared: Arc<BTreeSet<ServiceKey>>,
    /// Services that are known because of a call, with the calls they had when that was last seen to
    /// change, and when.
    learned: BTreeMap<ServiceKey, Use>,
    /// Services that were in the copy, and of which nothing was heard since.
    cached: BTreeSet<ServiceKey>,
    /// The way to the server, while there is a stream or one is asked for.
    requests: Option<mpsc::Sender<DeltaDiscoveryRequest>>,
    /// The server took the stream.
    open: bool,
    /// Why servers could not be had since they last could, as far as it was said.
    troubles: BTreeMap<SocketAddr, BTreeSet<String>>,
}

#[derive(Debug)]
struct Use {
    calls: u64,
    since: Instant,
}

impl Client {
    /// A client that begins with what the copy knows. `None` if the configuration names no control
    /// plane. What was in the copy is to be told to the mesh at once.
    #[must_use]
    pub fn new(config: &Config, ways: Ways, known: Known) -> Option<(Self, Vec<News>)> {
        let xds = config.xds.as_ref()?;
        let mut client = Self {
            xds: xds.clone(),
            identity: (config.node.id.clone(), config.node.cluster.clone()),
            idle: config.limits.learned_idle,
            max_message: config.limits.xds_message,
            ways,
            subscription: Subscription::new(Bounds::of(&config.limits)),
            declared: Arc::default(),
            learned: BTreeMap::new(),
            cached: BTreeSet::new(),
            requests: None,
            open: false,
            troubles: BTreeMap::new(),
        };
        let mut news = Vec::with_capacity(known.services.len());
        for Learned { service, .. } in known.services {
            client.learn(&service.key);
            client.cached.insert(service.key.clone());
            news.push(News::Present(service));
        }
        client.ways.shown.confirmed(known.confirmed);
        client.declare();
        client.show();
        Some((client, news))
    }

    /// Follows the control plane until nobody hears the news any more. `asks` are the services that
    /// calls want to know.
    pub async fn run(mut self, mut asks: mpsc::Receiver<ServiceKey>) {
        let (sender, mut events) = mpsc::channel(fixed::EVENTS);
        let stream = tokio::spawn(stream::keep(self.xds.clone(), self.max_message, sender));
        let mut sweep = interval((self.idle / 4).max(Duration::from_millis(250)));
        let mut confirm = interval(CONFIRM);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        confirm.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut declared, sender) = (self.ways.declared.clone(), self.ways.news.clone());
        loop {
            let requests = self.requests.clone();
            let told = tokio::select! {
                Some(event) = events.recv() => self.event(event),
                Some(key) = asks.recv() => self.asked(key),
                Ok(()) = declared.changed() => self.declare(),
                _ = sweep.tick() => self.sweep().await,
                _ = confirm.tick() => {
                    self.confirm();
                    Vec::new()
                }
                () = sender.closed() => break,
                Some(permit) = permit(requests.as_ref()), if self.subscription.has_request() => {
                    let node = self.node();
                    if let Some(request) = self.subscription.poll_request(&node) {
                        permit.send(request);
                    }
                    Vec::new()
                }
            };
            self.settle();
            if !told.is_empty() && self.ways.news.send(told).await.is_err() {
                break;
            }
        }
        stream.abort();
    }

    fn event(&mut self, event: Event) -> Vec<News> {
        match event {
            Event::Begun(requests) => {
                self.requests = Some(requests);
                self.subscription.connected();
                Vec::new()
            }
            Event::Open(server) => {
                tracing::info!(%server, "connected to a control plane");
                self.open = true;
                self.troubles.remove(&server);
                self.ways.shown.connected(server);
                Vec::new()
            }
            Event::Down(server, cause) => {
                self.down(server, cause);
                Vec::new()
            }
            Event::Received(message) => {
                let outcome = self.subscription.receive(*message);
                if let Some(refused) = outcome.refused {
                    tracing::warn!(refused, "the control plane sent what cannot be");
                    self.ways.shown.refused(&refused);
                }
                let news = outcome.updates.into_iter().map(|update| self.told(update));
                let news = news.collect();
                self.confirm();
                news
            }
        }
    }

    /// A server is not to be had. It is tried again and again: each thing that is wrong is said once.
    fn down(&mut self, server: SocketAddr, cause: String) {
        self.requests = None;
        self.subscription.disconnected();
        self.ways.shown.lost(server, &cause);
        let said = self.troubles.entry(server).or_default();
        if std::mem::take(&mut self.open) {
            tracing::warn!(%server, cause, "lost the control plane; what is known stays");
        } else if said.contains(&cause) || said.len() == fixed::TROUBLES {
            tracing::debug!(%server, cause, "still no control plane");
            return;
        } else {
            tracing::warn!(%server, cause, "no control plane; what is known stays");
        }
        said.insert(cause);
    }

    /// Keeps what was told, and passes it on.
    fn told(&mut self, update: Update) -> News {
        let cache = self.ways.cache.as_ref();
        match update {
            Update::Present(service) => {
                self.cached.remove(&service.key);
                if let Some(cache) = cache {
                    cache.keep(Learned {
                        service: Arc::clone(&service),
                        since: now(),
                    });
                }
                News::Present(service)
            }
            Update::Absent(key) => {
                self.cached.remove(&key);
                if let Some(cache) = cache {
                    cache.forget(&key);
                }
                News::Absent(key)
            }
        }
    }

    /// A call wants a service. What is known is told again: who asks has missed it.
    fn asked(&mut self, key: ServiceKey) -> Vec<News> {
        if !self.declared.contains(&key) {
            self.learn(&key);
        }
        self.show();
        let known = self.subscription.told(&key).cloned();
        known.map(|update| self.told(update)).into_iter().collect()
    }

    fn learn(&mut self, key: &ServiceKey) {
        let new = Use {
            calls: 0,
            since: Instant::now(),
        };
        self.learned.insert(key.clone(), new);
        self.subscription.want(key);
    }

    /// Applications declare others: new ones are asked for, and old ones stay while they are called.
    fn declare(&mut self) -> Vec<News> {
        let services = Arc::clone(&self.ways.declared.borrow().services);
        let before = std::mem::replace(&mut self.declared, services);
        for key in Arc::clone(&self.declared).iter() {
            self.learned.remove(key);
            self.subscription.want(key);
        }
        for key in before.difference(&Arc::clone(&self.declared)) {
            self.learn(key);
        }
        self.show();
        Vec::new()
    }

    /// Forgets what no call has wanted for long.
    async fn sweep(&mut self) -> Vec<News> {
        if self.learned.is_empty() {
            return Vec::new();
        }
        let mut calls: BTreeMap<ServiceKey, u64> = BTreeMap::new();
        for service in self.ways.usage.gather().await.services() {
            *calls.entry(service.key).or_default() += service.finished.total();
        }
        let now = Instant::now();
        for (key, last) in &mut self.learned {
            let calls = calls.get(key).copied().unwrap_or_default();
            if calls != last.calls {
                *last = Use { calls, since: now };
            }
        }
        let idle = |last: &Use| now.duration_since(last.since) >= self.idle;
        let idle = self.learned.iter().filter(|(_, last)| idle(last));
        let idle: Vec<_> = idle.map(|(key, _)| key.clone()).collect();
        for key in &idle {
            self.learned.remove(key);
            self.cached.remove(key);
            self.subscription.forget(key);
            if let Some(cache) = &self.ways.cache {
                cache.forget(key);
            }
        }
        self.show();
        idle.into_iter().map(News::Forgotten).collect()
    }

    /// Notes that all that is known is true now, if it is.
    fn confirm(&self) {
        if self.open && self.subscription.is_current() {
            let now = now();
            self.ways.shown.confirmed(Some(now));
            if let Some(cache) = &self.ways.cache {
                cache.confirm(now);
            }
        }
        self.show();
    }

    fn settle(&self) {
        let known = |key| self.cached.contains(key) || self.subscription.told(key).is_some();
        if !*self.ways.settled.borrow() && self.declared.iter().all(known) {
            self.ways.settled.send_replace(true);
        }
    }

    fn show(&self) {
        let (all, pending) = (self.subscription.len(), self.subscription.pending());
        let problem = self
            .ways
            .declared
            .borrow()
            .problem
            .as_ref()
            .map(ToString::to_string);
        self.ways
            .shown
            .services(all, pending, self.learned.len(), problem);
    }

    /// Who asks, and for what it is known to.
    fn node(&self) -> Node {
        let text = |key: &ServiceKey| Value {
            kind: Some(Kind::StringValue(key.to_string())),
        };
        let list = ListValue {
            values: self.declared.iter().map(text).collect(),
        };
        let services = Value {
            kind: Some(Kind::ListValue(list)),
        };
        Node {
            id: self.identity.0.clone(),
            cluster: self.identity.1.clone(),
            metadata: Some(Struct {
                fields: [(names::NODE_SERVICES.to_owned(), services)].into(),
            }),
            ..Node::default()
        }
    }
}

/// Room for a message, once there is a stream with some.
async fn permit(
    requests: Option<&mpsc::Sender<DeltaDiscoveryRequest>>,
) -> Option<mpsc::Permit<'_, DeltaDiscoveryRequest>> {
    requests?.reserve().await.ok()
}

fn now() -> SystemTime {
    SystemTime::now()
}

/// Time between two notes that what is known is true.
const CONFIRM: Duration = Duration::from_secs(30);
