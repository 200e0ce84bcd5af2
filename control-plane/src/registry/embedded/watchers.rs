//! Who wants to know of which service.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    sync::Arc,
};

use dubbo_proto::key::ServiceKey;
use parking_lot::Mutex;

use super::store::Store;
use crate::registry::{Change, Inbox, Subscription};

/// Those who want to know.
///
/// A service is read and told of under one lock, by whoever subscribes and by the writer after its
/// commit alike: whoever is told last was told what was read last.
#[derive(Debug)]
pub(super) struct Watchers {
    store: Arc<Store>,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    by_service: HashMap<ServiceKey, BTreeMap<u64, Inbox>>,
    /// Services that could not be read, and are to be told of when they can.
    unread: BTreeSet<ServiceKey>,
    next: u64,
}

/// One of them, until it is dropped.
struct Watcher {
    watchers: Arc<Watchers>,
    service: ServiceKey,
    id: u64,
}

impl Watchers {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            told: Mutex::default(),
        }
    }

    /// Tells `inbox` of `service` now and from now on.
    pub(super) fn subscribe(self: &Arc<Self>, service: &ServiceKey, inbox: &Inbox) -> Subscription {
        let mut told = self.told.lock();
        let id = told.next;
        told.next += 1;
        let of_service = told.by_service.entry(service.clone()).or_default();
        of_service.insert(id, inbox.clone());
        match self.read(service) {
            Some(change) => inbox.put(service, change),
            None => {
                told.unread.insert(service.clone());
            }
        }
        Subscription::new(Watcher {
            watchers: Arc::clone(self),
            service: service.clone(),
            id,
        })
    }

    /// Tells those who want to know of these services.
    pub(super) fn tell<'a>(&self, services: impl IntoIterator<Item = &'a ServiceKey>) {
        let mut guard = self.told.lock();
        let told = &mut *guard;
        for service in services {
            let Some(of_service) = told.by_service.get(service) else {
                continue;
            };
            let Some(change) = self.read(service) else {
                told.unread.insert(service.clone());
                continue;
            };
            told.unread.remove(service);
            for inbox in of_service.values() {
                inbox.put(service, change.clone());
            }
        }
    }

    /// Tells of what could not be read before.
    pub(super) fn tell_unread(&self) {
        let unread = self.told.lock().unread.clone();
        self.tell(&unread);
    }

    /// Whether everybody was told what they want to know.
    pub(super) fn are_told(&self) -> bool {
        self.told.lock().unread.is_empty()
    }

    fn read(&self, service: &ServiceKey) -> Option<Change> {
        match self.store.list(service) {
            Ok(list) if list.is_empty() => Some(Change::Gone),
            Ok(list) => {
                let instances = list.into_iter().map(|found| found.instance);
                Some(Change::Set(instances.collect()))
            }
            Err(error) => {
                tracing::warn!(%service, %error, "cannot read a service");
                None
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut guard = self.watchers.told.lock();
        let told = &mut *guard;
        if let Entry::Occupied(mut of_service) = told.by_service.entry(self.service.clone()) {
            of_service.get_mut().remove(&self.id);
            if of_service.get().is_empty() {
                of_service.remove();
                told.unread.remove(&self.service);
            }
        }
    }
}
