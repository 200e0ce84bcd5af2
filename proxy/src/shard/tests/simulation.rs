//! Random operations from a seed, and what must hold after each of them.

use std::{collections::VecDeque, thread};

use super::{
    shards::Shards,
    truth::{SERVICES, Truth},
    *,
};
use dubbo_proto::key::ServiceKey;

use crate::metrics::CloseReason;

/// Hosts there may be. The last is always there and takes everything.
const HOSTS: u16 = 5;

#[test]
fn every_call_ends_once_whatever_happens() {
    simulate(0..120);
}

/// Takes a minute.
#[test]
#[ignore = "run apart"]
fn every_call_ends_once_for_ten_thousand_seeds() {
    simulate(0..10_000);
}

/// Runs all seeds, or the one that the environment names.
fn simulate(seeds: std::ops::Range<u64>) {
    #[expect(clippy::disallowed_methods, reason = "for whoever repeats a failure")]
    let named = std::env::var("SEED").ok();
    let named = named.map(|seed| seed.parse::<u64>().expect("a number"));
    let seeds = named.map_or(seeds, |seed| seed..seed + 1);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for first in 0..threads {
            let seeds = seeds.clone().skip(first).step_by(threads);
            scope.spawn(move || seeds.for_each(run));
        }
    });
}

fn run(seed: u64) {
    let outcome = std::panic::catch_unwind(|| Simulation::new(seed).run());
    assert!(
        outcome.is_ok(),
        "to repeat: SEED={seed} cargo test -p dubbo-proxy every_call_ends_once"
    );
}

/// What a seed is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// No bound is met: nothing is refused, and no one-way call is lost.
    Wide,
    /// Every bound is met.
    Tight,
    /// Shards fail, too.
    Failing,
}

struct Simulation {
    rng: fastrand::Rng,
    course: Course,
    shards: Shards,
    truth: Truth,
    apps: Vec<App>,
    /// Bytes of hosts, by shard and place, that were not read yet.
    replies: HashMap<(usize, u32), Vec<u8>>,
    /// Changes on their way to each shard.
    changes: Vec<VecDeque<Change>>,
}

