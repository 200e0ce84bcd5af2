use super::*;

struct World {
    machine: Failover,
    rng: Rng,
    now: Instant,
}

impl World {
    fn new(sidecar: bool) -> Self {
        let now = crate::time::now();
        Self {
            machine: Failover::new(now, Timing::default(), sidecar),
            rng: Rng::with_seed(1),
            now,
        }
    }

    /// Proven in time.
    fn up() -> (Self, u64) {
        let mut world = Self::new(true);
        let epoch = world.machine.proven(world.now, &mut world.rng);
        (world, epoch)
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    fn route_of(&mut self, key: &ServiceKey, known: bool) -> Route {
        let (now, rng) = (self.now, &mut self.rng);
        self.machine.route(now, rng, key, Answered::Once, || known)
    }

    fn route_one_way(&mut self) -> Route {
        let (now, rng) = (self.now, &mut self.rng);
        self.machine
            .route(now, rng, &key("a.B"), Answered::Never, || true)
    }

    fn route(&mut self) -> Route {
        self.route_of(&key("a.B"), true)
    }

    fn lose(&mut self, epoch: u64, cause: Cause) -> bool {
        self.machine.lost(self.now, &mut self.rng, epoch, cause)
    }

    fn prove(&mut self) -> u64 {
        self.machine.proven(self.now, &mut self.rng)
    }

    fn unavailable(&mut self, service: &str) -> bool {
        self.answered(service, Route::Sidecar, Some(Code::NoHealthyUpstream))
    }

    fn answered(&mut self, service: &str, by: Route, code: Option<Code>) -> bool {
        let (now, rng) = (self.now, &mut self.rng);
        self.machine.answered(now, rng, &key(service), by, code)
    }

    /// The share of a thousand calls that goes by the sidecar.
    fn share(&mut self) -> f64 {
        let by_sidecar = (0..1000).filter(|_| self.route() == Route::Sidecar);
        by_sidecar.count() as f64 / 1000.0
    }
}

fn key(text: &str) -> ServiceKey {
    text.parse().expect("a key")
}

#[test]
fn calls_wait_for_the_first_proof_and_not_for_ever() {
    let mut world = World::new(true);
    let over = world.now + Timing::default().patience;
    assert_eq!(world.route(), Route::Wait(Some(over)));
    assert_eq!(world.route_of(&key("a.C"), false), Route::Wait(None));
    world.pass(300);
    assert_eq!(world.route(), Route::Direct);
    world.prove();
    assert!(matches!(
        world.machine.sidecar(world.now),
        Sidecar::Returning(_)
    ));
    let (mut world, _) = World::up();
    assert_eq!(world.route(), Route::Sidecar);
}

#[test]
fn a_refusal_sends_direct_at_once() {
    let mut world = World::new(true);
    let (now, rng) = (world.now, &mut world.rng);
    world.machine.unproven(now, rng, Cause::Refused);
    assert_eq!(world.route(), Route::Direct);
    assert_eq!(
        world.route_of(&key("a.C"), false),
        Route::Wait(None),
        "where to"
    );
}

#[test]
fn without_a_sidecar_everything_goes_direct() {
    let mut world = World::new(false);
    assert_eq!(world.route_of(&key("a.B"), false), Route::Direct);
    assert_eq!(world.machine.sidecar(world.now), Sidecar::Absent);
}

#[test]
fn every_loss_sends_all_services_direct_until_the_next_proof() {
    for cause in [Cause::Broken, Cause::Silent, Cause::ReadOnly] {
        let (mut world, epoch) = World::up();
        assert!(world.lose(epoch, cause));
        assert!(!world.lose(epoch, cause), "once");
        for service in ["a.B", "a.C"] {
            assert_eq!(world.route_of(&key(service), true), Route::Direct);
        }
        assert_eq!(world.machine.sidecar(world.now), Sidecar::Down(cause));
        world.pass(60_000);
        assert_eq!(world.route(), Route::Direct, "time alone proves nothing");
        let next = world.prove();
        assert!(!world.lose(epoch, cause), "of a connection long gone");
        world.pass(2_500);
        assert_eq!(world.share(), 1.0);
        assert!(world.lose(next, cause));
        let counts = world.machine.counts();
        assert_eq!((counts.losses, counts.returns), (2, 1));
    }
}

#[test]
fn the_return_is_gradual() {
    let (mut world, epoch) = World::up();
    world.lose(epoch, Cause::Broken);
    world.prove();
    let mut shares = Vec::new();
    for _ in 0..11 {
        shares.push(world.share());
        world.pass(250);
    }
    assert!(shares[0] < 0.05, "{shares:?}");
    assert_eq!(shares[10], 1.0, "{shares:?}");
    let steps = shares.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(steps.clone().all(|step| step > -0.06), "{shares:?}");
    assert!(steps.clone().all(|step| step < 0.25), "no leap: {shares:?}");
}

/// A thousand clients that lost their sidecars at the same moment.
#[test]
fn a_fleet_does_not_come_back_at_once() {
    let begins = (0..1000).map(|seed| {
        let (mut world, epoch) = World::up();
        world.rng = Rng::with_seed(seed);
        let start = world.now;
        world.lose(epoch, Cause::Broken);
        world.prove();
        match world.machine.link {
            Link::Returning(ramp) => (ramp.from - start).as_millis() / 50,
            _ => panic!("not returning"),
        }
    });
    let mut slots = [0; 10];
    begins.for_each(|slot| slots[slot as usize] += 1);
    assert!(
        slots.iter().all(|count| (50..200).contains(count)),
        "{slots:?}"
    );
}

#[test]
fn who_falls_again_soon_pauses_longer() {
    let (mut world, mut epoch) = World::up();
    let mut longest = Duration::ZERO;
    for _ in 0..40 {
        world.lose(epoch, Cause::Broken);
        epoch = world.prove();
        let Link::Returning(ramp) = world.machine.link else {
            panic!("not returning")
        };
        longest = longest.max(ramp.from - world.now);
    }
    let jitter = Timing::default().jitter;
    assert!(
        longest > jitter * 4 && longest <= jitter * 32,
        "{longest:?}"
    );
    world.pass(100_000);
    assert_eq!(world.route(), Route::Sidecar);
    world.lose(epoch, Cause::Broken);
    world.prove();
    let Link::Returning(ramp) = world.machine.link else {
        panic!("not returning")
    };
    assert!(
        ramp.from - world.now <= jitter,
        "a long good time is remembered"
    );
}

#[test]
fn redials_come_later_and_later() {
    let mut world = World::new(true);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let (now, rng) = (world.now, &mut world.rng);
        world.machine.unproven(now, rng, Cause::Refused);
        pauses.push(world.machine.dial_at() - now);
    }
    let Timing {
        redial_min,
        redial_max,
        ..
    } = Timing::default();
    assert!(pauses[0] <= redial_min * 3 / 2);
    assert!(pauses[11] >= redial_max / 2 && pauses[11] <= redial_max * 3 / 2);
    world.prove();
    let (now, rng) = (world.now, &mut world.rng);
    world.machine.unproven(now, rng, Cause::Refused);
    assert!(world.machine.dial_at() - now <= redial_min * 3 / 2, "anew");
}

