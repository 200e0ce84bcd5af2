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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        pilot::coalesce::QUIET,
        registry::{Answer, Instance},
    };

    /// A registry that says what a test says, of what it is asked for.
    #[derive(Debug, Clone, Default)]
    struct Fake(Arc<Mutex<BTreeMap<ServiceKey, Inbox>>>);

    impl Fake {
        fn tell(&self, service: &ServiceKey, ports: &[u16]) {
            let instance = |port: &u16| Instance {
                service: service.clone(),
                address: ([10, 0, 0, 1], *port).into(),
                weight: 1,
                metadata: BTreeMap::new(),
            };
            let inboxes = self.0.lock();
            let inbox = inboxes.get(service).expect("it is subscribed to");
            inbox.put(service, Change::Set(ports.iter().map(instance).collect()));
        }

        fn subscribed(&self) -> Vec<String> {
            self.0.lock().keys().map(ToString::to_string).collect()
        }
    }

    impl Discover for Fake {
        fn subscribe(&self, service: &ServiceKey, inbox: &Inbox) -> Subscription {
            let of_service = self.0.lock().insert(service.clone(), inbox.clone());
            assert!(of_service.is_none(), "{service} is subscribed to once");
            Subscription::new(Asked(self.clone(), service.clone()))
        }

        fn is_complete(&self) -> bool {
            true
        }

        fn services(&self) -> Answer<'_, Vec<(ServiceKey, u64)>> {
            Box::pin(async { Ok(Vec::new()) })
        }
    }

    struct Asked(Fake, ServiceKey);

    impl Drop for Asked {
        fn drop(&mut self) {
            self.0.0.lock().remove(&self.1);
        }
    }

    fn key(text: &str) -> ServiceKey {
        text.parse().expect("a key")
    }

    fn start() -> (Fake, Discovery) {
        let registry = Fake::default();
        let discovery = Discovery::new(Arc::new(registry.clone()));
        tokio::spawn(discovery.clone().run());
        (registry, discovery)
    }

    /// How many instances are known, if any.
    fn known(discovery: &Discovery, service: &ServiceKey) -> Option<usize> {
        match discovery.catalog().get(service)? {
            State::Present(snapshot) => Some(snapshot.instances.len()),
            State::Pending | State::Absent => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_somebody_wants_is_subscribed_to() {
        let (registry, discovery) = start();
        let (a, b) = (key("a"), key("b"));
        let first = discovery.want(&a);
        let second = discovery.want(&a);
        let other = discovery.want(&b);
        assert_eq!(registry.subscribed(), ["a", "b"]);
        drop(first);
        drop(other);
        assert_eq!(registry.subscribed(), ["a"]);
        assert_eq!(discovery.catalog().get(&a), Some(&State::Pending));
        assert_eq!(discovery.catalog().get(&b), None);
        drop(second);
        assert!(registry.subscribed().is_empty() && discovery.catalog().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_is_told_at_once_and_what_follows_is_gathered() {
        let (registry, discovery) = start();
        let (a, mut changes) = (key("a"), discovery.changes());
        let _wanted = discovery.want(&a);
        let begin = tokio::time::Instant::now();
        registry.tell(&a, &[1]);
        let changed = changes.recv().await.expect("a change");
        assert_eq!(
            (&*changed, known(&discovery, &a)),
            (&[a.clone()][..], Some(1))
        );
        assert_eq!(begin.elapsed(), Duration::ZERO);
        for last in 2..5 {
            registry.tell(&a, &(1..=last).collect::<Vec<_>>());
            tokio::time::sleep(QUIET / 2).await;
        }
        assert_eq!(known(&discovery, &a), Some(1));
        changes.recv().await.expect("a change");
        assert_eq!(known(&discovery, &a), Some(4));
        // From the last of them on, which came half of it before.
        let gathered = begin.elapsed() - QUIET / 2 * 2;
        assert!(gathered >= QUIET && gathered < QUIET * 2, "{gathered:?}");
        assert!(changes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_hears_too_late_is_told_so_and_what_was_dropped_is_not_told() {
        let (registry, discovery) = start();
        let (mut changes, mut late) = (discovery.changes(), discovery.changes());
        let a = key("a");
        for _ in 0..=LAG {
            let wanted = discovery.want(&a);
            registry.tell(&a, &[1]);
            changes.recv().await.expect("a change");
            registry.tell(&a, &[1, 2]);
            drop(wanted);
            tokio::time::sleep(QUIET * 2).await;
            assert!(changes.is_empty());
        }
        let heard = late.recv().await;
        assert!(
            matches!(heard, Err(broadcast::error::RecvError::Lagged(1))),
            "{heard:?}"
        );
    }
}
