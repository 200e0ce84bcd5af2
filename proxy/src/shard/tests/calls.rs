//! Calls that go well, and those that are refused.

use super::*;
use crate::metrics::{CloseReason, Outcome, Stray};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_call_goes_out_under_an_id_of_ours_and_its_answer_comes_back_under_the_callers() {
    let mut world = World::up(1, |_, _| {});
    let (a, b) = (world.open(), world.open());
    world.request(
        a,
        &[
            call(7, "find", true, &[]),
            call(u64::MAX, "find", true, &[]),
        ]
        .concat(),
    );
    world.request(b, &call(7, "find", true, &[]));
    let sent = world.host_saw(0);
    let sent_body = call(7, "find", true, &[])[HEAD_LEN..].to_vec();
    assert!(
        sent.iter().all(|frame| frame.body == sent_body),
        "bodies are not touched"
    );
    let mut ids: Vec<_> = sent.iter().map(Seen::id).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3, "clients' ids collide, ours do not");
    let answers: Vec<u8> = sent.iter().rev().flat_map(answer).collect();
    world.reply(0, &answers);
    assert_eq!(
        world
            .session_saw(a)
            .iter()
            .map(Seen::id)
            .collect::<Vec<_>>(),
        [u64::MAX, 7]
    );
    let to_b = world.session_saw(b);
    assert_eq!(to_b.iter().map(Seen::id).collect::<Vec<_>>(), [7]);
    assert_eq!(to_b[0].body, answer(&sent[2])[HEAD_LEN..]);
    assert_eq!(
        world.core.stats.calls[Side::Outbound].finished[Outcome::Ok],
        3
    );
    assert!(world.core.calls.is_empty() && world.core.deadlines.is_empty());
}

#[test]
fn late_duplicate_and_alien_answers_are_dropped_and_counted() {
    let mut world = World::up(2, |_, _| {});
    let session = world.open();
    world.request(session, &call(1, "find", true, &[]));
    let (host, sent) = [0, 1]
        .map(|h| (h, world.host_saw(h)))
        .into_iter()
        .find(|(_, s)| !s.is_empty())
        .expect("one host got it");
    let good = answer(&sent[0]);
    world.reply(1 - host, &good);
    assert!(
        world.session_saw(session).is_empty(),
        "not the host that was asked"
    );
    world.reply(host, &[good.clone(), good.clone()].concat());
    assert_eq!(world.session_saw(session).len(), 1);
    let stray = &world.core.stats.upstream.stray;
    assert_eq!((stray[Stray::Alien], stray[Stray::Late]), (1, 1));
    assert_eq!(stray.total(), 2);
}

#[test]
fn an_unknown_service_is_answered_and_one_way_calls_are_not() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    world.request(
        session,
        &call_of("com.foo.Other", "2.0.0", 5, "x", true, &[("group", "g")]),
    );
    world.request(
        session,
        &call_of("com.foo.Other", "2.0.0", 6, "x", false, &[]),
    );
    let seen = world.session_saw(session);
    assert_eq!(
        (seen.len(), seen[0].id(), seen[0].status()),
        (1, 5, Status::SERVICE_NOT_FOUND)
    );
    assert!(
        seen[0]
            .text()
            .contains("NR no route found: service g/com.foo.Other:2.0.0")
    );
    assert!(world.host_saw(0).is_empty());
}

#[test]
fn attachments_decide_what_is_called() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    let evil = call(
        1,
        "find",
        true,
        &[("path", "com.foo.Evil"), ("interface", "com.foo.Evil")],
    );
    world.request(session, &evil);
    assert_eq!(
        world.session_saw(session)[0].status(),
        Status::SERVICE_NOT_FOUND
    );
    world.request(session, &call(2, "find", true, &[("path", "custom/path")]));
    assert_eq!(
        world.host_saw(0).len(),
        1,
        "a path of the provider's own: the interface decides"
    );
}

#[test]
fn one_way_calls_leave_nothing_behind() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    world.request(session, &call(1, "note", false, &[]));
    let sent = world.host_saw(0);
    assert_eq!(sent[0].head.kind, Kind::Request { two_way: false });
    assert!(world.core.calls.is_empty());
    assert_eq!(world.core.stats.calls[Side::Outbound].one_way, 1);
}