#[test]
fn a_call_goes_round_later_and_later() {
    let mut world = World::new(true);
    let mut pause = |rounds| {
        let again = world.machine.again_at(world.now, &mut world.rng, rounds);
        again - world.now
    };
    let timing = Timing::default();
    assert!(pause(0) >= timing.redial_min / 2 && pause(0) <= timing.redial_min * 3 / 2);
    assert!(pause(99) >= timing.redial_max / 2 && pause(99) <= timing.redial_max * 3 / 2);
}

#[test]
fn one_service_goes_direct_alone() {
    let (mut world, _) = World::up();
    assert!(world.unavailable("a.B"));
    assert!(!world.unavailable("a.B"), "calls that were on their way");
    assert_eq!(world.route(), Route::Direct);
    assert_eq!(world.route_of(&key("a.C"), true), Route::Sidecar);
    assert_eq!(
        world.route_of(&key("a.B"), false),
        Route::Sidecar,
        "where else"
    );
    let switched: Vec<_> = world.machine.services(world.now).collect();
    assert_eq!(switched, [(&key("a.B"), 0.0)]);
}

#[test]
fn a_service_comes_back_after_a_trial() {
    let (mut world, _) = World::up();
    world.unavailable("a.B");
    world.pass(1_500);
    assert_eq!(world.route(), Route::Trial);
    assert_eq!(world.route(), Route::Direct, "one trial at a time");
    world.answered("a.B", Route::Trial, None);
    world.pass(3_000);
    assert_eq!(world.route(), Route::Sidecar);
    assert_eq!(world.machine.services(world.now).count(), 0);
    assert_eq!(world.machine.counts().switches, 1);
}

