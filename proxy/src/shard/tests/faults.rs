//! Hosts that are lost, full, away, or come back.

use super::*;
use crate::metrics::{CloseReason, Outcome};

const MS: Duration = Duration::from_millis(1);

/// The host that has a call in flight.
fn busy(world: &World) -> u32 {
    let (at, _) = world
        .core
        .hosts
        .iter()
        .find(|(_, h)| h.in_flight > 0)
        .expect("one is busy");
    u32::try_from(at).expect("few")
}

#[test]
fn what_may_have_run_fails_and_what_was_not_sent_goes_elsewhere() {
    let mut world = World::up(2, |_, _| {});
    let session = world.open();
    let frames: Vec<Vec<u8>> = (0..20).map(|id| call(id, "save", true, &[])).collect();
    let len = frames[0].len();
    // Each kernel takes two frames and a half.
    world
        .kernels
        .extend([(Key::Host(0), len * 5 / 2), (Key::Host(1), len * 5 / 2)]);
    world.request(session, &frames.concat());
    let before = world.core.hosts[0].in_flight;
    assert!(before > 3, "{before} of 20 went to host 0");
    world.written.clear();
    world.unblock(Key::Host(1));
    world.lose(0);
    let failed = world.session_saw(session);
    assert_eq!(
        failed.len(),
        2,
        "only the two that the kernel took whole may have run"
    );
    assert!(
        failed
            .iter()
            .all(|f| f.status() == Status::SERVER_ERROR && f.text().contains("UC "))
    );
    assert_eq!(world.core.hosts[1].in_flight, 18);
}

/// Told by the control plane; one that is found to be lost takes no calls anyway.
#[test]
fn who_is_told_to_be_sick_takes_calls_only_while_nobody_else_may() {
    let mut world = World::up(2, |_, _| {});
    world.sick = vec![1];
    world.serve(Service::new(KEY.parse().expect("a key")), 2);
    let session = world.open();
    let mut id = 0;
    let mut ask = |world: &mut World| {
        id += 1;
        world.request(session, &call(id, "save", true, &[("timeout", "10000")]));
    };
    for _ in 0..50 {
        ask(&mut world);
    }
    assert_eq!(world.host_saw(0).len(), 50);
    assert!(world.host_saw(1).is_empty());
    world.lose(0);
    ask(&mut world);
    world.wait(Duration::from_secs(1));
    assert!(world.host_saw(1).is_empty(), "the other may come back");
    world.wait(Duration::from_secs(3));
    assert_eq!(world.host_saw(1).len(), 1, "nobody else will");
    ask(&mut world);
    assert_eq!(world.host_saw(1).len(), 1);
    world.connect(0);
    ask(&mut world);
    assert_eq!((world.host_saw(0).len(), world.host_saw(1).len()), (1, 0));
    world.sick = vec![0, 1];
    world.serve(Service::new(KEY.parse().expect("a key")), 2);
    for _ in 0..50 {
        ask(&mut world);
    }
    let (one, two) = (world.host_saw(0).len(), world.host_saw(1).len());
    assert!(one > 10 && two > 10, "all are alike: {one}, {two}");
}

#[test]
fn an_idempotent_call_is_sent_again_elsewhere_and_its_first_answer_counts() {
    let mut world = World::up(2, |_, service| idempotent(service));
    let session = world.open();
    world.request(session, &call(1, "find", true, &[]));
    let first = busy(&world);
    let lost = world.host_saw(first);
    world.lose(first);
    assert!(world.session_saw(session).is_empty());
    let again = world.host_saw(1 - first);
    assert_eq!(again[0].body, lost[0].body);
    assert_ne!(again[0].id(), lost[0].id(), "an attempt of its own");
    world.reply(1 - first, &answer(&again[0]));
    assert_eq!(world.session_saw(session)[0].id(), 1);
    assert!(
        world.core.calls.is_empty(),
        "the first answer frees all attempts"
    );
    assert_eq!(
        world.core.stats.calls[Side::Outbound].retries[Outcome::UpstreamClosed],
        1
    );
}

#[test]
fn retries_are_counted_and_only_for_what_may_run_twice() {
    for (method, extra, tries) in [
        ("find", &[][..], 3),
        ("save", &[][..], 1),
        ("save", &[("mesh.idempotent", "true")][..], 3),
    ] {
        let mut world = World::up(5, |_, service| idempotent(service));
        let session = world.open();
        world.request(session, &call(1, method, true, extra));
        let mut tried = 0;
        while world.core.hosts.iter().any(|(_, h)| h.in_flight > 0) {
            let host = busy(&world);
            world.lose(host);
            tried += 1;
        }
        assert_eq!(tried, tries, "{method} {extra:?}");
        let seen = world.session_saw(session);
        assert_eq!((seen.len(), seen[0].status()), (1, Status::SERVER_ERROR));
        assert!(
            seen[0]
                .text()
                .contains("UC upstream connection lost: closed by the test")
        );
    }
}

