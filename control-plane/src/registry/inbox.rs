//! What registries said and nobody has read yet: of each service the newest only.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use dubbo_proto::key::ServiceKey;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Change;

/// The changes that wait for one reader. Clones share it.
///
/// A change replaces the one before of its service, so that it never holds more than one for each
/// service subscribed to. A service keeps its place in time: one that changes without end does not
/// keep another waiting.
#[derive(Debug, Clone, Default)]
pub struct Inbox(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// In the order in which the services first changed.
    changes: BTreeMap<u64, (ServiceKey, Change)>,
    places: BTreeMap<ServiceKey, u64>,
    next: u64,
}

impl Inbox {
    /// Puts in what `service` is now.
    pub fn put(&self, service: &ServiceKey, change: Change) {
        let mut guard = self.0.waiting.lock();
        let waiting = &mut *guard;
        match waiting.places.entry(service.clone()) {
            Entry::Occupied(place) => {
                waiting
                    .changes
                    .insert(*place.get(), (service.clone(), change));
            }
            Entry::Vacant(place) => {
                place.insert(waiting.next);
                waiting
                    .changes
                    .insert(waiting.next, (service.clone(), change));
                waiting.next += 1;
            }
        }
        drop(guard);
        self.0.arrived.notify_one();
    }

    /// Takes out the oldest, if there is one.
    #[must_use]
    pub fn take(&self) -> Option<(ServiceKey, Change)> {
        let mut waiting = self.0.waiting.lock();
        let (_, (service, change)) = waiting.changes.pop_first()?;
        waiting.places.remove(&service);
        Some((service, change))
    }

    /// Takes out the oldest, when there is one. For one reader at a time. Cancel safe.
    pub async fn next(&self) -> (ServiceKey, Change) {
        loop {
            if let Some(found) = self.take() {
                return found;
            }
            self.0.arrived.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ServiceKey {
        text.parse().expect("a key")
    }

    #[tokio::test]
    async fn of_each_service_the_newest_waits_in_the_place_of_the_first() {
        let inbox = Inbox::default();
        let (a, b) = (key("a"), key("b"));
        inbox.put(&a, Change::Gone);
        inbox.put(&b, Change::Gone);
        let newest = Change::Set([].into());
        inbox.put(&a, newest.clone());
        assert_eq!(inbox.next().await, (a.clone(), newest));
        inbox.put(&a, Change::Gone);
        assert_eq!(inbox.next().await, (b, Change::Gone));
        assert_eq!(inbox.next().await, (a, Change::Gone));
        assert_eq!(inbox.take(), None);
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        let inbox = Inbox::default();
        let reader = inbox.clone();
        let waits = tokio::spawn(async move { reader.next().await.0 });
        tokio::task::yield_now().await;
        inbox.put(&key("a"), Change::Gone);
        assert_eq!(waits.await.expect("woken"), key("a"));
    }
}
