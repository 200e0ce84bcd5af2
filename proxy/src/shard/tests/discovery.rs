//! Services that a call asks for.

use dubbo_proto::key::ServiceKey;

use super::*;

/// A core that knows no service and may ask for so many.
fn asking(may_ask: usize, change: impl FnOnce(&mut Limits, &mut Service)) -> World {
    let mut world = World::new(1, change);
    world.forget();
    world.core.services.may_ask = may_ask;
    world.actions.clear();
    world
}

fn key(text: &str) -> ServiceKey {
    text.parse().expect("a key")
}

fn asked(world: &mut World) -> Vec<String> {
    let keys = world.actions.drain(..).filter_map(|action| match action {
        Action::Subscribe(key) => Some(key.to_string()),
        _ => None,
    });
    keys.collect()
}

fn learn(world: &mut World, fact: Fact) {
    let change = world.mesh.set(Owner::Learned, Name::Key(key(KEY)), fact);
    world.apply(change);
}

fn present(world: &mut World, service: Service) {
    let at = Resolved {
        address: address(0),
        profile: Profile::default(),
    };
    let route = world.mesh.route(Arc::new(service), &[at]);
    learn(world, Fact::Route(route));
}

#[test]
fn every_waiter_is_served_once_its_service_is_known() {
    let mut world = asking(10, |_, _| {});
    let sessions = [world.open(), world.open()];
    for session in sessions {
        world.request(session, &call(7, "find", true, &[]));
        world.request(session, &call(8, "note", false, &[]));
    }
    assert_eq!(asked(&mut world), [KEY], "once");
    assert!(sessions.iter().all(|s| world.session_saw(*s).is_empty()));
    present(&mut world, Service::new(key(KEY)));
    world.connect(0);
    let sent = world.host_saw(0);
    assert_eq!(sent.len(), 4);
    for frame in sent
        .iter()
        .filter(|f| f.head.kind == (Kind::Request { two_way: true }))
    {
        world.reply(0, &answer(frame));
    }
    for session in sessions {
        let ids: Vec<_> = world.session_saw(session).iter().map(Seen::id).collect();
        assert_eq!(ids, [7]);
    }
    assert_eq!(
        (
            world.core.held.calls,
            world.core.held.bytes,
            world.core.copied
        ),
        (0, 0, 0)
    );
    assert!(world.core.calls.is_empty() && world.core.deadlines.is_empty());
}

#[test]
fn a_call_that_waited_is_bound_by_the_policy_of_its_service_from_when_it_came() {
    let mut world = asking(10, |_, _| {});
    let session = world.open();
    world.request(session, &call(1, "find", true, &[]));
    world.wait(Duration::from_millis(400));
    let mut service = Service::new(key(KEY));
    service.timeout = Some(Duration::from_millis(500));
    present(&mut world, service);
    world.connect(0);
    assert_eq!(world.host_saw(0).len(), 1);
    world.wait(Duration::from_millis(110));
    let seen = world.session_saw(session);
    assert!(seen[0].text().contains("UT "), "{}", seen[0].text());
}

/// It was on its way under an id of ours when its host was lost, and its service is asked for again
/// meanwhile.
#[test]
fn a_call_that_comes_back_unsent_keeps_the_id_of_its_caller() {
    let mut world = asking(10, |_, _| {});
    let session = world.open();
    world.request(session, &call(7, "find", true, &[]));
    present(&mut world, Service::new(key(KEY)));
    world.connect(0);
    for frame in world.host_saw(0) {
        world.reply(0, &answer(&frame));
    }
    world.kernels.insert(Key::Host(0), 0);
    world.request(session, &call(8, "find", true, &[]));
    let change = world.mesh.remove(Owner::Learned, &Name::Key(key(KEY)));
    world.apply(change);
    world.request(session, &call(9, "find", true, &[]));
    world.lose(0);
    present(&mut world, Service::new(key(KEY)));
    world.connect(0);
    for frame in world.host_saw(0) {
        world.reply(0, &answer(&frame));
    }
    let mut ids: Vec<_> = world.session_saw(session).iter().map(Seen::id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [7, 8, 9]);
}