/// An application, which connects again when its session is gone.
struct App {
    shard: usize,
    session: SessionId,
    next: u64,
    /// Bytes that were not read yet.
    unread: Vec<u8>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let course = [Course::Wide, Course::Tight, Course::Failing][rng.usize(..3)];
        let mut limits = Limits::default();
        if course != Course::Wide {
            limits.host_queue = 64 * 1024;
            limits.session_queue = 64 * 1024;
            limits.handoff = 64 * 1024;
            limits.held_bytes = 64 * 1024;
            limits.held_calls = rng.usize(1..50);
            limits.max_in_flight = rng.usize(10..300);
            limits.max_in_flight_per_session = rng.usize(5..100);
        }
        let workers = rng.u8(1..=3);
        let mut simulation = Self {
            rng,
            course,
            shards: Shards::new(workers, &limits),
            truth: Truth::default(),
            apps: vec![],
            replies: HashMap::new(),
            changes: vec![VecDeque::new(); workers.into()],
        };
        simulation.truth.exact = course == Course::Wide;
        simulation.begin();
        simulation
    }

    fn begin(&mut self) {
        for shard in 0..self.shards.worlds.len() {
            for _ in 0..2 {
                let session = self.shards.worlds[shard].open();
                self.apps.push(App {
                    shard,
                    session,
                    next: 0,
                    unread: vec![],
                });
            }
        }
        (0..SERVICES.len()).for_each(|service| self.change(service));
        self.apply_all();
        self.connect(HOSTS - 1);
        self.shards.settle();
    }

    fn run(&mut self) {
        for _ in 0..300 {
            self.step();
            self.look();
        }
        self.end();
    }

    fn look(&mut self) {
        self.shards.hand_over();
        self.truth.look(&mut self.shards);
        for app in &mut self.apps {
            let world = &mut self.shards.worlds[app.shard];
            if world.core.session_mut(app.session).is_some() {
                continue;
            }
            self.truth.closed(app.shard, app.session);
            world.kernels.remove(&Key::Session(app.session));
            world.written.remove(&Key::Session(app.session));
            app.session = world.open();
            app.unread.clear();
        }
    }

    fn step(&mut self) {
        let (shard, host) = (self.shard(), self.rng.u16(..HOSTS));
        let mortal = host % (HOSTS - 1);
        match self.rng.u8(..100) {
            0..30 => self.send(),
            30..45 => self.reply(host),
            45..65 => _ = self.shards.arrive(shard),
            65..70 => self.block(mortal),
            70..75 => self.unblock(),
            75..79 => self.lose(mortal),
            79..85 => self.connect(host),
            85..87 => self.close(),
            87..90 => self.change(host as usize % SERVICES.len()),
            90..94 => _ = self.apply(shard),
            94 if self.course == Course::Failing => self.fail(shard),
            _ => {
                let time = Duration::from_millis(self.rng.u64(..300));
                self.shards.wait(time);
            }
        }
    }

    fn shard(&mut self) -> usize {
        self.rng.usize(..self.shards.worlds.len())
    }

    fn app(&mut self) -> usize {
        self.rng.usize(..self.apps.len())
    }

    /// Some calls, of which mostly all bytes arrive, sometimes not.
    fn send(&mut self) {
        let at = self.app();
        for _ in 0..self.rng.u8(1..6) {
            let app = &mut self.apps[at];
            app.next += 1;
            let from = (app.shard, app.session);
            let frame = self.truth.ask(&mut self.rng, from, app.next);
            app.unread.extend(frame);
        }
        self.read_app(at);
    }

    fn read_app(&mut self, at: usize) {
        let app = &mut self.apps[at];
        let read = split(&mut self.rng, app.unread.len());
        let world = &mut self.shards.worlds[app.shard];
        let taken = world.feed(Key::Session(app.session), &app.unread[..read]);
        app.unread.drain(..taken.bytes);
    }

    fn reply(&mut self, host: u16) {
        let Some(place) = self.shards.connected(host) else {
            return;
        };
        let number = self.number(place);
        let answers = self.truth.answers(&mut self.rng, number);
        let unread = self.replies.entry(place).or_default();
        unread.extend(answers);
        let read = split(&mut self.rng, unread.len());
        let taken = self.shards.worlds[place.0].feed(Key::Host(place.1), &unread[..read]);
        unread.drain(..taken.bytes);
    }

    /// The number of the host at a place of a shard.
    fn number(&self, (shard, at): (usize, u32)) -> u32 {
        self.shards.worlds[shard].core.hosts[at as usize].number()
    }

    /// The kernel of a peer takes only so much.
    fn block(&mut self, host: u16) {
        let takes = self.rng.usize(..2000);
        let (shard, key) = match self.shards.connected(host) {
            Some((shard, at)) if self.rng.bool() => (shard, Key::Host(at)),
            _ => {
                let app = self.app();
                let app = &self.apps[app];
                (app.shard, Key::Session(app.session))
            }
        };
        self.shards.worlds[shard].kernels.insert(key, takes);
    }

    fn unblock(&mut self) {
        for world in &mut self.shards.worlds {
            let blocked: Vec<Key> = world.kernels.keys().copied().collect();
            blocked.into_iter().for_each(|key| world.unblock(key));
        }
    }

    fn lose(&mut self, host: u16) {
        if let Some(place) = self.shards.connected(host) {
            self.truth.lost(self.number(place));
            self.shards.lose(host);
            self.replies.remove(&place);
        }
    }

    /// A dial of a host succeeds, or does not; that of the last always does.
    fn connect(&mut self, host: u16) {
        let Some((shard, at)) = self.shards.place(host) else {
            return;
        };
        if self.shards.connected(host).is_some() {
            return;
        }
        if host == HOSTS - 1 || self.rng.u8(..4) > 0 {
            return self.shards.connect(host);
        }
        let world = &mut self.shards.worlds[shard];
        world.core.unreachable(world.now, HostId(at), "refused");
    }

    /// An application goes; what it sent before is read.
    fn close(&mut self) {
        let at = self.app();
        let app = &mut self.apps[at];
        let world = &mut self.shards.worlds[app.shard];
        world.feed(Key::Session(app.session), &app.unread);
        world.core.close_session(app.session, CloseReason::Reset);
        world.flush();
    }

    /// A service has other hosts, or is gone.
    fn change(&mut self, service: usize) {
        let key: ServiceKey = SERVICES[service].parse().expect("a key");
        let name = Name::Key(key.clone());
        let mesh = &mut self.shards.worlds[0].mesh;
        let change = if self.course != Course::Wide && self.rng.u8(..4) == 0 {
            mesh.remove(Owner::Static, &name)
        } else {
            let mut service = Service::new(key);
            idempotent(&mut service);
            let mut hosts: Vec<u16> = (0..HOSTS - 1).filter(|_| self.rng.bool()).collect();
            hosts.push(HOSTS - 1);
            let hosts: Vec<_> = hosts.into_iter().map(resolved).collect();
            let route = mesh.route(Arc::new(service), &hosts);
            mesh.set(Owner::Static, name, Fact::Route(route))
        };
        for changes in &mut self.changes {
            changes.extend(change.clone());
        }
    }

    fn apply(&mut self, shard: usize) -> bool {
        let change = self.changes[shard].pop_front();
        let some = change.is_some();
        self.shards.worlds[shard].apply(change);
        self.shards.hand_over();
        some
    }

    fn apply_all(&mut self) {
        for shard in 0..self.shards.worlds.len() {
            while self.apply(shard) {}
        }
    }

    fn fail(&mut self, shard: usize) {
        let known = self.shards.worlds[0].mesh.all();
        let hosts = self.shards.worlds[shard].core.hosts.iter();
        let own = hosts.filter(|(_, host)| usize::from(host.shard()) == shard);
        own.for_each(|(_, host)| self.truth.lost(host.number()));
        self.shards.fail(shard, known);
        self.replies.retain(|(of, _), _| *of != shard);
        self.truth.failed(shard);
        self.connect(HOSTS - 1);
    }

    /// Everybody does what is left to do; then nothing is left.
    fn end(&mut self) {
        for at in 0..self.apps.len() {
            let app = &mut self.apps[at];
            let world = &mut self.shards.worlds[app.shard];
            world.feed(Key::Session(app.session), &app.unread);
        }
        self.shards.hand_over();
        self.apply_all();
        self.shards.settle();
        for host in (0..HOSTS).rev() {
            self.unblock();
            if self.shards.place(host).is_some() && self.shards.connected(host).is_none() {
                self.shards.connect(host);
            }
            self.shards.settle();
        }
        self.look();
        if self.course == Course::Wide {
            for (number, asked) in self.truth.calls.iter().enumerate() {
                assert!(asked.two_way || asked.arrived > 0, "{number} vanished");
            }
        }
        self.shards.wait(Duration::from_secs(4));
        self.shards.settle();
        self.look();
        assert!(!self.truth.is_waiting(), "unanswered");
        for service in SERVICES {
            let key: ServiceKey = service.parse().expect("a key");
            for world in &mut self.shards.worlds {
                world.apply(Some(Change::Gone(Name::Key(key.clone()))));
            }
        }
        self.shards.hand_over();
        self.shards.settle();
        for app in &self.apps {
            let core = &mut self.shards.worlds[app.shard].core;
            core.close_session(app.session, CloseReason::Reset);
        }
        for world in &self.shards.worlds {
            let core = &world.core;
            assert!(core.calls.is_empty() && core.deadlines.is_empty());
            assert!(core.sessions.is_empty() && core.hosts.is_empty());
            assert_eq!((core.held.calls, core.held.bytes, core.copied), (0, 0, 0));
        }
    }
}

/// How much of so many bytes one read brings.
fn split(rng: &mut fastrand::Rng, len: usize) -> usize {
    match rng.u8(..3) {
        0 => rng.usize(..=len),
        _ => len,
    }
}

fn resolved(host: u16) -> Resolved {
    Resolved {
        address: address(host),
        profile: Profile::default(),
    }
}
