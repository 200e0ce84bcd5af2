use std::time::{Duration, Instant};

use super::{frame, start};
use crate::frame::Limits;
use crate::head::{HEAD_LEN, Head, Kind, RequestId, Serialization, Status};
use crate::mux::{Client, Config, Event, Outgoing, Refusal, Refused, Written};

fn call(body: &[u8], deadline: Instant) -> Outgoing<'_> {
    Outgoing {
        serialization: Serialization::HESSIAN2,
        body,
        deadline,
    }
}

const OK: Kind = Kind::Response { status: Status::OK };

#[test]
fn replies_come_in_any_order_and_once() {
    let t0 = start();
    let mut client = Client::new(t0, Config::default());
    let a = client
        .send(call(b"a", t0 + Duration::from_secs(1)), 'a')
        .expect("room");
    let b = client
        .send(call(b"b", t0 + Duration::from_secs(1)), 'b')
        .expect("room");
    let mut bytes = [
        frame(OK, b, b"B"),
        frame(OK, b, b"again"),
        frame(OK, a, b"A"),
    ]
    .concat();
    bytes.truncate(bytes.len() - 1);
    let mut input = &bytes[..];
    let reply = |waiter, body| Event::Reply {
        waiter,
        status: Status::OK,
        serialization: Serialization::HESSIAN2,
        body,
    };
    assert_eq!(
        client.receive(t0, &mut input),
        Ok(Some(reply('b', &b"B"[..])))
    );
    assert_eq!(client.receive(t0, &mut input), Ok(None));
    assert_eq!(
        (client.strays(), input.len()),
        (1, HEAD_LEN),
        "the cut frame stays"
    );
    let rest = [input, b"A"].concat();
    assert_eq!(
        client.receive(t0, &mut &rest[..]),
        Ok(Some(reply('a', &b"A"[..])))
    );
    assert_eq!(client.in_flight(), 0);
}

#[test]
fn a_late_answer_is_a_stray() {
    let t0 = start();
    let mut client = Client::new(t0, Config::default());
    let id = client
        .send(call(b"", t0 + Duration::from_millis(5)), ())
        .expect("room");
    assert!(client.poll_timeout() <= t0 + Duration::from_millis(6));
    assert_eq!(client.handle_timeout(t0 + Duration::from_millis(4)), None);
    let late = t0 + Duration::from_millis(6);
    assert_eq!(
        client.handle_timeout(late),
        Some(Event::TimedOut { waiter: () })
    );
    assert_eq!(client.handle_timeout(late), None);
    assert_eq!(client.receive(late, &mut &frame(OK, id, b"")[..]), Ok(None));
    assert_eq!(client.strays(), 1);
}

#[test]
fn a_loss_tells_what_was_certainly_not_run() {
    let t0 = start();
    let mut client = Client::new(t0, Config::default());
    for waiter in ["whole", "cut", "unsent"] {
        client
            .send(call(b"body", t0 + Duration::from_secs(1)), waiter)
            .expect("room");
    }
    client.sent(t0, HEAD_LEN + 4 + HEAD_LEN + 3);
    let lost: Vec<_> = client.into_lost().collect();
    let no = Written::No;
    assert_eq!(
        lost,
        [("whole", Written::Maybe), ("cut", no), ("unsent", no)]
    );
}

#[test]
fn what_does_not_fit_is_handed_back() {
    let t0 = start();
    let config = Config {
        limits: Limits { max_body: 10 },
        max_calls: 2,
        max_queued: 40,
        ..Config::default()
    };
    let mut client = Client::new(t0, config);
    let mut why = |body: &[u8]| {
        client
            .send(call(body, t0), 7)
            .map_err(|r| (r.waiter, r.why))
    };
    assert_eq!(why(&[0; 11]), Err((7, Refusal::TooLong)));
    assert!(why(&[0; 10]).is_ok());
    assert!(why(&[0; 10]).is_ok());
    assert_eq!(why(b""), Err((7, Refusal::Queue)));
    client.sent(t0, 52);
    let mut why = |body: &[u8]| client.send(call(body, t0), 7).map_err(|r| r.why);
    assert_eq!(why(b""), Err(Refusal::Calls));
    client.drain();
    let refused = client.send(call(b"", t0), 7);
    assert_eq!(
        refused,
        Err(Refused {
            waiter: 7,
            why: Refusal::Draining
        })
    );
}

#[test]
fn heartbeats_are_asked_and_answered() {
    let t0 = start();
    let at = |s| t0 + Duration::from_secs(s);
    let mut client = Client::<()>::new(t0, Config::default());
    assert_eq!(client.poll_timeout(), at(60));
    assert_eq!(client.handle_timeout(at(60)), None);
    let head = client
        .output()
        .first_chunk()
        .and_then(Head::decode)
        .expect("a head");
    assert_eq!(head.kind, Kind::Event { two_way: true });
    client.sent(at(60), client.output().len());

    let id = RequestId(77);
    let asked = frame(Kind::Event { two_way: true }, id, b"N");
    assert_eq!(client.receive(at(61), &mut &asked[..]), Ok(None));
    let answer = frame(Kind::EventResponse { status: Status::OK }, id, b"N");
    assert_eq!(client.output(), answer);
    assert_eq!(client.handle_timeout(at(300)), Some(Event::Dead));
}

#[test]
fn readonly_stops_new_calls_alone() {
    let t0 = start();
    let mut client = Client::new(t0, Config::default());
    let id = client
        .send(call(b"", t0 + Duration::from_secs(1)), 1)
        .expect("room");
    let notice = |text| frame(Kind::Event { two_way: false }, RequestId(0), text);
    let read_only = notice(b"\x01R");
    assert_eq!(
        client.receive(t0, &mut &read_only[..]),
        Ok(Some(Event::ReadOnly))
    );
    let refused = client.send(call(b"", t0), 2).expect_err("read only");
    assert_eq!(refused.why, Refusal::Draining);
    let reply = frame(OK, id, b"");
    assert!(matches!(
        client.receive(t0, &mut &reply[..]),
        Ok(Some(Event::Reply { waiter: 1, .. }))
    ));
    let writeable = notice(b"\x01W");
    assert_eq!(
        client.receive(t0, &mut &writeable[..]),
        Ok(Some(Event::Writeable))
    );
    assert!(client.send(call(b"", t0), 2).is_ok());
}

#[test]
fn only_an_answer_to_a_heartbeat_of_ours_proves_a_peer() {
    let t0 = start();
    let mut client = Client::<()>::new(t0, Config::default());
    client.ping();
    let beat = Head::decode(client.output().first_chunk().expect("a heartbeat")).expect("a head");
    let answer = Kind::EventResponse { status: Status::OK };
    let alien = RequestId(beat.id.0 + 1);
    for (bytes, proven) in [
        (
            frame(Kind::Event { two_way: true }, RequestId(1), b"N"),
            false,
        ),
        (frame(answer, RequestId(0), b"N"), false),
        (frame(answer, alien, b"N"), false),
        (frame(answer, beat.id, b"N"), true),
    ] {
        assert_eq!(client.receive(t0, &mut &bytes[..]), Ok(None));
        assert_eq!(client.is_answered(), proven, "{bytes:x?}");
    }
}