#[test]
fn a_generic_call_is_judged_by_the_method_it_runs() {
    let mut world = World::up(2, |_, service| idempotent(service));
    let session = world.open();
    let types = "Ljava/lang/String;[Ljava/lang/String;[Ljava/lang/Object;";
    let mut body = vec![];
    let path = "com.foo.Greeter";
    let call = Outgoing {
        path,
        version: "1.0.0",
        method: "$invoke",
        types,
        arguments: b"\x04findNN",
        attachments: &[("path", path), ("version", "1.0.0"), ("generic", "true")],
    };
    invocation::write(&mut body, &call);
    world.request(session, &frame(Kind::Request { two_way: true }, 1, &body));
    let first = busy(&world);
    world.lose(first);
    assert_eq!(world.host_saw(1 - first).len(), 1);
}

#[test]
fn a_call_waits_for_a_host_that_comes_back_and_not_for_ever() {
    let mut world = World::new(1, |_, _| {});
    let session = world.open();
    let long = [("timeout", "10000")];
    world.request(session, &call(1, "save", true, &long));
    world.request(session, &call(2, "save", false, &[]));
    world.wait(500 * MS);
    assert!(world.host_saw(0).is_empty() && world.session_saw(session).is_empty());
    world.connect(0);
    let sent = world.host_saw(0);
    assert_eq!(sent.len(), 2, "both were held");
    let two_way = sent
        .iter()
        .find(|s| s.head.kind == Kind::Request { two_way: true });
    world.reply(0, &answer(two_way.expect("the first")));
    assert_eq!(world.session_saw(session)[0].id(), 1);
    world.lose(0);
    world.request(session, &call(3, "save", true, &long));
    world
        .core
        .unreachable(world.now, HostId(0), "connect to 127.0.0.1:20880: refused");
    world.wait(Duration::from_secs(2));
    assert!(world.session_saw(session).is_empty(), "there is hope");
    world.wait(Duration::from_secs(2));
    let seen = world.session_saw(session);
    assert_eq!((seen[0].id(), seen[0].status()), (3, Status::SERVER_ERROR));
    assert!(
        seen[0].text().contains("UF upstream connection failure"),
        "{}",
        seen[0].text()
    );
    assert!(
        seen[0]
            .text()
            .contains("connect to 127.0.0.1:20880: refused")
    );
    world.request(session, &call(4, "save", true, &long));
    let seen = world.session_saw(session);
    assert!(
        seen[0].text().contains("UH no healthy upstream"),
        "at once: {}",
        seen[0].text()
    );
    assert_eq!((world.core.held.calls, world.core.held.bytes), (0, 0));
}

#[test]
fn a_held_call_ends_with_its_deadline_or_its_caller() {
    let mut world = World::new(1, |_, _| {});
    let (a, b) = (world.open(), world.open());
    world.request(a, &call(1, "save", true, &[("timeout", "100")]));
    world.request(b, &call(1, "save", true, &[("timeout", "100")]));
    world.core.close_session(b, CloseReason::Reset);
    assert_eq!(world.core.held.calls, 1);
    world.wait(100 * MS);
    let seen = world.session_saw(a);
    assert_eq!(seen[0].status(), Status::SERVER_TIMEOUT);
    assert!(
        seen[0].text().contains("no provider within 95 ms"),
        "{}",
        seen[0].text()
    );
    assert_eq!((world.core.held.calls, world.core.held.bytes), (0, 0));
    world.connect(0);
    assert!(world.host_saw(0).is_empty());
}

#[test]
fn calls_that_wait_are_bounded() {
    let mut world = World::new(1, |limits, _| limits.held_calls = 2);
    let session = world.open();
    for id in 0..3 {
        world.request(session, &call(id, "save", true, &[]));
    }
    let seen = world.session_saw(session);
    assert_eq!((seen.len(), seen[0].id()), (1, 2));
    assert_eq!(seen[0].status(), Status::THREADPOOL_EXHAUSTED);
    assert!(seen[0].text().contains("UO overflow") && seen[0].text().contains("limits.held_calls"));
}

