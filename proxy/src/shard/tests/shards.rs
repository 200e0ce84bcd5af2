//! Two shards, with the batches between them on their way for as long as a test wants.

use std::collections::{HashSet, VecDeque};

use super::*;
use crate::shard::{handoff::Batch, hosts::Host};

/// Hosts are known by their ports; the first belongs to shard 0, the second to shard 1.
struct Shards {
    worlds: [World; 2],
    /// Batches on their way to each shard.
    ways: [VecDeque<Batch>; 2],
}

impl Shards {
    /// One service of so many hosts, all of them connected, and known to both shards.
    fn up(hosts: u16, change: impl FnOnce(&mut Limits, &mut Service)) -> Self {
        let mut limits = Limits::default();
        let mut service = Service::new(KEY.parse().expect("a key"));
        change(&mut limits, &mut service);
        let mut shards = Self {
            worlds: [0, 1].map(|shard| World::shard(shard, 2, limits.clone())),
            ways: [VecDeque::new(), VecDeque::new()],
        };
        shards.serve(service, hosts);
        for host in 0..hosts {
            shards.connect(host);
        }
        shards.settle();
        shards
    }

    fn serve(&mut self, service: Service, hosts: u16) {
        let change = self.worlds[0].served(service, hosts);
        for shard in 0..2 {
            self.worlds[shard].apply(change.clone());
        }
        self.hand_over();
    }

    /// Both forget the service.
    fn forget(&mut self) {
        for shard in 0..2 {
            self.forget_in(shard);
        }
    }

    fn forget_in(&mut self, shard: usize) {
        let name = Name::Key(KEY.parse().expect("a key"));
        self.worlds[shard].apply(Some(Change::Gone(name)));
        self.hand_over();
    }

    /// The shard that owns a host, and the host's place there.
    fn owner(&self, host: u16) -> (usize, u32) {
        self.place(host).expect("a host")
    }

    fn place(&self, host: u16) -> Option<(usize, u32)> {
        self.worlds.iter().enumerate().find_map(|(shard, world)| {
            let mut hosts = world.core.hosts.iter();
            let own = |h: &Host| usize::from(h.shard()) == shard && h.address() == address(host);
            let (at, _) = hosts.find(|(_, h)| own(h))?;
            Some((shard, u32::try_from(at).ok()?))
        })
    }

    /// The same, if the host is connected.
    fn connected(&self, host: u16) -> Option<(usize, u32)> {
        let (shard, at) = self.place(host)?;
        let way = &self.worlds[shard].core.hosts[at as usize].upstream;
        way.is_up().then_some((shard, at))
    }

    fn connect(&mut self, host: u16) {
        let (shard, at) = self.owner(host);
        self.worlds[shard].connect(at);
        self.hand_over();
    }

    fn lose(&mut self, host: u16) {
        let (shard, at) = self.owner(host);
        self.worlds[shard].lose(at);
        self.worlds[shard].written.remove(&Key::Host(at));
        self.hand_over();
    }

    fn request(&mut self, shard: usize, session: SessionId, bytes: &[u8]) {
        self.worlds[shard].request(session, bytes);
        self.hand_over();
    }

    fn reply(&mut self, host: u16, bytes: &[u8]) {
        let (shard, at) = self.owner(host);
        self.worlds[shard].reply(at, bytes);
        self.hand_over();
    }

    fn host_saw(&mut self, host: u16) -> Vec<Seen> {
        let (shard, at) = self.owner(host);
        self.worlds[shard].host_saw(at)
    }

    fn wait(&mut self, time: Duration) {
        for shard in 0..2 {
            self.worlds[shard].wait(time);
        }
        self.hand_over();
    }

    /// The core of a shard fails, and one that knows what is known now follows it.
    fn fail(&mut self, shard: usize, known: Option<Change>) {
        let world = &mut self.worlds[shard];
        let (number, limits) = (
            world.core.settings.shard,
            world.core.settings.limits.clone(),
        );
        let mut fresh = core(world.now, number, 2, limits);
        fresh.apply(world.now, known.into_iter().collect());
        std::mem::replace(&mut world.core, fresh).bequeath(&mut world.core);
        world.written.clear();
        world.kernels.clear();
        world.flush();
        self.hand_over();
    }

