//! dubbo-go, with itself and with Java.

use std::net::{Ipv4Addr, SocketAddr};

use dubbo_proto::head::{Kind, Status};
use mesh_tests::peer::{Peer, frame, hello_up_to_attachments, status, text};
use mesh_tests::process::free_port;
use mesh_tests::tcp::{self, State};

use crate::faults::finds_back;
use crate::peers::{Consumer, Line, Provider};
use crate::sidecar::{Sidecar, service};

#[test]
#[ignore = "needs Go; .ci/run runs it"]
fn go_calls_go_through_one_sidecar() {
    let provider = Provider::go();
    let sidecar = Sidecar::outbound(&service(KEY, &[provider.address()]));
    make_every_call(sidecar.address());
}

#[test]
#[ignore = "needs Go; .ci/run runs it"]
fn go_calls_go_through_two_sidecars() {
    let provider = Provider::go();
    let inbound = Sidecar::inbound(provider.address());
    let outbound = Sidecar::outbound(&service(KEY, &[inbound.address()]));
    make_every_call(outbound.address());
}

#[test]
#[ignore = "needs Go and a JDK; .ci/run runs it"]
fn go_and_java_call_each_other() {
    let provider = Provider::java(Line::V33);
    let sidecar = Sidecar::outbound(&service(KEY, &[provider.address()]));
    let mut consumer = Consumer::go(sidecar.address());
    consumer.gets("hello w", "hello w from plain-g1");
    consumer.gets("label", "{tea! 42 [green]}");
    consumer.gets("attachments", "t-1");
    consumer.fails("fail bang", &["java.lang.IllegalStateException - bang"]);

    let provider = Provider::go();
    let sidecar = Sidecar::outbound(&service(KEY, &[provider.address()]));
    for line in [Line::V27, Line::V33] {
        let mut consumer = Consumer::java(line, sidecar.address());
        consumer.gets("group x", "hello x from go");
        consumer.gets("label", "tea! 42 [green, black]");
    }
}

/// Some proxies write a null where the attachments belong: to Go a call without group and version.
#[test]
#[ignore = "needs Go; .ci/run runs it"]
fn a_call_with_null_for_attachments_is_answered_by_go_too() {
    let provider = Provider::go();
    let sidecar = Sidecar::outbound(&service("shop.Shop", &[provider.address()]));
    for to in [provider.address(), sidecar.address()] {
        let mut consumer = Peer::connect(to);
        consumer.send(&hello_with_null(7));
        assert_eq!(text(&consumer.receive_call()), "hello x from go");
    }
}

/// Go closes the connection on which such a call comes, with all others that are on it.
#[test]
#[ignore = "needs Go; .ci/run runs it"]
fn a_call_without_attachments_does_not_cost_the_connection_to_go() {
    let provider = Provider::go();
    let broken = frame(TWO_WAY, 7, &hello_up_to_attachments("shop.Shop"));
    let mut direct = Peer::connect(provider.address());
    direct.send(&broken);
    direct.expect_end();

    let sidecar = Sidecar::outbound(&service("shop.Shop", &[provider.address()]));
    let mut consumer = Peer::connect(sidecar.address());
    let mut upstream = Vec::new();
    for round in 0..3 {
        consumer.send(&hello_with_null(8));
        assert_eq!(text(&consumer.receive_call()), "hello x from go");
        let now = connections_to(provider.address());
        assert!(round == 0 || upstream == now, "{upstream:?}, then {now:?}");
        upstream = now;
        consumer.send(&broken);
        assert_eq!(status(&consumer.receive_call()), Status::BAD_REQUEST);
    }
}

#[test]
#[ignore = "needs Go; .ci/run runs it"]
fn go_is_told_of_a_dead_provider_in_words_and_finds_a_restarted_sidecar() {
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let sidecar = Sidecar::outbound(&service(KEY, &[nobody]));
    let dead = Consumer::go(sidecar.address()).ask("hello x");
    let told = dead.contains("UF ") || dead.contains("UH ");
    assert!(told && dead.contains(&nobody.to_string()), "{dead}");

    let provider = Provider::go();
    let mut sidecar = Sidecar::outbound(&service(KEY, &[provider.address()]));
    let mut consumer = Consumer::go(sidecar.address());
    consumer.gets("hello 1", "hello 1 from go");
    for end in [Sidecar::kill, Sidecar::stop] {
        end(&mut sidecar);
        sidecar.restart();
        finds_back(&mut consumer, "ok hello back from go");
    }
}

fn hello_with_null(id: u64) -> Vec<u8> {
    let body = [&hello_up_to_attachments("shop.Shop")[..], b"N"].concat();
    frame(TWO_WAY, id, &body)
}

/// From where there are connections to `address`.
fn connections_to(address: SocketAddr) -> Vec<SocketAddr> {
    let established = |s: &tcp::Socket| s.remote == address && s.state == State::Established;
    let sockets = tcp::sockets().into_iter().filter(established);
    sockets.map(|socket| socket.local).collect()
}

/// With the answers that a direct connection gives too.
#[track_caller]
fn make_every_call(through: SocketAddr) {
    let mut consumer = Consumer::go(through);
    consumer.gets("hello w", "hello w from go");
    consumer.gets("label", "{tea! 42 [green]}");
    consumer.gets("attachments", "t-1");
    consumer.fails("fail bang", &["java.lang.Throwable - bang"]);
    consumer.fails(
        "refuse bang",
        &["java.lang.IllegalArgumentException - bang"],
    );
    consumer.gets("nap 20", "napped 20");
    consumer.fails("missing-method x", &["cannot find method [missing-method]"]);
    consumer.fails("absent x", &["NR ", "shop.Absent"]);
    // An answer after the caller gave up would break its connection: the calls after it show none came.
    consumer.fails("timeout 600", &[]);
    consumer.gets("nap 700", "napped 700");
    consumer.gets("hello again", "hello again from go");
}

const KEY: &str = "g1/shop.Shop:1.0.0";
const TWO_WAY: Kind = Kind::Request { two_way: true };