#[test]
fn the_answer_that_time_is_over_comes_before_the_caller_gives_up_and_is_the_last() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    world.request(session, &call(1, "find", true, &[("timeout", "1000")]));
    let sent = world.host_saw(0);
    world.wait(979 * MS);
    assert!(world.session_saw(session).is_empty());
    world.wait(2 * MS);
    let seen = world.session_saw(session);
    assert_eq!(
        (seen[0].id(), seen[0].status()),
        (1, Status::SERVER_TIMEOUT)
    );
    assert!(
        seen[0]
            .text()
            .contains("UT deadline passed: no answer of 127.0.0.1:20880 within 980")
    );
    world.reply(0, &answer(&sent[0]));
    assert!(world.session_saw(session).is_empty());
    assert_eq!(world.core.stats.upstream.stray[Stray::Late], 1);
}

#[test]
fn a_call_whose_deadline_passed_on_its_way_is_not_sent() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    world.request(
        session,
        &call(1, "find", true, &[("_TO", "-3"), ("timeout", "1000")]),
    );
    assert_eq!(
        world.session_saw(session)[0].status(),
        Status::SERVER_TIMEOUT
    );
    assert!(world.host_saw(0).is_empty());
}

#[test]
fn heartbeats_are_answered_on_each_side_and_go_no_further() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    let beat = frame(Kind::Event { two_way: true }, 9, b"N");
    world.request(session, &beat);
    world.reply(0, &beat);
    for seen in [world.session_saw(session), world.host_saw(0)] {
        assert_eq!(seen.len(), 1);
        assert_eq!(
            (seen[0].id(), seen[0].body.as_slice()),
            (9, b"N".as_slice())
        );
        assert!(matches!(seen[0].head.kind, Kind::EventResponse { .. }));
    }
    world.request(session, &frame(Kind::Event { two_way: false }, 9, b"N"));
    world.request(
        session,
        &frame(Kind::EventResponse { status: Status::OK }, 9, b"N"),
    );
    assert!(world.session_saw(session).is_empty(), "nobody waits");
}

#[test]
fn silence_is_broken_by_heartbeats_and_ended_by_a_close() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    world.wait(Duration::from_secs(61));
    assert_eq!(
        world.session_saw(session).len(),
        1,
        "ours to the application"
    );
    assert!(
        world.host_saw(0).len() >= 2,
        "ours to the provider, until it counted as lost"
    );
    world.wait(Duration::from_secs(120));
    assert!(world.actions.contains(&Action::Close(session)));
    assert!(world.actions.contains(&Action::Hang(HostId(0))));
}

#[test]
fn a_providers_readonly_takes_it_out_of_the_picks_and_is_not_passed_on() {
    let mut world = World::up(2, |_, _| {});
    let session = world.open();
    world.request(session, &call(1, "find", true, &[]));
    let mut read_only = vec![];
    dubbo_proto::event::read_only(&mut read_only, RequestId(4));
    world.reply(0, &read_only);
    for id in 2..20 {
        world.request(session, &call(id, "find", true, &[]));
    }
    assert!(world.session_saw(session).is_empty());
    assert!(world.host_saw(0).len() <= 1, "only what came before");
    assert!(world.host_saw(1).len() >= 18);
    world.reply(0, &frame(Kind::Event { two_way: false }, 5, b"\x01W"));
    for id in 20..60 {
        world.request(session, &call(id, "find", true, &[]));
    }
    assert!(!world.host_saw(0).is_empty(), "WRITEABLE takes it back");
}

#[test]
fn the_sign_of_a_closing_address_is_cut_out_and_acted_on() {
    let mut world = World::up(2, |_, _| {});
    let session = world.open();
    world.request(session, &call(1, "find", true, &[]));
    let host = u32::from(world.core.hosts[1].in_flight == 1);
    let sent = world.host_saw(host);
    let body = b"\x94\x05world\x48\x05dubbo\x052.0.2\x07closing\x04true\x01a\x01bZN";
    let closing = frame(Kind::Response { status: Status::OK }, sent[0].id(), body);
    world.reply(host, &closing);
    let seen = world.session_saw(session);
    assert_eq!(seen[0].id(), 1);
    assert_eq!(
        seen[0].body,
        b"\x94\x05world\x48\x05dubbo\x052.0.2\x01a\x01bZN"
    );
    for id in 2..30 {
        world.request(session, &call(id, "find", true, &[]));
    }
    assert!(world.host_saw(host).is_empty());
}

#[test]
fn frames_in_the_wrong_direction_harm_nobody() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    world.reply(0, &call(3, "callback", true, &[]));
    world.reply(0, &call(4, "callback", false, &[]));
    let seen = world.host_saw(0);
    assert_eq!(
        (seen.len(), seen[0].id(), seen[0].status()),
        (1, 3, Status::BAD_REQUEST)
    );
    let alien = frame(Kind::Response { status: Status::OK }, 1, b"\x91\x90");
    world.request(session, &alien);
    assert!(world.session_saw(session).is_empty());
    world.request(session, &call(5, "find", true, &[]));
    assert_eq!(world.host_saw(0).len(), 1, "the session goes on");
}

