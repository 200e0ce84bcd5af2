//! Who may connect where: in a network namespace, where the host has an address of its own.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;

use dubbo_proxy::config::{self, Config, Listen};
use dubbo_proxy::drain::{Drain, Phase};
use dubbo_proxy::listener::{self, Acceptor};
use dubbo_proxy::metrics;
use mesh_tests::namespace::{ADDRESS, Namespace};
use socket2::{Domain, Socket, Type};

/// An address that packets are routed to here, though no interface has it: another host's.
const FOREIGN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 50);

#[test]
#[ignore = "needs iproute2 and root; .ci/run runs it"]
fn an_own_address_takes_connections_of_this_host_alone() {
    Namespace::new().run(|| {
        let route = ["route", "add", "local", "10.77.0.50/32", "dev", "lo"];
        let added = Command::new("ip").args(route).status().expect("iproute2");
        assert!(added.success());
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("proxy.yaml");
        std::fs::write(&file, "outbound: { listen: 127.0.0.1:0 }").expect("written");
        let config = Config::load(&file).expect("a configuration");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let _inside = runtime.enter();

        let bound = listener::bind(&config, &config::own_addresses()).expect("bound");
        let [Listen::Tcp(loopback), Listen::Tcp(own)] = [&bound[0].address, &bound[1].address]
        else {
            panic!("two addresses: {bound:?}");
        };
        let (loopback, own) = (*loopback, *own);
        assert_eq!(own, SocketAddr::from((ADDRESS, loopback.port())));

        let counters = metrics::Listeners::new(&prometheus::Registry::new()).expect("metrics");
        let (shard, mut taken) = tokio::sync::mpsc::channel(8);
        let acceptor = Acceptor::new(bound, vec![shard], &config.limits, counters.clone());
        let drain = Drain::new();
        let serving = runtime.spawn(acceptor.expect("sockets").run(drain.clone()));

        let mut foreign = connect(FOREIGN, own);
        let reset = foreign.read(&mut [0]).expect_err("nothing is answered");
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        assert_eq!(counters.foreign.get(), 1);
        for (from, to) in [
            (ADDRESS, own),
            (Ipv4Addr::LOCALHOST, loopback),
            (ADDRESS, loopback),
        ] {
            let _connection = connect(from, to);
            taken.blocking_recv().expect("taken");
        }
        assert_eq!(counters.foreign.get(), 1);

        drain.begin();
        runtime.block_on(async {
            drain
                .pass(Phase::StopAccepting, config.limits.drain_time, async {})
                .await;
            serving.await.expect("an orderly end");
        });
    });
}

/// A connection that comes from `from`.
fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::new(IpAddr::V4(from), 0).into())
        .expect("an address of here");
    socket.connect(&to.into()).expect("connected");
    let patience = std::time::Duration::from_secs(10);
    socket.set_read_timeout(Some(patience)).expect("an option");
    socket.into()
}
