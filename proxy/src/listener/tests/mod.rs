//! Over real sockets of loopback.

mod keeper;

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use prometheus::Registry;
use tokio::sync::mpsc;

use super::*;
use crate::{
    config::{Config, Limits, Listen},
    drain::{Drain, Phase},
    metrics,
    model::Side,
};

/// A configuration that says `text`.
fn config(text: &str) -> Config {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("proxy.yaml");
    std::fs::write(&file, text).expect("written");
    Config::load(&file).expect(text)
}

/// Another address of this host that stands for one of its own: all of 127/8 is here.
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn tcp(listen: &Listen) -> SocketAddr {
    let Listen::Tcp(address) = listen else {
        panic!("{listen} is no address")
    };
    *address
}

/// Listeners that run, and the shards they feed.
struct Running {
    addresses: Vec<Listen>,
    shards: Vec<mpsc::Receiver<Accepted>>,
    metrics: metrics::Listeners,
    drain: Drain,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    fn new(config: &Config, shards: usize, room: usize) -> Self {
        let metrics = metrics::Listeners::new(&Registry::new()).expect("metrics");
        let (senders, shards) = (0..shards).map(|_| mpsc::channel(room)).unzip();
        let bound = bind(config, &[OWN], Inherited::default()).expect("bound");
        let addresses = bound.iter().map(|bound| bound.address.clone()).collect();
        let acceptor = Acceptor::new(bound, senders, &config.limits, metrics.clone());
        let drain = Drain::new();
        let task = tokio::spawn(acceptor.expect("sockets").run(drain.clone()));
        Self {
            addresses,
            shards,
            metrics,
            drain,
            task,
        }
    }

    async fn connect(&self) -> tokio::net::TcpStream {
        tokio::net::TcpStream::connect(tcp(&self.addresses[0]))
            .await
            .expect("connected")
    }
}

const PORT_0: &str = "outbound: { listen: 127.0.0.1:0, own_addresses: false }\n";

#[test]
fn own_addresses_share_the_port() {
    let config = config("outbound: { listen: 127.0.0.1:0 }");
    let own = [OWN, IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
    let bound = bind(&config, &own, Inherited::default()).expect("bound");
    let addresses: Vec<_> = bound.iter().map(|bound| tcp(&bound.address)).collect();
    let port = addresses[0].port();
    assert_ne!(port, 0);
    assert_eq!(
        addresses,
        [
            SocketAddr::from(([127, 0, 0, 1], port)),
            SocketAddr::new(OWN, port)
        ]
    );
    assert!(bound.iter().all(|bound| bound.local_only));
}

#[test]
fn a_taken_port_names_address_key_and_cure() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address");
    let config = config(&format!(
        "inbound: {{ listen: {address}, provider: 127.0.0.1:1 }}\n{PORT_0}"
    ));
    let error = bind(&config, &[], Inherited::default());
    let error = error.expect_err("taken").to_string();
    let expected = format!("inbound.listen: cannot listen on {address}: Address already in use");
    assert!(error.starts_with(&expected), "{error}");
    assert!(error.ends_with("; stop the process that listens there, or write another address"));
}

#[test]
fn an_own_address_that_is_gone_is_left_out() {
    let config = config("outbound: { listen: 127.0.0.1:0 }");
    let gone = IpAddr::from([192, 0, 2, 1]);
    let bound = bind(&config, &[gone], Inherited::default());
    assert_eq!(bound.expect("bound").len(), 1);
}

#[test]
fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    let bind = |path: &Path| {
        let text = format!("outbound: {{ listen: 'unix:{}' }}", path.display());
        bind(&config(&text), &[], Inherited::default())
    };
    drop(UnixListener::bind(path("stale")).expect("bound"));
    let bound = bind(&path("stale")).expect("nobody answers there");
    let error = bind(&path("stale")).expect_err("we answer there");
    assert!(matches!(error, Error::Taken(error) if error.source.kind() == ErrorKind::AddrInUse));
    drop(bound);
    assert!(!path("stale").exists(), "removed with the listener");

    std::fs::write(path("file"), "kept").expect("written");
    let error = bind(&path("file")).expect_err("no socket").to_string();
    assert!(error.contains("what stands there is no socket"), "{error}");
    assert!(path("file").exists());
}

