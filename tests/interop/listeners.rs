//! Who may connect where: in a network namespace, where the host has an address of its own.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

use dubbo_proxy::config::{self, Config, Listen};
use dubbo_proxy::drain::Drain;
use dubbo_proxy::listener::{self, Accepted, Acceptor, Inherited};
use dubbo_proxy::metrics;
use mesh_tests::namespace::{ADDRESS, Namespace};
use mesh_tests::wait::until;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use tokio::sync::mpsc;

/// An address that packets are routed to here, though no interface has it: another host's.
const FOREIGN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 50);

#[test]
#[ignore = "needs iproute2 and root; .ci/run runs it"]
fn an_own_address_takes_connections_of_this_host_alone() {
    Namespace::new().run(|| {
        let route = ["route", "add", "local", "10.77.0.50/32", "dev", "lo"];
        let added = Command::new("ip").args(route).status().expect("iproute2");
        assert!(added.success());
        let mut listening = Listening::start("outbound: { listen: 127.0.0.1:0 }");
        let [Listen::Tcp(loopback), Listen::Tcp(own)] = listening.addresses[..] else {
            panic!("two addresses: {:?}", listening.addresses);
        };
        assert_eq!(own, SocketAddr::from((ADDRESS, loopback.port())));

        let mut foreign = connect(FOREIGN, own);
        let reset = foreign.read(&mut [0]).expect_err("nothing is answered");
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        assert_eq!(listening.counters.foreign.get(), 1);
        for (from, to) in [
            (ADDRESS, own),
            (Ipv4Addr::LOCALHOST, loopback),
            (ADDRESS, loopback),
        ] {
            let _connection = connect(from, to);
            listening.shard.blocking_recv().expect("taken");
        }
        assert_eq!(listening.counters.foreign.get(), 1);
    });
}

#[test]
#[ignore = "takes all files of the process; .ci/run runs it, by itself"]
fn without_files_connections_wait_until_there_are_some() {
    let text = "outbound: { listen: 127.0.0.1:0, own_addresses: false }";
    let mut listening = Listening::start(text);
    let [Listen::Tcp(address)] = listening.addresses[..] else {
        panic!("one address")
    };
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    // The kernel gives the lowest free number, which is the first that is too high from now on.
    let next = socket.try_clone().expect("a file").as_raw_fd();
    let taken = u64::try_from(next).expect("a file");
    setrlimit(Resource::RLIMIT_NOFILE, taken, hard).expect("a lower limit");
    socket.connect(&address.into()).expect("connected");
    let errors = &listening.counters.errors.outbound;
    until(
        "an accept that fails, and another",
        Duration::from_secs(10),
        || (errors.get() >= 2).then_some(()),
    );
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("the limit of before");
    listening.shard.blocking_recv().expect("taken");
}

/// Listeners that run, over one shard.
struct Listening {
    addresses: Vec<Listen>,
    shard: mpsc::Receiver<Accepted>,
    counters: metrics::Listeners,
    _runtime: tokio::runtime::Runtime,
}

impl Listening {
    fn start(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("proxy.yaml");
        std::fs::write(&file, text).expect("written");
        let config = Config::load(&file).expect("a configuration");
        let bound = listener::bind(&config, &config::own_addresses(), Inherited::default());
        let bound = bound.expect("bound");
        let addresses = bound.iter().map(|bound| bound.address.clone()).collect();
        let counters = metrics::Listeners::new(&prometheus::Registry::new()).expect("metrics");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (sender, shard) = mpsc::channel(8);
        let (limits, of_listeners) = (config.limits, counters.clone());
        runtime.spawn(async move {
            let acceptor = Acceptor::new(bound, vec![sender], &limits, of_listeners);
            acceptor.expect("sockets").run(Drain::new()).await;
        });
        Self {
            addresses,
            shard,
            counters,
            _runtime: runtime,
        }
    }
}

/// A connection that comes from `from`.
fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::new(IpAddr::V4(from), 0).into())
        .expect("an address of here");
    socket.connect(&to.into()).expect("connected");
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("an option");
    socket.into()
}