#[test]
fn calls_in_flight_are_bounded_per_connection_and_in_all() {
    let mut world = World::up(1, |limits, _| {
        limits.max_in_flight_per_session = 2;
        limits.max_in_flight = 3;
    });
    let (a, b) = (world.open(), world.open());
    for id in 0..3 {
        world.request(a, &call(id, "save", true, &[]));
    }
    assert_eq!(
        world.session_saw(a)[0].status(),
        Status::THREADPOOL_EXHAUSTED
    );
    world.request(b, &call(0, "save", true, &[]));
    world.request(b, &call(1, "save", true, &[]));
    assert_eq!(
        world
            .session_saw(b)
            .iter()
            .map(Seen::id)
            .collect::<Vec<_>>(),
        [1]
    );
}

#[test]
fn a_full_host_refuses_at_once_and_one_session_has_but_half() {
    let mut world = World::up(1, |limits, _| limits.host_queue = 64 * 1024);
    let (loud, quiet) = (world.open(), world.open());
    world.kernels.insert(Key::Host(0), 10);
    let one = call(0, "save", true, &[]);
    let fits = 32 * 1024 / one.len();
    for _ in 0..fits + 100 {
        world.request(loud, &one);
    }
    let refused = world.session_saw(loud);
    assert!((90..=110).contains(&refused.len()), "{}", refused.len());
    assert!(
        refused[0]
            .text()
            .contains("UO overflow: this connection fills half")
    );
    for _ in 0..fits - 50 {
        world.request(quiet, &one);
    }
    assert!(world.session_saw(quiet).is_empty(), "the other half is its");
    world.unblock(Key::Host(0));
    world.request(loud, &one);
    assert!(world.session_saw(loud).is_empty(), "room again");
}

#[test]
fn a_session_that_does_not_read_is_closed_and_others_do_not_notice() {
    let mut world = World::up(1, |limits, _| limits.session_queue = 64 * 1024);
    let (slow, quick) = (world.open(), world.open());
    world.kernels.insert(Key::Session(slow), 100);
    for id in 0..2000 {
        if world
            .feed(Key::Session(slow), &call(id, "save", true, &[]))
            .next
            == Next::Stop
        {
            break;
        }
        for sent in world.host_saw(0) {
            world.reply(0, &answer(&sent));
        }
    }
    assert!(world.actions.contains(&Action::Close(slow)));
    let closed = &world.core.stats.sessions[Side::Outbound].closed;
    assert_eq!(closed[CloseReason::SlowReader], 1);
    world.request(quick, &call(1, "save", true, &[]));
    let sent = world.host_saw(0);
    world.reply(0, &answer(sent.last().expect("sent")));
    assert_eq!(world.session_saw(quick)[0].id(), 1);
}

#[test]
fn a_host_that_no_service_names_is_left_when_its_calls_are_done() {
    let mut world = World::up(2, |_, _| {});
    let session = world.open();
    for id in 0..10 {
        world.request(session, &call(id, "save", true, &[]));
    }
    let on_second = world.host_saw(1);
    let mut service = Service::new(KEY.parse().expect("a key"));
    service.retries = 7;
    world.serve(service, 1);
    assert!(
        !world.actions.contains(&Action::Hang(HostId(0))),
        "it stays"
    );
    assert!(
        !world.actions.contains(&Action::Hang(HostId(1))),
        "its calls are in flight"
    );
    for sent in &on_second {
        world.reply(1, &answer(sent));
    }
    assert!(world.actions.contains(&Action::Hang(HostId(1))));
    assert_eq!(world.session_saw(session).len(), on_second.len());
}

#[test]
fn a_service_that_is_gone_fails_what_waits_for_it() {
    let mut world = World::new(1, |_, _| {});
    let session = world.open();
    world.request(session, &call(1, "save", true, &[]));
    world.forget();
    let seen = world.session_saw(session);
    assert_eq!(seen.len(), 1);
    world.request(session, &call(2, "save", true, &[]));
    assert_eq!(
        world.session_saw(session)[0].status(),
        Status::SERVICE_NOT_FOUND
    );
}