    /// Each shard hands over what it has: it is on its way now.
    fn hand_over(&mut self) {
        for shard in 0..2 {
            let ways = &mut self.ways;
            self.worlds[shard].core.outbox.hand_over(|to, batch| {
                ways[usize::from(to)].push_back(batch);
                Ok(())
            });
        }
    }

    /// The next batch on its way to a shard arrives.
    fn arrive(&mut self, shard: usize) -> bool {
        let Some(batch) = self.ways[shard].pop_front() else {
            return false;
        };
        let world = &mut self.worlds[shard];
        world.core.handed(world.now, batch);
        world.flush();
        self.hand_over();
        true
    }

    /// Everything arrives.
    fn settle(&mut self) {
        while self.arrive(0) | self.arrive(1) {}
    }
}

/// A call of which the provider's side can tell which it is.
fn numbered(id: u64, method: &str, two_way: bool) -> Vec<u8> {
    let (number, timeout) = (id.to_string(), "60000");
    call(id, method, two_way, &[("n", &number), ("timeout", timeout)])
}

#[test]
fn a_call_on_its_way_to_the_shard_of_a_lost_host_goes_elsewhere() {
    // Whichever is taken first: the loss, or the calls that cross it.
    for (loss_first, again) in [(true, false), (true, true), (false, false)] {
        let mut shards = Shards::up(2, |_, _| {});
        let session = shards.worlds[1].open();
        let frames: Vec<_> = (0..40)
            .flat_map(|id| numbered(id, "save", id % 2 == 0))
            .collect();
        shards.request(1, session, &frames);
        let before = shards.host_saw(1).len();
        assert!((5..35).contains(&before), "some go to either: {before}");
        shards.lose(0);
        if again {
            shards.connect(0);
        }
        if loss_first {
            while shards.arrive(1) {}
        }
        shards.settle();
        assert_eq!(shards.worlds[1].session_saw(session), []);
        let after = shards.host_saw(1).len() + shards.host_saw(0).len();
        assert_eq!(
            before + after,
            40,
            "loss first: {loss_first}, again: {again}"
        );
    }
}

#[test]
fn a_call_on_its_way_to_a_host_that_is_not_named_any_more_runs() {
    for owner_first in [true, false] {
        let mut shards = Shards::up(1, |_, _| {});
        let session = shards.worlds[1].open();
        let frames = [numbered(1, "save", true), numbered(2, "note", false)].concat();
        shards.request(1, session, &frames);
        if owner_first {
            shards.forget_in(0);
            while shards.arrive(1) {}
            shards.forget_in(1);
        } else {
            shards.forget_in(1);
            shards.forget_in(0);
        }
        shards.settle();
        let seen = shards.host_saw(0);
        assert_eq!(seen.len(), 2, "owner first: {owner_first}");
        shards.reply(0, &answer(&seen[0]));
        shards.settle();
        assert_eq!(
            shards.worlds[1].session_saw(session)[0].status(),
            Status::OK
        );
        for world in &shards.worlds {
            assert!(world.core.hosts.is_empty(), "nobody needs it any more");
        }
    }
}

#[test]
fn a_host_is_left_though_it_never_answers_a_call_of_another_shard() {
    let mut shards = Shards::up(1, |_, _| {});
    let session = shards.worlds[1].open();
    shards.request(1, session, &call(1, "save", true, &[("timeout", "1000")]));
    shards.settle();
    shards.forget();
    shards.settle();
    assert_eq!(shards.worlds[0].core.hosts.len(), 1, "it may answer");
    shards.wait(Duration::from_secs(1));
    shards.settle();
    assert_eq!(shards.worlds[1].session_saw(session).len(), 1);
    assert!(shards.worlds[0].core.hosts.is_empty());
}

