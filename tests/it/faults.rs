//! Faults of real sockets: what is lost, and that nothing else is.

use std::time::Duration;

use dubbo_proto::head::{Kind, RequestId, Status};
use mesh_tests::{
    peer::{Listener, answer, frame, text},
    wait::until,
};

use mesh_tests::proxy::{Proxy, call, outbound, trio};

const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn calls_go_on_by_themselves_when_a_provider_comes_back() {
    let (_proxy, mut application, listener, mut provider) = trio("");
    application.send(&call(1, "save"));
    provider.receive_call();
    provider.reset();
    let lost = application.receive_call();
    assert_eq!(
        lost.head.kind,
        Kind::Response {
            status: Status::SERVER_ERROR
        }
    );
    assert!(
        text(&lost).starts_with("UC upstream connection lost: "),
        "{}",
        text(&lost)
    );
    application.send(&call(2, "save"));
    let mut provider = listener.accept();
    let seen = provider.receive_call();
    provider.send(&answer(seen.head.id, "world"));
    assert_eq!(application.receive_call().head.id, RequestId(2));
}

#[test]
fn a_provider_that_is_not_there_is_named_at_once_when_hope_is_over() {
    let gone = Listener::bind().address();
    let proxy = Proxy::start(&(outbound(&[gone], "") + "limits: { reconnect_wait: 50ms }\n"));
    let mut application = proxy.connect();
    let text = until("the end of hope", PATIENCE, || {
        application.send(&call(1, "find"));
        let failed = text(&application.receive_call());
        failed.starts_with("UH ").then_some(failed)
    });
    assert!(text.contains(&format!("connect to {gone}: ")), "{text}");
}

#[test]
fn broken_bytes_of_a_provider_cost_its_connection_and_nothing_else() {
    let (_proxy, mut application, listener, mut provider) = trio("");
    application.send(&call(1, "save"));
    provider.receive_call();
    provider.send(b"HTTP/1.1 400 what");
    provider.expect_end();
    assert!(text(&application.receive_call()).starts_with("UPE bad answer from upstream"));
    let mut provider = listener.accept();
    application.send(&call(2, "save"));
    let id = provider.receive_call().head.id;
    let mut negative = frame(Kind::Response { status: Status::OK }, id.0, b"");
    negative[12..].copy_from_slice(&(-1i32).to_be_bytes());
    provider.send(&negative);
    provider.expect_end();
    assert!(text(&application.receive_call()).starts_with("UPE "));
}

#[test]
fn an_idempotent_call_survives_its_host() {
    let (one, two) = (Listener::bind(), Listener::bind());
    let more = "      idempotent: [find]\n      retries: 1\n";
    let proxy = Proxy::outbound(&[one.address(), two.address()], more);
    let (mut one, mut two) = (one.accept(), two.accept());
    let mut application = proxy.connect();
    // Both hosts get calls until each has one.
    let mut id = 0;
    let mut ask = |peer: &mut mesh_tests::peer::Peer| {
        id += 1;
        peer.send(&call(id, "find"));
        id
    };
    let sent: Vec<u64> = (0..20).map(|_| ask(&mut application)).collect();
    let first = one.receive_call();
    assert!(sent.len() == 20 && first.head.id != RequestId(0));
    one.reset();
    for _ in 0..20 {
        let seen = two.receive_call();
        two.send(&answer(seen.head.id, "world"));
    }
    let mut answered: Vec<u64> = (0..20)
        .map(|_| application.receive_call().head.id.0)
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, sent, "each once, none lost");
}

#[test]
fn a_drain_finishes_what_is_in_flight_and_takes_nothing_new() {
    let (mut proxy, mut application, _listener, mut provider) = trio("");
    application.send(&call(1, "find"));
    let seen = provider.receive_call();
    proxy.drain.begin();
    let notice = application.receive();
    assert_eq!(notice.head.kind, Kind::Event { two_way: false });
    assert_eq!(&notice.body[..], b"\x01R");
    provider.send(&answer(seen.head.id, "world"));
    assert_eq!(text(&application.receive_call()), "world");
    application.expect_end();
    proxy.end();
}

#[test]
fn a_reload_moves_calls_without_touching_a_connection() {
    let (one, two) = (Listener::bind(), Listener::bind());
    let proxy = Proxy::outbound(&[one.address()], "");
    let mut first = one.accept();
    let mut application = proxy.connect();
    application.send(&call(1, "find"));
    let seen = first.receive_call();
    std::fs::write(&proxy.file, outbound(&[two.address()], "")).expect("written");
    let mut second = two.accept();
    until("calls to move", PATIENCE, || {
        application.send(&call(2, "find"));
        let frame = second.receive_call();
        second.send(&answer(frame.head.id, "two"));
        Some(())
    });
    assert_eq!(text(&application.receive_call()), "two");
    first.send(&answer(seen.head.id, "one"));
    assert_eq!(
        text(&application.receive_call()),
        "one",
        "the old host still answers"
    );
    first.expect_end();
}
