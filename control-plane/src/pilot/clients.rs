//! Who is connected, and what each was told: for whoever looks, never in the way of those who push.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::subscription::{Node, Summary};

/// The clients that are connected now. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Clients(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Locked for as long as a client comes or goes, or a reader takes a copy.
    connected: Mutex<BTreeMap<u64, Arc<ArcSwap<Client>>>>,
    next: AtomicU64,
}

/// A client, as it was when it last changed.
#[derive(Debug, Clone)]
pub struct Client {
    /// Who it says it is.
    pub node: Arc<Node>,
    /// Where it comes from, if that is known.
    pub peer: Option<SocketAddr>,
    /// Which form of the protocol it speaks.
    pub protocol: Protocol,
    /// Since when.
    pub since: SystemTime,
    /// How it stands with each type that it asked for.
    pub types: Vec<Summary>,
}

/// The forms of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Requests and answers say what changes.
    Delta,
    /// Each names everything.
    StateOfTheWorld,
}

/// The place of a client among the others, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    id: u64,
    client: Arc<ArcSwap<Client>>,
    clients: Clients,
}

impl Clients {
    /// All that are connected, in the order in which they came.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Client>> {
        let connected = self.0.connected.lock().clone();
        connected
            .values()
            .map(|client| client.load_full())
            .collect()
    }

    /// A place for one more, `None` if there are `most` already.
    pub(super) fn enter(&self, client: Client, most: usize) -> Option<Place> {
        let mut connected = self.0.connected.lock();
        if connected.len() >= most {
            return None;
        }
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(ArcSwap::from_pointee(client));
        connected.insert(id, Arc::clone(&client));
        drop(connected);
        Some(Place {
            id,
            client,
            clients: self.clone(),
        })
    }
}

impl Client {
    /// Whether it has, or has rejected, all that it asks for.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.types.iter().all(|summary| summary.complete)
    }
}

impl Protocol {
    /// As pages write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delta => "delta",
            Self::StateOfTheWorld => "sotw",
        }
    }
}

impl Place {
    /// How it stands with the client now.
    pub(super) fn show(&self, node: &Arc<Node>, types: Vec<Summary>) {
        let before = self.client.load();
        let client = Client {
            node: Arc::clone(node),
            peer: before.peer,
            protocol: before.protocol,
            since: before.since,
            types,
        };
        self.client.store(Arc::new(client));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clients.0.connected.lock().remove(&self.id);
    }
}