#[test]
fn a_one_way_call_that_was_not_sent_waits_for_a_host() {
    let mut shards = Shards::up(1, |_, _| {});
    for shard in 0..2 {
        let session = shards.worlds[shard].open();
        let (owner, at) = shards.owner(0);
        shards.worlds[owner].kernels.insert(Key::Host(at), 0);
        shards.request(shard, session, &numbered(1, "note", false));
        shards.settle();
        shards.lose(0);
        shards.settle();
        shards.connect(0);
        shards.settle();
        assert_eq!(shards.host_saw(0).len(), 1, "of shard {shard}");
        assert_eq!(
            shards.worlds[shard].core.stats.calls[Side::Outbound].one_way,
            1
        );
    }
}

#[test]
fn a_shard_that_failed_takes_up_its_ties_anew() {
    let change = |shards: &mut Shards| {
        let service = Service::new(KEY.parse().expect("a key"));
        shards.worlds[0]
            .mesh
            .remove(Owner::Static, &Name::Key(service.key.clone()));
        shards.worlds[0].served(service, 1)
    };
    // The host's shard, and the session's.
    for failed in 0..2 {
        let mut shards = Shards::up(1, |_, _| {});
        let session = shards.worlds[1].open();
        shards.request(1, session, &numbered(1, "save", true));
        let known = change(&mut shards);
        shards.fail(failed, known);
        shards.settle();
        if failed == 0 {
            let seen = shards.worlds[1].session_saw(session);
            assert_eq!(seen, [], "it was not sent, and waits");
            shards.connect(0);
            shards.settle();
        }
        let seen = shards.host_saw(0);
        assert_eq!(seen.len(), 1);
        shards.reply(0, &answer(&seen[0]));
        shards.settle();
        let session = shards.worlds[1].open();
        shards.request(1, session, &numbered(2, "save", true));
        shards.settle();
        let seen = shards.host_saw(0);
        assert_eq!(seen.len(), 1, "its calls find the host again");
        shards.reply(0, &answer(&seen[0]));
        shards.settle();
        assert_eq!(
            shards.worlds[1].session_saw(session)[0].status(),
            Status::OK
        );
        shards.forget();
        shards.settle();
        assert!(
            shards
                .worlds
                .iter()
                .all(|world| world.core.hosts.is_empty())
        );
    }
}

/// What the simulated peers know.
#[derive(Default)]
struct Truth {
    /// Two-way calls that wait for an answer, by shard, session and number.
    waiting: HashSet<(usize, SessionId, u64)>,
    one_way: HashSet<u64>,
    /// Numbers of the calls that a provider took whole.
    arrived: HashSet<u64>,
    /// What each host has and did not answer, by shard and place.
    at_host: HashMap<(usize, u32), Vec<Seen>>,
    next: u64,
}

#[test]
fn no_call_is_lost_between_shards_nor_run_twice() {
    for seed in 0..300 {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "failing seed: {seed}");
    }
}

