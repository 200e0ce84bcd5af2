//! A pilot in this process, on a runtime of its own, that answers from what a test tells it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;

use control_plane::pilot::{Ads, Clients, Discovery};
use control_plane::registry::{Answer, Change, Discover, Inbox, Instance, Subscription};
use dubbo_proto::key::ServiceKey;
use mesh_proto::token::Token;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A pilot on a port of its own. Dropped, it stops, and its streams end.
#[derive(Debug)]
pub struct Pilot {
    /// What it answers from.
    pub registry: Scripted,
    address: SocketAddr,
    clients: Clients,
    stop: CancellationToken,
    server: Option<thread::JoinHandle<()>>,
}

impl Pilot {
    /// One that answers from `registry`.
    ///
    /// # Panics
    /// If there is no port, thread or runtime.
    #[must_use]
    pub fn start(registry: Scripted) -> Self {
        Self::guarded(registry, None)
    }

    /// The same, for those who bear `token`.
    ///
    /// # Panics
    /// As [`Self::start`].
    #[must_use]
    pub fn guarded(registry: Scripted, token: Option<Token>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener
            .set_nonblocking(true)
            .expect("a socket that does not block");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let discovery = Discovery::new(Arc::new(registry.clone()));
        let ads = Ads::new(discovery.clone(), stop.clone());
        let clients = ads.clients().clone();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                tokio::spawn(discovery.run());
                let listener = TcpListener::from_std(listener).expect("a listener");
                ads.serve(listener, token).await.expect("a server");
            });
        };
        Self {
            registry,
            address,
            clients,
            stop,
            server: Some(thread::spawn(serve)),
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who is connected.
    #[must_use]
    pub const fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Stops it, and waits until it has.
    ///
    /// # Panics
    /// If it panicked.
    pub fn stop(&mut self) {
        self.stop.cancel();
        if let Some(server) = self.server.take() {
            server.join().expect("a pilot that does not panic");
        }
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Tells what was set, and is silent about everything else: that is pending.
#[derive(Debug, Clone, Default)]
pub struct Scripted(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    services: BTreeMap<ServiceKey, Change>,
    inbox: Option<Inbox>,
    subscribed: BTreeMap<ServiceKey, usize>,
}

impl Scripted {
    /// The service has one instance now, at this port.
    ///
    /// # Panics
    /// If `service` is no key.
    pub fn provide(&self, service: &str, port: u16) {
        let instance = Instance {
            service: key(service),
            address: ([127, 0, 0, 1], port).into(),
            weight: Instance::WEIGHT,
            metadata: BTreeMap::new(),
        };
        self.set(service, Change::Set([instance].into()));
    }

    /// The service has no instance now.
    ///
    /// # Panics
    /// If `service` is no key.
    pub fn absent(&self, service: &str) {
        self.set(service, Change::Gone);
    }

    /// How many want the service of this registry.
    ///
    /// # Panics
    /// If `service` is no key.
    #[must_use]
    pub fn wanted(&self, service: &str) -> usize {
        let state = self.0.lock().expect("no panic before");
        state
            .subscribed
            .get(&key(service))
            .copied()
            .unwrap_or_default()
    }

    fn set(&self, service: &str, change: Change) {
        let mut state = self.0.lock().expect("no panic before");
        let service = key(service);
        if state.subscribed.contains_key(&service)
            && let Some(inbox) = &state.inbox
        {
            inbox.put(&service, change.clone());
        }
        state.services.insert(service, change);
    }
}

impl Discover for Scripted {
    fn subscribe(&self, service: &ServiceKey, inbox: &Inbox) -> Subscription {
        let mut state = self.0.lock().expect("no panic before");
        *state.subscribed.entry(service.clone()).or_default() += 1;
        if let Some(change) = state.services.get(service) {
            inbox.put(service, change.clone());
        }
        state.inbox = Some(inbox.clone());
        Subscription::new(Guard(self.clone(), service.clone()))
    }

    fn is_complete(&self) -> bool {
        true
    }

    fn services(&self) -> Answer<'_, Vec<(ServiceKey, u64)>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

struct Guard(Scripted, ServiceKey);

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.0.0.lock().expect("no panic before");
        if let Some(wanted) = state.subscribed.get_mut(&self.1) {
            *wanted -= 1;
            if *wanted == 0 {
                state.subscribed.remove(&self.1);
            }
        }
    }
}

fn key(text: &str) -> ServiceKey {
    text.parse().expect("a key")
}