#[tokio::test]
async fn connections_go_to_the_shards_in_turn_with_their_side() {
    let mut running = Running::new(&config(PORT_0), 2, 8);
    let mut clients = Vec::new();
    for turn in 1..5 {
        clients.push(running.connect().await);
        let accepted = running.shards[turn % 2].recv().await.expect("a connection");
        assert_eq!(accepted.side, Side::Outbound);
        let Connection::Tcp(socket) = accepted.socket else {
            panic!("over TCP")
        };
        assert!(socket.nodelay().expect("an option"));
        let error = (&socket).read(&mut [0]).expect_err("nothing was sent");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

#[tokio::test]
async fn a_unix_socket_is_served() {
    let dir = tempfile::tempdir().expect("a folder");
    let path: PathBuf = dir.path().join("mesh.sock");
    let text = format!("outbound: {{ listen: 'unix:{}' }}", path.display());
    let mut running = Running::new(&config(&text), 1, 1);
    let mut client = UnixStream::connect(&path).expect("connected");
    client.write_all(b"x").expect("sent");
    let accepted = running.shards[0].recv().await.expect("a connection");
    let Connection::Unix(mut socket) = accepted.socket else {
        panic!("over a Unix socket")
    };
    socket.set_nonblocking(false).expect("set");
    let mut byte = [0];
    socket.read_exact(&mut byte).expect("read");
    assert_eq!(&byte, b"x");
}

#[tokio::test]
async fn beyond_the_limit_connections_wait_and_are_not_closed() {
    let limited = format!("{PORT_0}limits: {{ max_sessions: 1 }}");
    let mut running = Running::new(&config(&limited), 1, 8);
    let _first = running.connect().await;
    let accepted = running.shards[0].recv().await.expect("a connection");
    let mut second = running.connect().await;
    while running.metrics.full.get() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(running.shards[0].try_recv().is_err());
    let mut byte = [0];
    assert!(
        second
            .try_read(&mut byte)
            .is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
    );
    drop(accepted);
    let accepted = running.shards[0].recv().await.expect("a place is free");
    let Connection::Tcp(mut socket) = accepted.socket else {
        panic!("over TCP")
    };
    socket.write_all(b"y").expect("sent");
    tokio::io::AsyncReadExt::read_exact(&mut second, &mut byte)
        .await
        .expect("read");
    assert_eq!(&byte, b"y");
}

#[tokio::test]
async fn a_full_shard_is_passed_over() {
    let mut running = Running::new(&config(PORT_0), 2, 1);
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(running.connect().await);
    }
    // One each. Both are full now, and only the second makes room again and again.
    for _ in 0..3 {
        running.shards[1].recv().await.expect("a connection");
        clients.push(running.connect().await);
    }
    running.shards[1].recv().await.expect("a connection");
    running.shards[0].recv().await.expect("the first one's");
}

#[tokio::test]
async fn only_a_drain_ends_listening() {
    let mut running = Running::new(&config("outbound: { listen: 127.0.0.1:0 }"), 1, 8);
    assert_eq!(running.addresses.len(), 2);
    running.drain.begin();
    let pass = |phase| running.drain.pass(phase, Duration::from_secs(60), async {});
    pass(Phase::NotReady).await;
    let _still = running.connect().await;
    running.shards[0]
        .recv()
        .await
        .expect("accepted while not ready");
    pass(Phase::StopAccepting).await;
    running.task.await.expect("an orderly end");
    let refused = tokio::net::TcpStream::connect(tcp(&running.addresses[0])).await;
    assert_eq!(
        refused.expect_err("closed").kind(),
        ErrorKind::ConnectionRefused
    );
}

#[test]
fn the_defaults_leave_room() {
    assert!(Limits::default().max_sessions <= tokio::sync::Semaphore::MAX_PERMITS);
}
