use std::time::Duration;

use super::start;
use crate::frame::{self, Limits};
use crate::head::{Kind, RequestId, Status};
use crate::mux::{Config, Life, Server};

fn frame(kind: Kind, id: u64, body: &[u8]) -> Vec<u8> {
    super::frame(kind, RequestId(id), body)
}

fn heads(mut bytes: &[u8]) -> Vec<(Kind, u64)> {
    let mut heads = Vec::new();
    while let Some((head, _)) = frame::cut(&mut bytes, Limits::default()).expect("frames") {
        heads.push((head.kind, head.id.0));
    }
    assert!(bytes.is_empty());
    heads
}

const CALL: Kind = Kind::Request { two_way: true };

#[test]
fn calls_are_handed_out_and_heartbeats_are_not() {
    let t0 = start();
    let mut server = Server::new(t0, Config::default());
    let one_way = Kind::Request { two_way: false };
    let bytes = [
        frame(CALL, 1, b"one"),
        frame(Kind::Event { two_way: true }, 2, b"N"),
        frame(Kind::Event { two_way: false }, 3, b"N"),
        frame(one_way, 4, b"four"),
    ]
    .concat();
    let mut input = &bytes[..];
    let call = server
        .receive(t0, &mut input)
        .expect("frames")
        .expect("a call");
    assert_eq!((call.id.0, call.two_way, call.body), (1, true, &b"one"[..]));
    let call = server
        .receive(t0, &mut input)
        .expect("frames")
        .expect("a call");
    assert_eq!(
        (call.id.0, call.two_way, call.body),
        (4, false, &b"four"[..])
    );
    assert_eq!(server.receive(t0, &mut input), Ok(None));
    let ok = Status::OK;
    assert_eq!(
        heads(server.output()),
        [(Kind::EventResponse { status: ok }, 2)]
    );
    assert_eq!(server.in_flight(), 1, "nobody answers the one-way call");
}

#[test]
fn one_call_too_many_is_answered_at_once() {
    let t0 = start();
    let config = Config {
        max_calls: 1,
        ..Config::default()
    };
    let mut server = Server::new(t0, config);
    let bytes = [frame(CALL, 1, b""), frame(CALL, 2, b"")].concat();
    let mut input = &bytes[..];
    assert!(server.receive(t0, &mut input).expect("frames").is_some());
    assert_eq!(server.receive(t0, &mut input), Ok(None));
    let status = Status::THREADPOOL_EXHAUSTED;
    assert_eq!(heads(server.output()), [(Kind::Response { status }, 2)]);
}

#[test]
fn a_peer_that_does_not_read_is_not_read() {
    let t0 = start();
    let config = Config {
        max_queued: 20,
        ..Config::default()
    };
    let mut server = Server::new(t0, config);
    let beat = frame(Kind::Event { two_way: true }, 1, b"N");
    let bytes = beat.repeat(3);
    let mut input = &bytes[..];
    assert_eq!(server.receive(t0, &mut input), Ok(None));
    assert_eq!(input.len(), beat.len(), "the third waits");
    server.sent(t0, server.output().len());
    assert_eq!(server.receive(t0, &mut input), Ok(None));
    assert!(input.is_empty());
}

#[test]
fn a_body_too_long_is_told_before_the_close() {
    let t0 = start();
    let config = Config {
        limits: Limits { max_body: 3 },
        ..Config::default()
    };
    let mut server = Server::new(t0, config);
    assert!(
        server
            .receive(t0, &mut &frame(CALL, 9, b"four")[..])
            .is_err()
    );
    let status = Status::BAD_REQUEST;
    assert_eq!(heads(server.output()), [(Kind::Response { status }, 9)]);
    let mut server = Server::new(t0, config);
    assert!(server.receive(t0, &mut &b"GET / HTTP/1.1"[..]).is_err());
    assert!(server.output().is_empty());
}

#[test]
fn drained_when_the_last_answer_is_written() {
    let t0 = start();
    let mut server = Server::new(t0, Config::default());
    assert!(
        server
            .receive(t0, &mut &frame(CALL, 1, b"")[..])
            .expect("a frame")
            .is_some()
    );
    server.drain();
    server.drain();
    assert_eq!(heads(server.output()).len(), 1, "READONLY once");
    server.sent(t0, server.output().len());
    assert!(!server.is_drained(), "one answer is owed");
    let answer = frame(Kind::Response { status: Status::OK }, 1, b"");
    server.answer(|out| out.extend_from_slice(&answer));
    assert!(!server.is_drained(), "and not yet written");
    server.sent(t0, answer.len());
    assert!(server.is_drained());
}

#[test]
fn a_silent_peer_is_dead() {
    let t0 = start();
    let mut server = Server::new(t0, Config::default());
    assert_eq!(
        server.handle_timeout(t0 + Duration::from_secs(60)),
        Life::Alive
    );
    assert_eq!(heads(server.output()), [(Kind::Event { two_way: true }, 0)]);
    assert_eq!(
        server.handle_timeout(t0 + Duration::from_secs(180)),
        Life::Dead
    );
}
