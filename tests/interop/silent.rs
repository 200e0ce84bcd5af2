//! A provider whose packets vanish: nothing refuses a connection to it, and nothing answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dubbo_proto::frame::Frame;
use dubbo_proto::head::Status;
use mesh_tests::namespace::{Namespace, SILENT};
use mesh_tests::peer::{Listener, Peer, answer, request_with, status, text};
use mesh_tests::process::free_port;
use mesh_tests::tcp::{self, State};
use mesh_tests::wait::Deadline;

use crate::load::{Load, number, provide};
use crate::sidecar::{Sidecar, service};

/// The kernel would try for two minutes; the caller waits for a second.
#[test]
#[ignore = "needs iproute2 and root; .ci/run runs it"]
fn a_call_to_a_silent_address_ends_within_its_time() {
    Namespace::new().run(|| {
        let sidecar = Sidecar::outbound(&service(NOBODY, &[silent()]));
        let mut consumer = Peer::connect(sidecar.address());
        for id in 1..=3 {
            let deadline = Deadline::after(Duration::from_millis(1100));
            consumer.send(&hello(id, NOBODY));
            let told = consumer.receive_call();
            assert!(deadline.left().is_some(), "later than 1.1 s: {told:?}");
            expect_unreachable(&told);
        }
    });
}

/// The wait for a connection leaves time for a provider that is there.
#[test]
#[ignore = "needs iproute2 and root; .ci/run runs it"]
fn a_silent_address_beside_another_costs_no_call() {
    Namespace::new().run(|| {
        let alive = Listener::bind();
        let sidecar = Sidecar::outbound(&service("shop.Both", &[silent(), alive.address()]));
        let mut consumer = Peer::connect(sidecar.address());
        let mut provider = None;
        for id in 1..=10 {
            consumer.send(&hello(id, "shop.Both"));
            let provider = provider.get_or_insert_with(|| alive.accept());
            let call = provider.receive_call();
            provider.send(&answer(call.head.id, "alive"));
            assert_eq!(text(&consumer.receive_call()), "alive");
        }
    });
}

/// Calls of a healthy service through two sidecars in turns: one knows nothing else, the other has
/// calls that wait for a silent address all the while.
#[test]
#[ignore = "needs iproute2 and root; .ci/run runs it"]
fn a_silent_address_slows_no_other_service() {
    Namespace::new().run(|| {
        let healthy = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let _provider = provide(healthy, |command| command);
        let known = service(HEALTHY, &[healthy]);
        let alone = Sidecar::outbound(&known);
        let beside = Sidecar::outbound(&(known + &service(NOBODY, &[silent()])));

        let mut consumer = Peer::connect(beside.address());
        let second = beside.address().to_string();
        let options = ["--compare", &second, "--rounds", "3", "--rate", "100"];
        let options = [&options[..], &["--duration", "400ms"]].concat();
        let mut load = Load::start(alone.address(), HEALTHY, &options, |command| command);
        let mut ids = 1..;
        while load.is_running() {
            let together = ids.by_ref().take(CALLS_AT_A_TIME);
            together.for_each(|id| consumer.send(&hello(id, NOBODY)));
            for _ in 0..CALLS_AT_A_TIME {
                expect_unreachable(&consumer.receive_call());
            }
            assert!(half_open() <= 1, "connections in the making pile up");
        }
        // No call failed, or this would.
        let told = load.figures();
        let slower = number(&told["ratios"]["p50_us"]);
        assert!(slower <= 2.0, "{slower:.2} times as slow\n{told:#}");
        let rounds = told["rounds"].as_array().expect("rounds").iter();
        let slowest = rounds.map(|round| number(&round["figures"]["max_us"]));
        let slowest = slowest.fold(0.0, f64::max);
        let waited = 1e6 * TIMEOUT.as_secs_f64();
        assert!(slowest < waited / 4.0, "waited for the other\n{told:#}");
    });
}

/// A call that gives up after [`TIMEOUT`].
fn hello(id: u64, of: &str) -> Vec<u8> {
    let timeout = TIMEOUT.as_millis().to_string();
    request_with(id, of, "hello", b"\x01x", &[("timeout", &timeout)])
}

/// The answer says where nobody answers, and that it was connecting that failed.
#[track_caller]
fn expect_unreachable(answer: &Frame) {
    let told = text(answer);
    let failed = status(answer) != Status::OK;
    let names = told.contains(&silent().to_string()) && told.contains("connect");
    assert!(failed && names, "{told}");
}

/// Connections to the silent address that nobody has answered yet.
fn half_open() -> usize {
    let sockets = tcp::sockets();
    let open = |socket: &&tcp::Socket| socket.remote == silent() && socket.state == State::SynSent;
    sockets.iter().filter(open).count()
}

fn silent() -> SocketAddr {
    SocketAddr::from((SILENT, 20880))
}

const HEALTHY: &str = "shop.Healthy";
const NOBODY: &str = "shop.Nobody";
const TIMEOUT: Duration = Duration::from_secs(1);
const CALLS_AT_A_TIME: usize = 20;