#[test]
fn a_trial_in_vain_puts_the_next_off_and_a_forgotten_one_does_not_end_it() {
    let (mut world, _) = World::up();
    world.unavailable("a.B");
    let mut waited = Vec::new();
    for _ in 0..7 {
        let since = world.now;
        while world.route() != Route::Trial {
            world.pass(100);
        }
        waited.push((world.now - since).as_millis());
        world.unavailable("a.B");
    }
    assert!(waited[0] <= 1_600 && waited[6] >= 14_000, "{waited:?}");
    while world.route() != Route::Trial {
        world.pass(100);
    }
    world.pass(30_000);
    assert_eq!(world.route(), Route::Trial, "nobody told how it went");
}

#[test]
fn a_one_way_call_tries_nothing_and_is_never_part_of_a_return() {
    let (mut world, epoch) = World::up();
    assert_eq!(world.route_one_way(), Route::Sidecar);
    world.unavailable("a.B");
    world.pass(1_500);
    assert_eq!(world.route_one_way(), Route::Direct, "it proves nothing");
    assert_eq!(world.route(), Route::Trial, "nor was it in the way");
    world.pass(31_000);
    assert_eq!(world.route_one_way(), Route::Direct);
    assert_eq!(world.route(), Route::Trial);
    world.answered("a.B", Route::Trial, None);
    // A return takes 2 s, and begins within half a second.
    world.pass(1_999);
    assert!((0..100).all(|_| world.route_one_way() == Route::Direct));
    world.pass(502);
    assert_eq!(world.route_one_way(), Route::Sidecar, "all is as it was");
    world.lose(epoch, Cause::Broken);
    world.prove();
    world.pass(1_999);
    assert!((0..100).all(|_| world.route_one_way() == Route::Direct));
    world.pass(502);
    assert_eq!(world.route_one_way(), Route::Sidecar);
}

#[test]
fn a_new_sidecar_is_tried_soon() {
    let (mut world, epoch) = World::up();
    for _ in 0..8 {
        while world.route() != Route::Trial && world.unavailable("a.B") {}
        world.pass(60_000);
        world.route();
        world.unavailable("a.B");
    }
    world.lose(epoch, Cause::Broken);
    world.prove();
    // Past the ramp of the whole and the pause of the service.
    world.pass(2_500);
    assert_eq!(world.route(), Route::Trial);
}

