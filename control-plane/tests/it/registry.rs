//! A registry that says what a test tells it to.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use control_plane::registry::{Answer, Change, Discover, Inbox, Instance, Subscription};
use dubbo_proto::key::ServiceKey;

/// Tells what was set, and is silent about everything else: that is pending.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scripted(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    services: BTreeMap<ServiceKey, Change>,
    inbox: Option<Inbox>,
    subscribed: BTreeMap<ServiceKey, usize>,
}

impl Scripted {
    /// The service has one instance now, at this port.
    pub(crate) fn provide(&self, service: &str, port: u16) {
        let instance = Instance {
            service: key(service),
            address: ([127, 0, 0, 1], port).into(),
            weight: Instance::WEIGHT,
            metadata: BTreeMap::new(),
        };
        self.set(service, Change::Set([instance].into()));
    }

    pub(crate) fn absent(&self, service: &str) {
        self.set(service, Change::Gone);
    }

    /// How many want the service of this registry.
    pub(crate) fn wanted(&self, service: &str) -> usize {
        let state = self.0.lock().expect("no panic");
        state
            .subscribed
            .get(&key(service))
            .copied()
            .unwrap_or_default()
    }

    fn set(&self, service: &str, change: Change) {
        let mut state = self.0.lock().expect("no panic");
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
        let mut state = self.0.lock().expect("no panic");
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
        let mut state = self.0.0.lock().expect("no panic");
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