#[test]
fn events_of_an_application_go_no_further() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    let mut read_only = vec![];
    dubbo_proto::event::read_only(&mut read_only, RequestId(4));
    world.request(session, &read_only);
    world.request(session, &frame(Kind::Event { two_way: true }, 5, b"\x01W"));
    let seen = world.session_saw(session);
    let answered = Kind::EventResponse { status: Status::OK };
    assert_eq!(
        (seen.len(), seen[0].id()),
        (1, 5),
        "the one that asks for it"
    );
    assert_eq!(seen[0].head.kind, answered);
    assert!(world.host_saw(0).is_empty());
    world.request(session, &call(6, "find", true, &[]));
    assert_eq!(world.host_saw(0).len(), 1, "its calls go on");
}

/// As 3.2 does, which tells errors in fastjson2.
#[test]
fn an_answer_in_another_serialization_is_passed_on_as_it_is() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    world.request(session, &call(1, "find", true, &[]));
    let sent = world.host_saw(0);
    let mut told = vec![];
    let (other, id) = (Serialization::from_bits(23), sent[0].head.id);
    reply::error(
        &mut told,
        other,
        id,
        Status::SERVICE_ERROR,
        "no such method",
    );
    world.reply(0, &told);
    let seen = world.session_saw(session);
    assert_eq!((seen.len(), seen[0].id()), (1, 1));
    assert_eq!(seen[0].head.serialization, other);
    assert_eq!(
        (seen[0].status(), &*seen[0].body),
        (Status::SERVICE_ERROR, &told[HEAD_LEN..])
    );
    let finished = &world.core.stats.calls[Side::Outbound].finished;
    assert_eq!((finished[Outcome::Error], finished.total()), (1, 1));
}

/// Attachments that others act on: tokens, tags, traces.
#[test]
fn what_is_not_ours_is_carried_untouched() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    let extra = [
        ("token", "t-1"),
        ("dubbo.tag", "gray"),
        ("dubbo.force.tag", "true"),
        (
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
    ];
    let sent = call(1, "find", true, &extra);
    world.request(session, &sent);
    assert_eq!(world.host_saw(0)[0].body, sent[HEAD_LEN..]);
}

#[test]
fn callbacks_are_refused_with_a_reason() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    world.request(
        session,
        &call(1, "listen", true, &[("sys_callback_arg-0", "17")]),
    );
    let seen = world.session_saw(session);
    assert_eq!(seen[0].status(), Status::BAD_REQUEST);
    assert!(
        seen[0]
            .text()
            .contains("DPE bad request: callback arguments")
    );
}

#[test]
fn a_broken_body_costs_its_call_and_a_broken_head_the_connection() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    let mut broken = call(1, "find", true, &[]);
    broken[HEAD_LEN] = 0x40;
    world.request(session, &[broken, call(2, "find", true, &[])].concat());
    let seen = world.session_saw(session);
    assert_eq!((seen[0].id(), seen[0].status()), (1, Status::BAD_REQUEST));
    let sent = world.host_saw(0);
    assert_eq!(sent.len(), 1, "the next call goes on");
    let mut long = call(u64::MAX, "find", true, &[])[..HEAD_LEN].to_vec();
    long[12..].copy_from_slice(&(-1i32).to_be_bytes());
    assert_eq!(world.feed(Key::Session(session), &long).next, Next::Stop);
    let seen = world.session_saw(session);
    assert_eq!(
        (seen[0].id(), seen[0].status()),
        (u64::MAX, Status::BAD_REQUEST)
    );
    assert!(world.actions.is_empty(), "a call is in flight");
    world.reply(0, &answer(&sent[0]));
    assert_eq!(world.session_saw(session)[0].id(), 2);
    assert_eq!(world.actions, [Action::Close(session)]);
    assert_eq!(
        world.core.stats.sessions[Side::Outbound].closed[CloseReason::BadHead],
        1
    );
}

