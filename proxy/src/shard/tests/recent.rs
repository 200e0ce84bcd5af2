//! What is remembered of a request never changes what becomes of another.

use dubbo_proto::head::Kind;

use super::*;
use crate::shard::machine::Of;

/// Requests of one method and of nearly the same, with everything that can differ.
fn requests() -> Vec<Vec<u8>> {
    let call = |method: &str, types: &str, arguments: &[u8], attachments: &[(&str, &str)]| {
        let mut body = vec![];
        let call = Outgoing {
            path: "com.foo.Greeter",
            version: "1.0.0",
            method,
            types,
            arguments,
            attachments,
        };
        invocation::write(&mut body, &call);
        body
    };
    const STRING: &str = "Ljava/lang/String;";
    let find = |attachments: &[(&str, &str)]| call("find", STRING, b"\x05hello", attachments);
    let mut bodies = vec![
        find(&[]),
        find(&[("timeout", "50")]),
        find(&[("timeout", "60")]),
        find(&[("_TO", "0")]),
        find(&[("_TO", "40"), ("timeout", "50")]),
        find(&[("group", "g")]),
        find(&[("version", "2.0.0")]),
        find(&[("path", "com.foo.Nobody")]),
        find(&[("mesh.idempotent", "true")]),
        find(&[("dubbo.stub.event", "true")]),
        find(&[("sys_callback_arg-0", "x")]),
        call("save", STRING, b"\x05hello", &[]),
        call("find", STRING, b"\x05other", &[]),
        call("find", STRING, b"\x30\x80", &[]),
        call("find", STRING, b"Z", &[]),
        call("find", "I", b"\x91", &[]),
        call("find", "Ljava/util/Map;", b"\x48\x04path\x01xZ", &[]),
        call("find", "II", b"\x91\x92", &[("timeout", "50")]),
        call("find", "I", b"\x91\x92", &[("timeout", "50")]),
        call(
            "$invoke",
            "Ljava/lang/String;[Ljava/lang/String;[Ljava/lang/Object;",
            b"\x04findNN",
            &[],
        ),
        call(
            "$invoke",
            "Ljava/lang/String;[Ljava/lang/String;[Ljava/lang/Object;",
            b"\x04saveNN",
            &[],
        ),
    ];
    // Attachments that are no map of strings, that refer to an argument, and what follows them.
    let map = call("find", "Ljava/util/Map;", b"\x48\x07timeout\x0250Z", &[]);
    let map = map.strip_suffix(b"HZ").expect("no attachments");
    for end in [
        &b"Q\x90"[..],
        b"N",
        b"HZN",
        b"H\x07timeout\x91Z",
        b"H\x04pathNZ",
        b"H\x01aQ\x90Z",
        b"",
    ] {
        bodies.push([map, end].concat());
    }
    let other = call("find", "Ljava/util/Map;", b"\x48\x07timeout\x0260Z", &[]);
    let other = other.strip_suffix(b"HZ").expect("no attachments");
    bodies.push([other, b"Q\x90"].concat());
    bodies
}

/// All that becomes of a request: what the caller and the host are sent, and the call in the table.
fn outcome(world: &mut World, session: SessionId, body: &[u8]) -> String {
    world.request(session, &frame(Kind::Request { two_way: true }, 7, body));
    let (now, told, sent) = (world.now, world.session_saw(session), world.host_saw(0));
    let calls = world
        .core
        .calls
        .iter()
        .map(|(id, attempt)| match &attempt.of {
            Of::Call(call) => (
                id,
                Some((call.service, call.deadline - now, call.idempotent)),
            ),
            Of::Primary(_) => (id, None),
        });
    let (ids, calls): (Vec<_>, Vec<_>) = calls.unzip();
    for id in ids {
        world.core.finish(id);
    }
    let sent: Vec<_> = sent.into_iter().map(|seen| seen.body).collect();
    format!("{told:?} {sent:?} {calls:?}")
}

fn world() -> (World, SessionId) {
    let mut world = World::up(1, |_, service| {
        idempotent(service);
        service.retries = 1;
    });
    let session = world.open();
    (world, session)
}

#[test]
fn what_was_seen_before_changes_nothing() {
    let requests = requests();
    let alone: Vec<_> = requests
        .iter()
        .map(|body| {
            let (mut world, session) = world();
            outcome(&mut world, session, body)
        })
        .collect();
    let distinct: std::collections::HashSet<_> = alone.iter().collect();
    assert!(
        distinct.len() > 15,
        "the requests differ: {}",
        distinct.len()
    );
    for before in &requests {
        let (mut world, session) = world();
        for (body, alone) in requests.iter().zip(&alone) {
            outcome(&mut world, session, before);
            assert_eq!(
                &outcome(&mut world, session, body),
                alone,
                "{}",
                body.escape_ascii()
            );
            assert_eq!(&outcome(&mut world, session, body), alone, "the same again");
        }
    }
}

#[test]
fn the_same_request_is_read_once() {
    let (mut world, session) = world();
    let limits = world.core.bodies;
    let call = |id| call(id, "find", true, &[("timeout", "50")]);
    let find = |world: &mut World, side| {
        let core = &mut world.core;
        let body = &call(1)[HEAD_LEN..];
        core.recent.find(
            side,
            Serialization::HESSIAN2,
            body,
            &limits,
            &mut core.scratch,
        )
    };
    let found = |world: &mut World| find(world, Side::Outbound);
    assert_eq!(found(&mut world), None);
    world.request(session, &call(1));
    let told = found(&mut world).expect("remembered");
    assert_eq!(told.timeout, Some(Duration::from_millis(50)));
    assert!(told.idempotent);
    assert_eq!(
        find(&mut world, Side::Inbound),
        None,
        "another service there"
    );
    world.request(session, &call(1));
    assert_eq!(found(&mut world), Some(told));
    // A changed service is asked anew.
    let service = Service::new(KEY.parse().expect("a key"));
    world.serve(service, 1);
    assert_eq!(found(&mut world), None);
    world.request(session, &call(2));
    assert!(!found(&mut world).expect("remembered").idempotent);
}

#[test]
fn attachments_that_are_always_new_are_left_alone_for_a_while() {
    let (mut world, session) = world();
    let limits = world.core.bodies;
    let call = |trace: u32| call(1, "find", true, &[("trace", &trace.to_string())]);
    let known = |world: &mut World, trace: u32| {
        let core = &mut world.core;
        let (body, side) = (&call(trace)[HEAD_LEN..], Side::Outbound);
        core.recent
            .find(
                side,
                Serialization::HESSIAN2,
                body,
                &limits,
                &mut core.scratch,
            )
            .is_some()
    };
    for trace in 0..40 {
        world.request(session, &call(trace));
    }
    assert!(!known(&mut world, 39), "given up");
    let again = (0..300).find(|trace| {
        world.request(session, &call(*trace));
        known(&mut world, *trace)
    });
    assert!(again.is_some(), "but not for ever");
}

#[test]
fn methods_without_end_take_bounded_memory() {
    let (mut world, session) = world();
    for method in 0..3000 {
        let method = format!("find{method}");
        world.request(session, &call(1, &method, true, &[]));
    }
    assert!(world.core.recent.len() <= 1024);
    assert!(world.core.recent.len() > 0);
}
