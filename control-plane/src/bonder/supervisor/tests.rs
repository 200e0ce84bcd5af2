use super::*;

const ALL: [Role; 3] = [Role::Application, Role::Proxy, Role::Pilot];

/// A machine under virtual time, whose processes start when they are told to.
struct Bench {
    now: Instant,
    machine: Supervisor,
}

impl Bench {
    #[expect(clippy::disallowed_methods, reason = "where virtual time begins")]
    fn new(roles: &[Role], restart: Restart) -> Self {
        let (now, rng) = (Instant::now(), fastrand::Rng::with_seed(7));
        let machine = Supervisor::new(now, roles, restart, TIMES, rng);
        Self { now, machine }
    }

    /// All three run, and are ready.
    fn running(restart: Restart) -> Self {
        let mut this = Self::new(&ALL, restart);
        assert_eq!(this.actions(), [Action::Start(Role::Pilot)]);
        this.ready(Role::Pilot);
        assert_eq!(this.actions(), [Action::Start(Role::Proxy)]);
        this.ready(Role::Proxy);
        assert_eq!(this.actions(), [Action::Start(Role::Application)]);
        this
    }

    /// What is to be done; what is to be started has started.
    fn actions(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(action) = self.machine.poll_action() {
            if let Action::Start(role) = action {
                self.machine.started(self.now, role);
            }
            actions.push(action);
        }
        actions
    }

    fn ready(&mut self, role: Role) {
        self.machine.ready(self.now, role, true);
    }

    fn exits(&mut self, role: Role, exit: Exit) -> Vec<Action> {
        self.machine.exited(self.now, role, exit);
        self.actions()
    }

    fn stop(&mut self) -> Vec<Action> {
        self.machine.stop(self.now);
        self.actions()
    }

    fn swept(&mut self) -> Vec<Action> {
        self.machine.swept(self.now);
        self.actions()
    }

    fn deregistered(&mut self) -> Vec<Action> {
        self.machine.deregistered(self.now);
        self.actions()
    }

    /// Waits until something is due; how long that took.
    fn due(&mut self) -> (Duration, Vec<Action>) {
        let at = self.machine.poll_timeout().expect("something is due");
        let waited = at.saturating_duration_since(self.now);
        self.now = self.now.max(at);
        self.machine.handle_timeout(self.now);
        (waited, self.actions())
    }

    fn state(&self, role: Role) -> State {
        let mut children = self.machine.children().iter();
        children
            .find(|child| child.role == role)
            .expect("a child")
            .state
    }
}

fn end(role: Role) -> Action {
    Action::End(role, End::Terminate)
}

fn kill(role: Role) -> Action {
    Action::End(role, End::Kill)
}

const SWEEP: Action = Action::Sweep(End::Terminate);

const TIMES: Times = Times {
    ready: Duration::from_secs(10),
    deregister: Duration::from_secs(5),
    drain: Duration::from_secs(25),
    stop: Duration::from_secs(8),
};

#[test]
fn each_starts_when_the_one_before_is_ready_and_ends_in_order() {
    let mut bench = Bench::running(Restart::Never);
    assert_eq!(bench.state(Role::Application), State::Ready);
    assert_eq!(bench.machine.poll_timeout(), None, "nothing is due");
    assert_eq!(bench.stop(), [Action::Deregister]);
    // While it drains, who connects shall not wait for somebody who does not accept.
    assert_eq!(bench.deregistered(), [Action::Close, end(Role::Proxy)]);
    let drained = bench.exits(Role::Proxy, Exit::Code(0));
    assert_eq!(drained, [end(Role::Application)]);
    assert_eq!(bench.exits(Role::Application, Exit::Signal(15)), [SWEEP]);
    assert_eq!(bench.swept(), [end(Role::Pilot)]);
    let left = bench.exits(Role::Pilot, Exit::Code(0));
    assert_eq!(left, [Action::Leave(143)]);
}

#[test]
fn who_is_not_ready_in_time_keeps_nobody_waiting_for_ever() {
    let mut bench = Bench::new(&ALL, Restart::Never);
    assert_eq!(bench.actions(), [Action::Start(Role::Pilot)]);
    // It crashes at once, again and again, and the others come all the same.
    let mut waited = Duration::ZERO;
    let late = loop {
        bench.exits(Role::Pilot, Exit::Code(1));
        let (pause, actions) = bench.due();
        waited += pause;
        if actions.contains(&Action::Late(Role::Pilot)) {
            break actions;
        }
        assert_eq!(actions, [Action::Start(Role::Pilot)]);
    };
    assert_eq!(waited, TIMES.ready);
    assert!(late.contains(&Action::Start(Role::Proxy)));
    // The proxy hangs.
    let mut actions = Vec::new();
    while !actions.contains(&Action::Late(Role::Proxy)) {
        actions = bench.due().1;
    }
    assert!(actions.contains(&Action::Start(Role::Application)));
    assert_eq!(bench.state(Role::Proxy), State::Starting);
}

#[test]
fn who_dies_is_started_again_after_pauses_that_grow_and_shrink_again() {
    let mut bench = Bench::running(Restart::Never);
    let mut pauses = Vec::new();
    for _ in 0..10 {
        assert_eq!(bench.exits(Role::Proxy, Exit::Signal(9)), []);
        let (pause, actions) = bench.due();
        assert_eq!(actions, [Action::Start(Role::Proxy)]);
        pauses.push(pause);
    }
    let (first, last) = (pauses[0], pauses[9]);
    assert!(first >= PAUSE / 2 && first <= PAUSE, "{first:?}");
    assert!(last >= MAX_PAUSE / 2 && last <= MAX_PAUSE, "{last:?}");
    let jitter: std::collections::BTreeSet<_> = pauses[7..].iter().collect();
    assert_eq!(jitter.len(), 3, "no two alike: {pauses:?}");
    assert_eq!(bench.machine.children()[1].restarts, 10);
    bench.now += STEADY;
    bench.exits(Role::Proxy, Exit::Signal(9));
    assert!(bench.due().0 <= PAUSE);
}