/// Each limit of a body's shape, at it and one beyond.
#[test]
fn bodies_are_walked_within_the_limits_of_the_configuration() {
    type Change = fn(&mut Limits);
    let cases: [(&str, Change, &[u8], &[u8]); 5] = [
        (
            "too many levels",
            |limits| limits.body_depth = 3,
            b"\x79\x79\x79N",
            b"\x79\x79\x79\x79N",
        ),
        (
            "too many fields",
            |limits| limits.body_fields = 1,
            b"C\x01a\x91\x01x\x60N",
            b"C\x01a\x92\x01x\x01y\x60NN",
        ),
        (
            "too many class definitions",
            |limits| limits.body_types = 1,
            b"C\x01a\x90\x60",
            b"C\x01a\x90C\x01b\x90\x60",
        ),
        (
            "too many type names",
            |limits| limits.body_types = 1,
            b"\x79\x70\x01a",
            b"\x7a\x70\x01a\x70\x01b",
        ),
        // The map of attachments is one.
        (
            "too many containers",
            |limits| limits.body_references = 3,
            b"\x79\x78",
            b"\x7a\x78\x78",
        ),
    ];
    for (flaw, change, at, beyond) in cases {
        let mut world = World::up(1, |limits, _| change(limits));
        let session = world.open();
        world.request(session, &call_with(1, at));
        assert!(
            world.session_saw(session).is_empty(),
            "{flaw}: at the limit"
        );
        assert_eq!(world.host_saw(0).len(), 1);
        world.request(session, &call_with(2, beyond));
        let seen = world.session_saw(session);
        assert_eq!(seen.len(), 1, "{flaw}: beyond it");
        assert_eq!((seen[0].id(), seen[0].status()), (2, Status::BAD_REQUEST));
        let text = seen[0].text();
        assert!(
            text.contains("DPE bad request") && text.contains(flaw),
            "{text}"
        );
    }
    let mut world = World::up(1, |limits, _| limits.attachments = 4);
    let session = world.open();
    world.request(session, &call(1, "find", true, &[("a", "b")]));
    assert_eq!(world.host_saw(0).len(), 1);
    world.request(session, &call(2, "find", true, &[("a", "b"), ("c", "d")]));
    let text = world.session_saw(session)[0].text();
    assert!(text.contains("too many attachments"), "{text}");
}

/// A call with one argument, encoded already.
fn call_with(id: u64, arguments: &[u8]) -> Vec<u8> {
    let path = "com.foo.Greeter";
    let mut body = vec![];
    let call = Outgoing {
        path,
        version: "1.0.0",
        method: "find",
        types: "Ljava/lang/Object;",
        arguments,
        attachments: &[("path", path), ("version", "1.0.0")],
    };
    invocation::write(&mut body, &call);
    frame(Kind::Request { two_way: true }, id, &body)
}

#[test]
fn an_application_that_closed_its_side_still_gets_its_answers() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    world.request(session, &call(1, "find", true, &[]));
    let sent = world.host_saw(0);
    world.core.session_ended(session);
    assert!(world.actions.is_empty());
    world.reply(0, &answer(&sent[0]));
    assert_eq!(world.session_saw(session)[0].id(), 1);
    assert_eq!(world.actions, [Action::Close(session)]);
}

#[test]
fn drain_tells_everybody_waits_for_calls_and_closes() {
    let mut world = World::up(1, |_, _| {});
    let (busy, idle) = (world.open(), world.open());
    world.request(busy, &call(1, "find", true, &[]));
    let sent = world.host_saw(0);
    world.core.drain(world.now, Duration::from_secs(10));
    world.wait(300 * MS);
    for session in [busy, idle] {
        let seen = world.session_saw(session);
        assert_eq!(seen[0].head.kind, Kind::Event { two_way: false });
        assert_eq!(seen[0].body, b"\x01R");
    }
    assert_eq!(world.actions, [Action::Close(idle)]);
    assert!(!world.core.is_drained());
    world.reply(0, &answer(&sent[0]));
    assert_eq!(world.session_saw(busy).len(), 1);
    world.wait(300 * MS);
    assert!(world.actions.contains(&Action::Close(busy)) && world.core.is_drained());
}

#[test]
fn a_long_answer_of_a_provider_fails_its_call_alone() {
    let mut world = World::up(1, |limits, _| limits.max_body = 4096);
    let session = world.open();
    world.request(
        session,
        &[call(1, "find", true, &[]), call(2, "find", true, &[])].concat(),
    );
    let sent = world.host_saw(0);
    let long = frame(
        Kind::Response { status: Status::OK },
        sent[0].id(),
        &[0; 5000],
    );
    let taken = world.feed(Key::Host(0), &long[..100]);
    assert_eq!(
        taken,
        Taken {
            bytes: 0,
            next: Next::Skip(long.len())
        }
    );
    let seen = world.session_saw(session);
    assert_eq!((seen[0].id(), seen[0].status()), (1, Status::SERVER_ERROR));
    assert!(seen[0].text().contains("UPE"));
    world.reply(0, &answer(&sent[1]));
    assert_eq!(world.session_saw(session)[0].id(), 2);
}