#[test]
fn absent_fails_at_once_and_late_at_its_time() {
    let mut world = asking(10, |limits, _| limits.held_time = Duration::from_secs(2));
    let session = world.open();
    world.request(session, &call(1, "find", true, &[]));
    learn(&mut world, Fact::Absent);
    world.request(session, &call(2, "find", true, &[]));
    let seen = world.session_saw(session);
    assert!(seen.iter().all(|s| s.status() == Status::SERVICE_NOT_FOUND) && seen.len() == 2);
    assert_eq!(
        asked(&mut world),
        [KEY],
        "what is absent is not asked for again"
    );
    world.request(session, &call_of("b.B", "", 3, "find", true, &[]));
    world.wait(Duration::from_millis(1900));
    assert!(world.session_saw(session).is_empty());
    world.wait(Duration::from_millis(200));
    let seen = world.session_saw(session);
    assert!(seen[0].text().contains("NR "), "{}", seen[0].text());
    world.request(
        session,
        &call_of("b.B", "", 4, "find", true, &[("timeout", "100")]),
    );
    world.wait(Duration::from_millis(100));
    assert_eq!(
        world.session_saw(session)[0].status(),
        Status::SERVICE_NOT_FOUND
    );
}

#[test]
fn the_interface_is_asked_for_when_the_path_names_nothing() {
    let mut world = asking(10, |_, _| {});
    let session = world.open();
    let other = [("interface", "com.foo.Greeter"), ("version", "1.0.0")];
    world.request(session, &call_of("greet", "1.0.0", 1, "find", true, &other));
    assert_eq!(asked(&mut world), ["greet:1.0.0"]);
    let name = Name::Key(key("greet:1.0.0"));
    let change = world.mesh.set(Owner::Learned, name, Fact::Absent);
    world.apply(change);
    assert_eq!(asked(&mut world), [KEY]);
    present(&mut world, Service::new(key(KEY)));
    world.connect(0);
    assert_eq!(world.host_saw(0).len(), 1);
}

#[test]
fn services_that_are_asked_for_are_bounded_and_their_places_used_again() {
    let mut world = asking(5, |_, _| {});
    let session = world.open();
    for round in 0..20 {
        let mut names = vec![];
        for n in 0..6 {
            let path = format!("a.A{round}x{n}");
            world.request(session, &call_of(&path, "", n, "find", true, &[]));
            names.push(Name::Key(key(&path)));
        }
        let over = world.session_saw(session);
        assert_eq!(over.len(), 1);
        assert!(
            over[0].text().contains("limits.learned_services"),
            "{}",
            over[0].text()
        );
        assert_eq!(asked(&mut world).len(), 5);
        for name in names {
            world.apply(world_absent(&world, &name));
            world.apply(Some(Change::Gone(name)));
        }
        assert_eq!(world.session_saw(session).len(), 5);
        assert_eq!(world.core.services.asked, 0);
    }
    assert!(
        world.core.services.iter().count() < 20,
        "places are used again"
    );
}

fn world_absent(world: &World, name: &Name) -> Option<Change> {
    let change = world.mesh.set(Owner::Learned, name.clone(), Fact::Absent);
    world.mesh.remove(Owner::Learned, name);
    change
}

#[test]
fn what_is_no_key_is_not_asked_for() {
    let mut world = asking(5, |_, _| {});
    let session = world.open();
    for path in ["a b", "a/b/c", &"x".repeat(600)] {
        world.request(
            session,
            &call_of(path, "", 1, "find", true, &[("interface", path)]),
        );
    }
    let inbound = world.core.open(world.now, Side::Inbound);
    world.request(inbound, &call(1, "find", true, &[]));
    assert!(asked(&mut world).is_empty());
    assert_eq!(world.session_saw(session).len(), 3);
    assert_eq!(world.session_saw(inbound).len(), 1);
}

#[test]
fn a_caller_that_leaves_takes_its_waiting_calls_along() {
    let mut world = asking(5, |_, _| {});
    let session = world.open();
    world.request(session, &call(1, "find", true, &[]));
    world
        .core
        .close_session(session, crate::metrics::CloseReason::Reset);
    assert_eq!((world.core.held.calls, world.core.copied), (0, 0));
    present(&mut world, Service::new(key(KEY)));
    world.connect(0);
    assert!(world.host_saw(0).is_empty());
}