#[test]
fn what_follows_an_attempt() {
    use Code::*;
    use Ending::{Broken, Code as Answer, Declined, Unsent};
    const ONCE: Tries = Tries {
        sidecar: 1,
        direct: 0,
    };
    const TWICE: Tries = Tries {
        sidecar: 2,
        direct: 0,
    };
    const DIRECT: Tries = Tries {
        sidecar: 1,
        direct: 1,
    };
    const MANY: Tries = Tries {
        sidecar: 6,
        direct: 10,
    };
    // Ending, way, tries, idempotent, providers left: what follows.
    let table = [
        // What did not run goes on by itself.
        (Unsent, Route::Sidecar, ONCE, false, true, Next::Route),
        (Unsent, Route::Sidecar, ONCE, false, false, Next::Route),
        (Unsent, Route::Direct, DIRECT, false, true, Next::Direct),
        (Unsent, Route::Direct, DIRECT, false, false, Next::Again),
        (
            Answer(NoRoute),
            Route::Sidecar,
            ONCE,
            false,
            true,
            Next::Direct,
        ),
        (
            Answer(NoRoute),
            Route::Trial,
            ONCE,
            false,
            true,
            Next::Direct,
        ),
        (
            Answer(NoRoute),
            Route::Sidecar,
            ONCE,
            false,
            false,
            Next::Fail,
        ),
        (
            Answer(NoHealthyUpstream),
            Route::Sidecar,
            ONCE,
            false,
            true,
            Next::Direct,
        ),
        (
            Answer(Unreachable),
            Route::Sidecar,
            ONCE,
            false,
            true,
            Next::Direct,
        ),
        // A provider's own sidecar is one provider's business.
        (
            Answer(NoRoute),
            Route::Direct,
            DIRECT,
            false,
            true,
            Next::Direct,
        ),
        (
            Answer(Overflow),
            Route::Direct,
            DIRECT,
            false,
            true,
            Next::Direct,
        ),
        // So is what it has no room for, or does not serve.
        (Declined, Route::Direct, DIRECT, false, true, Next::Direct),
        (Declined, Route::Direct, DIRECT, true, false, Next::Fail),
        (Declined, Route::Sidecar, ONCE, true, true, Next::Fail),
        // What the mesh decides stays decided.
        (
            Answer(Overflow),
            Route::Sidecar,
            ONCE,
            true,
            true,
            Next::Fail,
        ),
        (
            Answer(BadCall),
            Route::Sidecar,
            ONCE,
            true,
            true,
            Next::Fail,
        ),
        // What may have run goes on only if it may run twice.
        (Broken, Route::Sidecar, ONCE, false, true, Next::Fail),
        (Broken, Route::Sidecar, ONCE, true, true, Next::Route),
        (Broken, Route::Direct, DIRECT, false, true, Next::Fail),
        (Broken, Route::Direct, DIRECT, true, true, Next::Direct),
        // And once more to those that it has been to, which may be back.
        (Broken, Route::Direct, DIRECT, true, false, Next::Again),
        (
            Answer(ConnectionLost),
            Route::Direct,
            DIRECT,
            true,
            false,
            Next::Again,
        ),
        (
            Answer(Unreachable),
            Route::Direct,
            DIRECT,
            false,
            false,
            Next::Again,
        ),
        (
            Answer(ConnectionLost),
            Route::Sidecar,
            ONCE,
            false,
            true,
            Next::Fail,
        ),
        (
            Answer(ConnectionLost),
            Route::Sidecar,
            ONCE,
            true,
            true,
            Next::Sidecar,
        ),
        (
            Answer(ConnectionLost),
            Route::Sidecar,
            ONCE,
            true,
            false,
            Next::Sidecar,
        ),
        (
            Answer(ConnectionLost),
            Route::Sidecar,
            TWICE,
            true,
            true,
            Next::Direct,
        ),
        (
            Answer(ConnectionLost),
            Route::Sidecar,
            TWICE,
            true,
            false,
            Next::Fail,
        ),
        (
            Answer(BadAnswer),
            Route::Sidecar,
            ONCE,
            false,
            true,
            Next::Fail,
        ),
        (
            Answer(BadAnswer),
            Route::Sidecar,
            ONCE,
            true,
            true,
            Next::Sidecar,
        ),
        // Enough is enough.
        (Unsent, Route::Sidecar, MANY, true, true, Next::Fail),
        (Broken, Route::Direct, MANY, true, false, Next::Fail),
    ];
    for (ending, by, tries, idempotent, known, wanted) in table {
        let next = ending.next(by, tries, idempotent, known);
        assert_eq!(
            next, wanted,
            "{ending:?} by {by:?}, {tries:?}, {idempotent}, {known}"
        );
    }
}

#[test]
fn an_outage_is_as_long_as_calls_felt_it() {
    let (mut world, epoch) = World::up();
    // Before the first loss, direct is no outage.
    world.machine.heard(world.now, Route::Direct);
    world.machine.heard(world.now, Route::Sidecar);
    assert_eq!(world.machine.outage(), None);
    world.pass(3);
    world.lose(epoch, Cause::Broken);
    world.pass(4);
    world.machine.heard(world.now, Route::Direct);
    let switched = Duration::from_millis(7);
    let outage = |away| Some(Outage { switched, away });
    assert_eq!(world.machine.outage(), outage(None));
    world.pass(100);
    world.machine.heard(world.now, Route::Direct);
    let epoch = world.prove();
    world.pass(50);
    world.machine.heard(world.now, Route::Sidecar);
    let away = Duration::from_millis(150);
    // While it returns, calls go either way.
    for by in [Route::Direct, Route::Sidecar] {
        world.pass(10);
        world.machine.heard(world.now, by);
        assert_eq!(world.machine.outage(), outage(Some(away)));
    }
    // Another loss is another outage.
    world.lose(epoch, Cause::Silent);
    world.pass(1);
    world.machine.heard(world.now, Route::Direct);
    let outage = world.machine.outage().expect("another one");
    assert_eq!(
        (outage.switched, outage.away),
        (Duration::from_millis(1), None)
    );
}