#[test]
fn the_application_that_ends_ends_all_with_its_code() {
    for (exit, code) in [
        (Exit::Code(7), 7),
        (Exit::Signal(9), 137),
        (Exit::NotStarted, 126),
    ] {
        let mut bench = Bench::running(Restart::Never);
        assert_eq!(bench.exits(Role::Application, exit), [Action::Deregister]);
        assert_eq!(bench.deregistered(), [Action::Close, end(Role::Proxy)]);
        assert_eq!(bench.exits(Role::Proxy, Exit::Code(0)), [SWEEP]);
        assert_eq!(bench.swept(), [end(Role::Pilot)]);
        let left = bench.exits(Role::Pilot, Exit::Signal(15));
        assert_eq!(left, [Action::Leave(code)]);
    }
}

#[test]
fn an_application_comes_back_when_nothing_is_left_of_the_one_before() {
    let mut bench = Bench::running(Restart::Always);
    assert_eq!(bench.exits(Role::Application, Exit::Code(1)), [SWEEP]);
    // The pause is over, and a process of it still holds its port.
    assert_eq!(bench.due(), (TIMES.stop, vec![Action::Sweep(End::Kill)]));
    assert_eq!(bench.swept(), [Action::Start(Role::Application)]);
    assert_eq!(bench.machine.poll_timeout(), None);
}

#[test]
fn who_ignores_the_end_is_killed_in_time() {
    let mut bench = Bench::running(Restart::Never);
    bench.stop();
    // The pilot does not answer, so the leases run out by themselves.
    assert_eq!(
        bench.due(),
        (TIMES.deregister, vec![Action::Close, end(Role::Proxy)])
    );
    assert_eq!(bench.due(), (TIMES.drain, vec![kill(Role::Proxy)]));
    bench.exits(Role::Proxy, Exit::Signal(9));
    assert_eq!(bench.due(), (TIMES.stop, vec![kill(Role::Application)]));
    assert_eq!(bench.exits(Role::Application, Exit::Signal(9)), [SWEEP]);
    assert_eq!(bench.due(), (TIMES.stop, vec![Action::Sweep(End::Kill)]));
    assert_eq!(bench.swept(), [end(Role::Pilot)]);
    assert_eq!(bench.due(), (TIMES.stop, vec![kill(Role::Pilot)]));
    // Nothing ends what the kernel does not.
    assert_eq!(bench.due(), (KILL, vec![Action::Leave(137)]));
}

/// A process that waits for a disk, say, ends when the disk answers.
#[test]
fn what_cannot_even_be_killed_holds_up_nobody_for_ever() {
    let mut bench = Bench::running(Restart::Never);
    bench.stop();
    bench.deregistered();
    for role in [Role::Proxy, Role::Application] {
        let within = bench.due().0;
        assert!(within == TIMES.drain || within == TIMES.stop);
        assert_eq!(bench.state(role), State::Killed);
        assert_eq!(bench.due().0, KILL);
    }
    assert_eq!(bench.due(), (TIMES.stop, vec![Action::Sweep(End::Kill)]));
    assert_eq!(bench.due(), (KILL, vec![end(Role::Pilot)]));
    assert_eq!(bench.due(), (TIMES.stop, vec![kill(Role::Pilot)]));
    assert_eq!(bench.due(), (KILL, vec![Action::Leave(0)]));
}

#[test]
fn a_second_signal_kills_whatever_is_left() {
    for steps in 0..4 {
        let mut bench = Bench::running(Restart::Never);
        bench.stop();
        for step in 0..steps {
            match step {
                0 => drop(bench.deregistered()),
                1 => drop(bench.exits(Role::Proxy, Exit::Code(0))),
                _ => drop(bench.exits(Role::Application, Exit::Code(3))),
            }
        }
        let killed = bench.stop();
        assert!(killed.contains(&Action::Close) && killed.contains(&Action::Sweep(End::Kill)));
        assert_eq!(bench.stop(), [], "a third changes nothing");
        for role in ALL {
            assert_eq!(
                killed.contains(&kill(role)),
                bench.state(role) != State::Over
            );
            if bench.state(role) != State::Over {
                assert_eq!(bench.exits(role, Exit::Signal(9)), []);
            }
        }
        let code = if steps == 3 { 3 } else { 137 };
        assert_eq!(bench.swept(), [Action::Leave(code)]);
    }
}

#[test]
fn an_end_before_everything_has_started_starts_nothing_more() {
    let mut bench = Bench::new(&ALL, Restart::Always);
    bench.actions();
    assert_eq!(bench.stop(), [Action::Deregister]);
    assert_eq!(bench.deregistered(), [Action::Close, SWEEP]);
    assert_eq!(bench.swept(), [end(Role::Pilot)]);
    let left = bench.exits(Role::Pilot, Exit::Code(0));
    assert_eq!(left, [Action::Leave(0)]);
}

#[test]
fn without_an_application_a_signal_ends_all_with_success() {
    let mut bench = Bench::new(&[Role::Proxy], Restart::Never);
    bench.actions();
    bench.ready(Role::Proxy);
    bench.stop();
    assert_eq!(bench.deregistered(), [Action::Close, end(Role::Proxy)]);
    assert_eq!(bench.exits(Role::Proxy, Exit::Code(0)), [SWEEP]);
    assert_eq!(bench.swept(), [Action::Leave(0)]);
}
