//! Providers that are named, and move.

use std::fs;
use std::net::SocketAddr;

use mesh_tests::peer::{Listener, Peer, answer, request, text};

use crate::sidecar::Sidecar;

/// A name is looked up again and again: calls move to what it means now, and those that are on
/// their way to what it meant before still get their answers.
#[test]
#[ignore = "needs root; .ci/run runs it"]
fn calls_follow_a_name_that_moves() {
    let before = Listener::bind();
    let port = before.address().port();
    let now = Listener::bind_to(SocketAddr::from(([127, 0, 0, 2], port)));
    let folder = tempfile::tempdir().expect("a folder");
    let hosts = folder.path().join("hosts");
    // Written in place: it is this file that stands over the system's.
    let name_is = |ip: &str| fs::write(&hosts, format!("{ip} shop.mesh.test\n")).expect("written");
    name_is("127.0.0.1");
    let services = format!(
        "    - {{ key: shop.Named, endpoints: [\"shop.mesh.test:{port}\"] }}\n\
         limits: {{ resolve_interval: 1s }}\n"
    );
    let sidecar = Sidecar::outbound_with_hosts(&hosts, &services);
    let mut first = before.accept();
    let mut consumer = Peer::connect(sidecar.address());
    consumer.send(&request(1, "shop.Named", "hello", "x"));
    let waiting = first.receive_call();

    name_is("127.0.0.2");
    let mut second = now.accept();
    consumer.send(&request(2, "shop.Named", "hello", "x"));
    let call = second.receive_call();
    second.send(&answer(call.head.id, "now"));
    assert_eq!(text(&consumer.receive_call()), "now");
    first.send(&answer(waiting.head.id, "before"));
    assert_eq!(text(&consumer.receive_call()), "before");
    first.expect_end();
}
