//! Frames at the edge of the protocol, from scripted peers on both sides of a sidecar.

use bytes::Bytes;
use dubbo_proto::head::{Kind, Status};
use mesh_tests::peer::{
    Listener, Peer, answer, frame, hello_up_to_attachments, request, status, text,
};

use crate::sidecar::{Sidecar, service};

/// A result that is nothing but attachments, one with a null in it, one with a byte too many.
#[test]
fn a_null_result_with_attachments_passes_as_it_is() {
    let mut path = Path::new();
    for body in [
        &b"\x95H\x05dubbo\x052.0.2Z"[..],
        b"\x95H\x05dubbo\x052.0.2\x04noneNZ",
        b"\x95H\x05dubbo\x052.0.2ZN",
    ] {
        path.consumer.send(&request(7, SERVICE, "hello", "x"));
        let call = path.provider.receive_call();
        let ok = Kind::Response { status: Status::OK };
        path.provider.send(&frame(ok, call.head.id.0, body));
        let got = path.consumer.receive_call();
        assert_eq!((got.head.kind, got.head.id.0), (ok, 7));
        assert_eq!(got.body, Bytes::from_static(body));
    }
    path.works();
    let first_and_last = 2;
    assert_eq!(path.sidecar.finished("ok"), 3 + first_and_last);
}

/// Some proxies write a null where the attachments belong, which Java takes.
#[test]
fn null_in_place_of_attachments_passes_as_it_is() {
    let mut path = Path::new();
    let body = [&hello_up_to_attachments(SERVICE)[..], b"N"].concat();
    path.consumer.send(&frame(TWO_WAY, 7, &body));
    let call = path.provider.receive_call();
    assert_eq!(call.body, body);
    path.provider.send(&answer(call.head.id, "fine"));
    assert_eq!(text(&path.consumer.receive_call()), "fine");
}

#[test]
fn a_call_without_attachments_at_all_fails_alone() {
    let mut path = Path::new();
    let body = hello_up_to_attachments(SERVICE);
    path.consumer.send(&frame(TWO_WAY, 7, &body));
    let refusal = path.consumer.receive_call();
    assert_eq!(
        (status(&refusal), refusal.head.id.0),
        (Status::BAD_REQUEST, 7)
    );
    path.works();
}

#[test]
fn an_impossible_length_from_a_consumer_ends_its_connection_alone() {
    let mut path = Path::new();
    for len in [u32::MAX, 1 << 31, (1 << 31) - 1] {
        let mut bad = Peer::connect(path.sidecar.address());
        for id in 1..=3 {
            bad.send(&request(id, SERVICE, "hello", "x"));
        }
        let pending: Vec<_> = (1..=3).map(|_| path.provider.receive_call()).collect();
        bad.send(&bare_head(&frame(TWO_WAY, u64::MAX, b""), len));
        let refusal = bad.receive_call();
        assert_eq!(
            (status(&refusal), refusal.head.id.0),
            (Status::BAD_REQUEST, u64::MAX)
        );
        // Nothing more is read from it; the calls that it made are answered, and then it is closed.
        for call in pending {
            path.provider.send(&answer(call.head.id, "fine"));
            assert_eq!(text(&bad.receive_call()), "fine");
        }
        bad.expect_end();
        path.works();
    }
}

#[test]
fn a_negative_length_from_a_provider_fails_its_calls_and_is_dialled_again() {
    let mut path = Path::new();
    path.consumer.send(&request(7, SERVICE, "hello", "x"));
    let call = path.provider.receive_call();
    let head = frame(Kind::Response { status: Status::OK }, call.head.id.0, b"");
    path.provider.send(&bare_head(&head, u32::MAX));
    let failure = path.consumer.receive_call();
    assert_eq!(
        (status(&failure), failure.head.id.0),
        (Status::SERVER_ERROR, 7)
    );
    path.provider.expect_end();
    path.provider = path.listener.accept();
    path.works();
}

#[test]
fn a_reply_over_the_limit_fails_its_call() {
    let mut path = Path::new();
    path.consumer.send(&request(7, SERVICE, "hello", "x"));
    let call = path.provider.receive_call();
    let head = frame(Kind::Response { status: Status::OK }, call.head.id.0, b"");
    path.provider.send(&bare_head(&head, (1 << 31) - 1));
    let failure = path.consumer.receive_call();
    assert_eq!(
        (status(&failure), failure.head.id.0),
        (Status::SERVER_ERROR, 7)
    );
    assert!(text(&failure).starts_with("UPE "), "{}", text(&failure));
}

/// A scripted consumer, a sidecar, a scripted provider.
struct Path {
    consumer: Peer,
    sidecar: Sidecar,
    provider: Peer,
    listener: Listener,
}

impl Path {
    /// All connected, after one call that went through.
    #[track_caller]
    fn new() -> Self {
        let listener = Listener::bind();
        let sidecar = Sidecar::outbound(&service(SERVICE, &[listener.address()]));
        let mut consumer = Peer::connect(sidecar.address());
        consumer.send(&request(1, SERVICE, "hello", "first"));
        let mut provider = listener.accept();
        let call = provider.receive_call();
        provider.send(&answer(call.head.id, "first"));
        assert_eq!(text(&consumer.receive_call()), "first");
        Self {
            consumer,
            sidecar,
            provider,
            listener,
        }
    }

    /// A further call goes through on the connections that are there.
    #[track_caller]
    fn works(&mut self) {
        self.consumer.send(&request(99, SERVICE, "hello", "x"));
        let call = self.provider.receive_call();
        self.provider.send(&answer(call.head.id, "works"));
        let got = self.consumer.receive_call();
        assert_eq!((text(&got).as_str(), got.head.id.0), ("works", 99));
    }
}

/// The head of `frame`, claiming a body of `len` bytes.
fn bare_head(frame: &[u8], len: u32) -> Vec<u8> {
    [&frame[..12], &len.to_be_bytes()].concat()
}

const SERVICE: &str = "shop.Raw";
const TWO_WAY: Kind = Kind::Request { two_way: true };
