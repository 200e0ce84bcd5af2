//! Several shards: one connection per host for all of them.

use std::{
    net::SocketAddr,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
};

use dubbo_proto::head::RequestId;
use mesh_tests::peer::{Listener, Peer, answer, text};

use mesh_tests::proxy::{Proxy, call, outbound};

/// A provider that answers everything and counts its connections, until the test ends.
fn echo(listener: Listener) -> (SocketAddr, Arc<AtomicUsize>) {
    let (address, connections) = (listener.address(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&connections);
    std::thread::spawn(move || {
        loop {
            let mut peer = listener.accept();
            count.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                loop {
                    let seen = peer.receive_call();
                    peer.send(&answer(seen.head.id, &format!("of {}", seen.head.id)));
                }
            });
        }
    });
    (address, connections)
}

#[test]
fn shards_share_the_connections_and_every_answer_finds_its_way() {
    let providers: Vec<_> = (0..3).map(|_| echo(Listener::bind())).collect();
    let addresses: Vec<_> = providers.iter().map(|(address, _)| *address).collect();
    let proxy = Proxy::start(&(outbound(&addresses, "") + "workers: 4\n"));
    let mut applications: Vec<Peer> = (0..8).map(|_| proxy.connect()).collect();
    for round in 0..50u64 {
        for (n, application) in applications.iter_mut().enumerate() {
            let ids = (0..4).map(|i| round * 1000 + n as u64 * 10 + i);
            let calls: Vec<u8> = ids.flat_map(|id| call(id, "find")).collect();
            application.send(&calls);
        }
        for (n, application) in applications.iter_mut().enumerate() {
            let mut ids: Vec<_> = (0..4).map(|_| application.receive_call().head.id).collect();
            ids.sort_unstable();
            let first = round * 1000 + n as u64 * 10;
            assert_eq!(ids, (first..first + 4).map(RequestId).collect::<Vec<_>>());
        }
    }
    for (_, connections) in &providers {
        assert_eq!(connections.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_lost_host_is_lost_for_every_shard() {
    let listener = Listener::bind();
    let proxy = Proxy::start(&(outbound(&[listener.address()], "") + "workers: 3\n"));
    let mut provider = listener.accept();
    let mut applications: Vec<Peer> = (0..6).map(|_| proxy.connect()).collect();
    for application in &mut applications {
        application.send(&call(1, "save"));
    }
    for _ in 0..6 {
        provider.receive_call();
    }
    provider.reset();
    for application in &mut applications {
        let lost = text(&application.receive_call());
        assert!(lost.starts_with("UC upstream connection lost"), "{lost}");
        application.send(&call(2, "save"));
    }
    let mut provider = listener.accept();
    for _ in 0..6 {
        let seen = provider.receive_call();
        provider.send(&answer(seen.head.id, "back"));
    }
    for application in &mut applications {
        assert_eq!(text(&application.receive_call()), "back");
    }
}
