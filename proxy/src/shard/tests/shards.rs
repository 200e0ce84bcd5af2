//! Two shards, with the batches between them on their way for as long as a test wants.

use std::collections::VecDeque;

use super::*;
use crate::{
    config::fixed,
    shard::{handoff::Batch, hosts::Host},
};

/// Hosts are known by their ports; the first belongs to shard 0, the second to shard 1.
pub(super) struct Shards {
    pub(super) worlds: Vec<World>,
    /// Batches on their way to each shard.
    ways: Vec<VecDeque<Batch>>,
}

impl Shards {
    /// So many shards, which know nothing yet.
    pub(super) fn new(workers: u8, limits: &Limits) -> Self {
        Self {
            worlds: (0..workers)
                .map(|shard| World::shard(shard, workers, limits.clone()))
                .collect(),
            ways: (0..workers).map(|_| VecDeque::new()).collect(),
        }
    }

    /// One service of so many hosts, all of them connected, and known to both shards.
    fn up(hosts: u16, change: impl FnOnce(&mut Limits, &mut Service)) -> Self {
        let mut limits = Limits::default();
        let mut service = Service::new(KEY.parse().expect("a key"));
        change(&mut limits, &mut service);
        let mut shards = Self::new(2, &limits);
        shards.serve(service, hosts);
        for host in 0..hosts {
            shards.connect(host);
        }
        shards.settle();
        shards
    }

    fn serve(&mut self, service: Service, hosts: u16) {
        let change = self.worlds[0].served(service, hosts);
        for shard in 0..self.worlds.len() {
            self.worlds[shard].apply(change.clone());
        }
        self.hand_over();
    }

    /// Both forget the service.
    fn forget(&mut self) {
        for shard in 0..self.worlds.len() {
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

    pub(super) fn place(&self, host: u16) -> Option<(usize, u32)> {
        self.worlds.iter().enumerate().find_map(|(shard, world)| {
            let mut hosts = world.core.hosts.iter();
            let own = |h: &Host| usize::from(h.shard()) == shard && h.address() == address(host);
            let (at, _) = hosts.find(|(_, h)| own(h))?;
            Some((shard, u32::try_from(at).ok()?))
        })
    }

    /// Whether the host of this number is connected.
    pub(super) fn is_connected(&self, number: u32) -> bool {
        self.worlds.iter().any(|world| {
            let own = world.core.settings.shard;
            let mut hosts = world.core.hosts.iter().map(|(_, host)| host);
            hosts.any(|h| h.number() == number && h.shard() == own && h.upstream.is_up())
        })
    }

    /// The same, if the host is connected.
    pub(super) fn connected(&self, host: u16) -> Option<(usize, u32)> {
        let (shard, at) = self.place(host)?;
        let way = &self.worlds[shard].core.hosts[at as usize].upstream;
        way.is_up().then_some((shard, at))
    }

    pub(super) fn connect(&mut self, host: u16) {
        let (shard, at) = self.owner(host);
        self.worlds[shard].connect(at);
        self.hand_over();
    }

    pub(super) fn lose(&mut self, host: u16) {
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

    pub(super) fn wait(&mut self, time: Duration) {
        for world in &mut self.worlds {
            world.wait(time);
        }
        self.hand_over();
    }

    /// The core of a shard fails, and one that knows what is known now follows it.
    pub(super) fn fail(&mut self, shard: usize, known: Vec<Change>) {
        let world = &mut self.worlds[shard];
        let (number, limits) = (
            world.core.settings.shard,
            world.core.settings.limits.clone(),
        );
        let workers = u8::try_from(self.ways.len()).expect("few");
        let mut fresh = core(world.now, number, workers, limits);
        fresh.apply(world.now, known);
        std::mem::replace(&mut world.core, fresh).bequeath(&mut world.core);
        world.written.clear();
        world.kernels.clear();
        world.flush();
        self.hand_over();
    }

    /// Each shard hands over what it has: it is on its way now.
    pub(super) fn hand_over(&mut self) {
        for world in &mut self.worlds {
            let ways = &mut self.ways;
            world.core.outbox.hand_over(|to, batch| {
                let way = &mut ways[usize::from(to)];
                if way.len() == fixed::BATCHES {
                    return Err(batch);
                }
                way.push_back(batch);
                Ok(())
            });
        }
    }

    /// The next batch on its way to a shard arrives.
    pub(super) fn arrive(&mut self, shard: usize) -> bool {
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
    pub(super) fn settle(&mut self) {
        while (0..self.worlds.len()).any(|shard| self.arrive(shard)) {}
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
    // The host's shard, and the session's.
    for failed in 0..2 {
        let mut shards = Shards::up(1, |_, _| {});
        let session = shards.worlds[1].open();
        shards.request(1, session, &numbered(1, "save", true));
        let known = shards.worlds[0].mesh.all();
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