/// Hosts come, go and are lost while batches are on their way; the last of each shard stays.
fn run(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut shards = Shards::up(4, |_, _| {});
    let mut truth = Truth::default();
    let sessions = [0, 1].map(|shard: usize| (shard, shards.worlds[shard].open()));
    for _ in 0..400 {
        match rng.u8(..100) {
            0..40 => {
                let (shard, session) = sessions[rng.usize(..2)];
                truth.next += 1;
                let two_way = rng.u8(..4) > 0;
                if two_way {
                    truth.waiting.insert((shard, session, truth.next));
                } else {
                    truth.one_way.insert(truth.next);
                }
                shards.request(shard, session, &numbered(truth.next, "save", two_way));
            }
            40..70 => _ = shards.arrive(rng.usize(..2)),
            70..78 => {
                let host = rng.u16(..4);
                if let Some((shard, at)) = shards.connected(host) {
                    let taken = truth.at_host.remove(&(shard, at)).unwrap_or_default();
                    let two_way = Kind::Request { two_way: true };
                    let calls = taken.iter().filter(|seen| seen.head.kind == two_way);
                    shards.reply(host, &calls.flat_map(answer).collect::<Vec<_>>());
                }
            }
            78..82 => {
                if let Some((shard, at)) = shards.connected(rng.u16(..2)) {
                    let kernels = &mut shards.worlds[shard].kernels;
                    kernels.insert(Key::Host(at), rng.usize(..2000));
                }
            }
            82..88 => {
                let host = rng.u16(..2);
                if let Some(place) = shards.connected(host) {
                    shards.lose(host);
                    truth.at_host.remove(&place);
                }
            }
            88..94 => {
                let host = rng.u16(..2);
                if shards.connected(host).is_none() && shards.place(host).is_some() {
                    shards.connect(host);
                }
            }
            _ => {
                // Two are there always; each shard hears of the others in its own time.
                let without = rng.u16(..3);
                let service = Service::new(KEY.parse().expect("a key"));
                let endpoints: Vec<_> = (without..4).map(at).collect();
                let mesh = &mut shards.worlds[0].mesh;
                let name = Name::Key(service.key.clone());
                let route = mesh.route(Arc::new(service), &endpoints);
                let change = mesh.set(Owner::Static, name, Fact::Route(route));
                let first = rng.usize(..2);
                shards.worlds[first].apply(change.clone());
                shards.hand_over();
                for _ in 0..rng.u8(..3) {
                    shards.arrive(rng.usize(..2));
                }
                shards.worlds[1 - first].apply(change);
                shards.hand_over();
            }
        }
        collect(&mut shards, &mut truth);
        check(&mut shards, &mut truth, &sessions);
    }
    shards.settle();
    for host in 0..4 {
        if let Some((shard, at)) = shards.place(host) {
            shards.worlds[shard].unblock(Key::Host(at));
            // One that nobody named any more went with its last bytes.
            if shards.place(host).is_some() && shards.connected(host).is_none() {
                shards.connect(host);
            }
            shards.settle();
        }
    }
    collect(&mut shards, &mut truth);
    check(&mut shards, &mut truth, &sessions);
    assert!(
        truth.one_way.is_subset(&truth.arrived),
        "one-way calls vanished"
    );
    for (_, _, number) in &truth.waiting {
        assert!(truth.arrived.contains(number), "call {number} went nowhere");
    }
    shards.wait(Duration::from_secs(60));
    shards.settle();
    check(&mut shards, &mut truth, &sessions);
    assert!(truth.waiting.is_empty(), "unanswered: {:?}", truth.waiting);
    shards.forget();
    shards.settle();
    for world in &shards.worlds {
        assert!(world.core.hosts.is_empty() && world.core.calls.is_empty());
    }
}

fn at(host: u16) -> Resolved {
    Resolved {
        address: address(host),
        profile: Profile::default(),
    }
}

/// The number of a call at a provider.
fn number(seen: &Seen) -> u64 {
    let text = seen.text();
    let (_, rest) = text.split_once("\u{1}n").expect("its number");
    let digits: String = rest[1..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// Frames that reached a host whole. What is cut stays for the next look.
fn collect(shards: &mut Shards, truth: &mut Truth) {
    for (shard, world) in shards.worlds.iter_mut().enumerate() {
        for (key, bytes) in &mut world.written {
            let Key::Host(place) = *key else { continue };
            let mut at = 0;
            while let Some(head) = head_at(bytes, at).filter(|h| at + h.frame_len() <= bytes.len())
            {
                let body = bytes[at + HEAD_LEN..at + head.frame_len()].to_vec();
                let seen = Seen { head, body };
                assert!(
                    truth.arrived.insert(number(&seen)),
                    "{} ran twice",
                    number(&seen)
                );
                truth.at_host.entry((shard, place)).or_default().push(seen);
                at += head.frame_len();
            }
            bytes.drain(..at);
        }
    }
}

fn check(shards: &mut Shards, truth: &mut Truth, sessions: &[(usize, SessionId)]) {
    for (shard, session) in sessions {
        for seen in shards.worlds[*shard].session_saw(*session) {
            if !matches!(seen.head.kind, Kind::Response { .. }) {
                continue;
            }
            let known = truth.waiting.remove(&(*shard, *session, seen.id()));
            assert!(known, "{} was answered twice, or never asked", seen.id());
            if seen.status() != Status::OK {
                let arrived = truth.arrived.contains(&seen.id());
                assert!(
                    arrived,
                    "{} failed and did not run: {}",
                    seen.id(),
                    seen.text()
                );
            }
        }
    }
}
