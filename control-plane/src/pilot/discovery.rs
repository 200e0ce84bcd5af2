//! From registry to catalog: subscribes to what somebody wants, and to nothing else.
//!
//! Readers never wait: they take a copy of the catalog, and hear *which* services changed. One that
//! is too slow to hear all of it is told so, and looks at whatever it wants anew.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::Arc,
    time::Instant,
};

use arc_swap::ArcSwap;
use dubbo_proto::key::ServiceKey;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::coalesce::{Coalesce, Pace};
use crate::{
    catalog::{Catalog, State},
    registry::{Change, Discover, Inbox, Subscription},
};

/// What is wanted of a registry, and what is known of that. Clones share it.
#[derive(Debug, Clone)]
pub struct Discovery(Arc<Shared>);

/// The services that changed, none twice. The catalog has them already.
pub type Changed = Arc<[ServiceKey]>;

/// One interest in a service, until it is dropped.
#[derive(Debug)]
#[must_use = "dropped, nobody wants the service any more"]
pub struct Want {
    service: ServiceKey,
    shared: Arc<Shared>,
}

struct Shared {
    registry: Arc<dyn Discover>,
    inbox: Inbox,
    /// For readers. Stored anew by whoever holds `work`.
    catalog: ArcSwap<Catalog>,
    changed: broadcast::Sender<Changed>,
    work: Mutex<Work>,
}

#[derive(Debug, Default)]
struct Work {
    catalog: Catalog,
    wanted: BTreeMap<ServiceKey, Wanted>,
    coalesce: Coalesce,
}

#[derive(Debug)]
struct Wanted {
    /// At least one.
    by: usize,
    _subscription: Subscription,
}

impl Discovery {
    /// The way to `registry`. Nothing of it is heard before [`Self::run`].
    #[must_use]
    pub fn new(registry: Arc<dyn Discover>) -> Self {
        Self(Arc::new(Shared {
            registry,
            inbox: Inbox::default(),
            catalog: ArcSwap::default(),
            changed: broadcast::Sender::new(LAG),
            work: Mutex::default(),
        }))
    }

    /// Subscribes to `service`, if nobody wanted it before. Its state is in the catalog when this
    /// returns: [`State::Pending`] until the registry has told of it.
    pub fn want(&self, service: &ServiceKey) -> Want {
        let shared = &self.0;
        let mut guard = shared.work.lock();
        let work = &mut *guard;
        match work.wanted.entry(service.clone()) {
            Entry::Occupied(mut wanted) => wanted.get_mut().by += 1,
            Entry::Vacant(place) => {
                work.catalog.add(service);
                shared.catalog.store(Arc::new(work.catalog.clone()));
                place.insert(Wanted {
                    by: 1,
                    _subscription: shared.registry.subscribe(service, &shared.inbox),
                });
            }
        }
        Want {
            service: service.clone(),
            shared: Arc::clone(shared),
        }
    }

    /// What is known now. Costs one count, and never waits.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog.load_full()
    }

    /// Which services change from now on. Who subscribes first and reads the catalog then misses
    /// nothing; after [`broadcast::error::RecvError::Lagged`], any service may have changed.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Changed> {
        self.0.changed.subscribe()
    }

    /// Whether the registry was read: if not, what is pending may yet come.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.registry.is_complete()
    }

    /// Takes over what the registry tells. Never ends; cancel safe. For one task.
    pub async fn run(self) {
        let shared = &*self.0;
        loop {
            let due = shared.work.lock().coalesce.next_due();
            let quiet = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                (service, change) = shared.inbox.next() => shared.take_in(service, change),
                () = quiet => {}
            }
            shared.tell();
        }
    }
}

impl Shared {
    /// Takes in a change, and all others that wait.
    fn take_in(&self, service: ServiceKey, change: Change) {
        let now = now();
        let mut guard = self.work.lock();
        let work = &mut *guard;
        let mut next = Some((service, change));
        while let Some((service, change)) = next {
            // Of a service that nobody wants any more, something may still wait.
            if let Some(state) = work.catalog.get(&service) {
                let pace = match state {
                    State::Pending => Pace::AtOnce,
                    State::Present(_) | State::Absent => Pace::Gathered,
                };
                work.coalesce.put(now, service, change, pace);
            }
            next = self.inbox.take();
        }
    }

    /// Tells readers of what is due.
    fn tell(&self) {
        let now = now();
        let mut guard = self.work.lock();
        let work = &mut *guard;
        let mut changed = Vec::new();
        while let Some((service, change)) = work.coalesce.take(now) {
            if work.catalog.apply(&service, change) {
                changed.push(service);
            }
        }
        if !changed.is_empty() {
            self.catalog.store(Arc::new(work.catalog.clone()));
            // Nobody may be listening.
            let _ = self.changed.send(changed.into());
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery")
            .field("registry", &self.registry)
            .finish_non_exhaustive()
    }
}

impl Drop for Want {
    fn drop(&mut self) {
        let mut guard = self.shared.work.lock();
        let work = &mut *guard;
        if let Entry::Occupied(mut wanted) = work.wanted.entry(self.service.clone()) {
            wanted.get_mut().by -= 1;
            if wanted.get().by == 0 {
                wanted.remove();
                work.coalesce.forget(&self.service);
                work.catalog.remove(&self.service);
                self.shared.catalog.store(Arc::new(work.catalog.clone()));
            }
        }
    }
}

/// Batches of changes that a reader may be behind before it is told that it missed some.
const LAG: usize = 256;

/// Of the runtime's clock, which tests turn by hand.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
