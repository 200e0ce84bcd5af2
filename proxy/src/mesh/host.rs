//! Hosts, interned by address: a host keeps its identity, and so its connection, while the services
//! that name it come and go.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

use dashmap::DashMap;

/// One provider's address. Shards keep what they learn about it under [`Host::id`].
#[derive(Debug)]
pub(crate) struct Host {
    /// Unique in the process, never used again.
    pub(crate) id: u32,
    /// Where it is.
    pub(crate) address: SocketAddr,
    /// The shard that owns the one connection to it.
    pub(crate) shard: u8,
}

/// The intern table: one [`Host`] an address while anybody holds it.
#[derive(Debug)]
pub(crate) struct Hosts {
    by_address: DashMap<SocketAddr, Weak<Host>, foldhash::fast::RandomState>,
    next: AtomicU32,
    /// How many hosts there are when those that nobody holds are swept out next.
    sweep_at: AtomicUsize,
    workers: u8,
}

impl Hosts {
    /// An empty table; hosts are dealt out to `workers` shards in turn.
    pub(crate) fn new(workers: u8) -> Self {
        Self {
            by_address: DashMap::default(),
            next: AtomicU32::new(0),
            sweep_at: AtomicUsize::new(SWEEP),
            workers: workers.max(1),
        }
    }

    /// The host at `address`.
    pub(crate) fn intern(&self, address: SocketAddr) -> Arc<Host> {
        if self.by_address.len() >= self.sweep_at.load(Ordering::Relaxed) {
            self.by_address.retain(|_, host| host.strong_count() > 0);
            // Twice as many as are left, so that a sweep costs a host but once.
            let next = SWEEP + 2 * self.by_address.len();
            self.sweep_at.store(next, Ordering::Relaxed);
        }
        let mut entry = self.by_address.entry(address).or_default();
        if let Some(host) = entry.upgrade() {
            return host;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let shard = u8::try_from(id % u32::from(self.workers)).unwrap_or(0);
        let host = Arc::new(Host { id, address, shard });
        *entry = Arc::downgrade(&host);
        host
    }
}

/// Hosts below which none is swept out.
const SWEEP: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_host_while_it_is_held() {
        let hosts = Hosts::new(2);
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let (a, b) = (hosts.intern(at(1)), hosts.intern(at(2)));
        assert!(Arc::ptr_eq(&a, &hosts.intern(at(1))));
        assert_ne!(a.shard, b.shard);
        let old = a.id;
        drop(a);
        assert_ne!(hosts.intern(at(1)).id, old);
        (1000..3000).for_each(|port| drop(hosts.intern(at(port))));
        assert!(hosts.by_address.len() <= 2 * SWEEP, "{hosts:?}");
    }
}