#[test]
fn a_sidecar_that_did_not_let_a_call_run_sends_it_elsewhere() {
    let refusal = |to: &Seen, text: &str| {
        let mut out = vec![];
        let (status, id) = (Status::SERVER_ERROR, to.head.id);
        reply::error(&mut out, Serialization::HESSIAN2, id, status, text);
        out
    };
    let mut world = World::up(2, |_, _| {});
    world.sidecars = true;
    world.serve(Service::new(KEY.parse().expect("a key")), 2);
    let session = world.open();
    for text in ["NR no route found", "UH x", "UF x", "UO x"] {
        world.request(session, &call(1, "save", true, &[]));
        let first = busy(&world);
        let sent = world.host_saw(first);
        world.reply(first, &refusal(&sent[0], text));
        assert!(world.session_saw(session).is_empty(), "not passed on");
        let again = world.host_saw(1 - first);
        assert_eq!(again[0].body, sent[0].body);
        world.reply(1 - first, &answer(&again[0]));
        assert_eq!(world.session_saw(session)[0].id(), 1);
    }
    for text in [
        "UT deadline passed",
        "UC lost",
        "business went wrong",
        "NRX",
    ] {
        world.request(session, &call(2, "save", true, &[]));
        let first = busy(&world);
        let sent = world.host_saw(first);
        world.reply(first, &refusal(&sent[0], text));
        assert!(
            world.session_saw(session)[0].text().contains(text),
            "the provider's own"
        );
    }
    world.serve(Service::new(KEY.parse().expect("a key")), 1);
    world.request(session, &call(3, "save", true, &[]));
    let sent = world.host_saw(0);
    world.reply(0, &refusal(&sent[0], "UH no healthy upstream"));
    let text = world.session_saw(session)[0].text();
    assert!(
        text.contains("UF upstream connection failure: the provider's sidecar"),
        "{text}"
    );
}

#[test]
fn who_sends_and_does_not_read_gets_no_endless_answers() {
    let mut world = World::up(1, |limits, _| {
        limits.session_queue = 64 * 1024;
        limits.host_queue = 64 * 1024;
    });
    let session = world.open();
    world.kernels.insert(Key::Session(session), 0);
    world.kernels.insert(Key::Host(0), 0);
    let beat = frame(Kind::Event { two_way: true }, 9, b"N");
    for _ in 0..10_000 {
        world.reply(0, &beat);
    }
    assert!(world.core.hosts[0].pending() < 66 * 1024);
    for _ in 0..10_000 {
        if world.feed(Key::Session(session), &beat).next == Next::Stop {
            break;
        }
    }
    assert!(world.actions.contains(&Action::Close(session)));
}

#[test]
fn a_host_that_is_not_named_any_more_is_left_when_its_last_bytes_are_written() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    world.kernels.insert(Key::Host(0), 10);
    world.request(session, &call(1, "note", false, &[]));
    world.forget();
    assert!(
        !world.actions.contains(&Action::Hang(HostId(0))),
        "a one-way call is on its way"
    );
    world.unblock(Key::Host(0));
    assert!(world.actions.contains(&Action::Hang(HostId(0))));
}

#[test]
fn copies_for_further_tries_are_bounded() {
    let mut world = World::up(2, |limits, service| {
        idempotent(service);
        limits.held_bytes = 300;
    });
    let session = world.open();
    for id in 0..10 {
        world.request(session, &call(id, "find", true, &[]));
    }
    assert!(
        (1..=300).contains(&world.core.copied),
        "{}",
        world.core.copied
    );
    let sent: Vec<_> = [0, 1].map(|host| (host, world.host_saw(host))).into();
    for (host, sent) in sent {
        sent.iter()
            .for_each(|seen| world.reply(host, &answer(seen)));
    }
    assert_eq!(
        (world.session_saw(session).len(), world.core.copied),
        (10, 0)
    );
}

#[test]
fn a_new_connection_of_a_host_begins_with_nothing_of_the_one_before() {
    let mut world = World::up(1, |_, _| {});
    let session = world.open();
    world.lose(0);
    // As a read that was under way when the host was lost might leave behind.
    world
        .core
        .tell_host(HostId(0), |queue| queue.extend_from_slice(b"stale"));
    world.kernels.insert(Key::Host(0), 0);
    world.flush();
    world.kernels.clear();
    world.connect(0);
    world.request(session, &call(1, "save", true, &[]));
    assert_eq!(world.host_saw(0).len(), 1);
}

#[test]
fn a_call_that_was_held_goes_on_from_a_sidecar_that_did_not_let_it_run() {
    let mut world = World::new(2, |_, _| {});
    world.sidecars = true;
    world.serve(Service::new(KEY.parse().expect("a key")), 2);
    let session = world.open();
    world.request(session, &call(1, "save", true, &[]));
    world.connect(0);
    let sent = world.host_saw(0);
    world.connect(1);
    let mut refusal = vec![];
    let (serialization, id) = (Serialization::HESSIAN2, sent[0].head.id);
    reply::error(
        &mut refusal,
        serialization,
        id,
        Status::SERVER_ERROR,
        "UO full",
    );
    world.reply(0, &refusal);
    assert_eq!(world.host_saw(1).len(), 1);
    assert!(world.session_saw(session).is_empty());
}
