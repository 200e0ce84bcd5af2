//! What simulated applications and providers know, and what must hold by it.

use super::{shards::Shards, *};
use crate::shard::{buffers::HOST_READ, hosts::Host};

/// Everything that was asked, and what became of it.
#[derive(Default)]
pub(super) struct Truth {
    pub(super) calls: Vec<Asked>,
    /// Calls that wait for an answer, by shard, session and id.
    waiting: HashMap<(usize, Key, u64), usize>,
    /// What each host that is connected has and did not answer, by its number.
    at_host: HashMap<u32, Vec<Seen>>,
    /// The calls of the ids under which answers are expected.
    ids: HashMap<u64, usize>,
    /// No bound is met and no shard fails: each call has an end that can be told from outside.
    pub(super) exact: bool,
}

/// One call.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) two_way: bool,
    idempotent: bool,
    /// How often a provider took it whole.
    pub(super) arrived: u32,
}

impl Truth {
    /// The next call of a session, under an id of its own, as it goes over the wire.
    pub(super) fn ask(
        &mut self,
        rng: &mut fastrand::Rng,
        (shard, session): (usize, SessionId),
        id: u64,
    ) -> Vec<u8> {
        let number = self.calls.len();
        let asked = Asked {
            two_way: rng.u8(..5) > 0,
            idempotent: rng.bool(),
            arrived: 0,
        };
        let method = if asked.idempotent { "find" } else { "save" };
        let (text, timeout) = (number.to_string(), rng.u32(200..3000).to_string());
        let extra = [("n", text.as_str()), ("timeout", &timeout)];
        let path = SERVICES[rng.usize(..SERVICES.len())];
        let frame = call_of(path, "", id, method, asked.two_way, &extra);
        if asked.two_way {
            let waits = (shard, Key::Session(session), id);
            assert_eq!(self.waiting.insert(waits, number), None);
        }
        self.calls.push(asked);
        frame
    }

    /// Answers of a host to some of what it has, in any order.
    pub(super) fn answers(&mut self, rng: &mut fastrand::Rng, host: u32) -> Vec<u8> {
        let Some(seen) = self.at_host.get_mut(&host) else {
            return vec![];
        };
        let mut answers = vec![];
        for _ in 0..rng.usize(..=seen.len()) {
            let seen = seen.swap_remove(rng.usize(..seen.len()));
            if seen.head.kind == (Kind::Request { two_way: true }) {
                let number = number(&seen).to_string();
                let value = [
                    &[u8::try_from(number.len()).expect("short")],
                    number.as_bytes(),
                ];
                reply::value(&mut answers, seen.head.id, true, Some(&value.concat()));
            }
        }
        answers
    }

    /// The connection of a host is gone.
    pub(super) fn lost(&mut self, host: u32) {
        self.at_host.remove(&host);
    }

    /// A shard failed, and with it its connections.
    pub(super) fn failed(&mut self, shard: usize) {
        self.waiting.retain(|(of, _, _), _| *of != shard);
    }

    /// A session is gone, and whatever waited in it.
    pub(super) fn closed(&mut self, shard: usize, session: SessionId) {
        let gone = (shard, Key::Session(session));
        self.waiting
            .retain(|(shard, key, _), _| (*shard, *key) != gone);
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Looks at all that was written: at the hosts first, since an answer tells of them.
    pub(super) fn look(&mut self, shards: &mut Shards) {
        for world in &mut shards.worlds {
            for key in written(world) {
                if let Key::Host(place) = key {
                    let host = world.core.hosts.get(place as usize).map(Host::number);
                    for seen in whole(world, key) {
                        self.arrived(host, seen);
                    }
                }
            }
        }
        for (shard, world) in shards.worlds.iter_mut().enumerate() {
            for key in written(world) {
                if let Key::Session(_) = key {
                    for seen in whole(world, key) {
                        self.answered(shard, key, &seen);
                    }
                }
            }
        }
        self.at_host.retain(|host, _| shards.is_connected(*host));
        for world in &shards.worlds {
            check(world);
        }
    }

    fn arrived(&mut self, host: Option<u32>, seen: Seen) {
        let Kind::Request { two_way } = seen.head.kind else {
            return;
        };
        let number = number(&seen);
        let asked = &mut self.calls[number];
        asked.arrived += 1;
        assert!(asked.idempotent || asked.arrived == 1, "{number} ran twice");
        assert_eq!(two_way, asked.two_way);
        if two_way {
            let first = *self.ids.entry(seen.id()).or_insert(number);
            assert_eq!(first, number, "id {:x} for another call", seen.id());
            let mut living = self.at_host.values().flatten();
            let again = living.any(|other| other.head == seen.head);
            assert!(!again, "id {:x} is in flight", seen.id());
        }
        // One that went with its last bytes answers nothing.
        if let Some(host) = host {
            self.at_host.entry(host).or_default().push(seen);
        }
    }

    fn answered(&mut self, shard: usize, session: Key, seen: &Seen) {
        if !matches!(seen.head.kind, Kind::Response { .. }) {
            return;
        }
        let id = seen.id();
        let Some(number) = self.waiting.remove(&(shard, session, id)) else {
            panic!("{id} was answered twice, or never asked: {}", seen.text());
        };
        let (asked, text) = (&self.calls[number], seen.text());
        if seen.status() == Status::OK {
            assert!(text.contains(&number.to_string()), "{number} got {text}");
            return assert!(asked.arrived > 0);
        }
        if asked.idempotent || !self.exact || text.contains("UT ") {
            return;
        }
        let may_have_run = text.contains("UC ");
        assert_eq!(may_have_run, asked.arrived > 0, "{number}: {text}");
    }
}

/// The services that are called.
pub(super) const SERVICES: [&str; 2] = ["com.foo.Greeter", "com.foo.Shop"];

/// The number of a call at a provider.
fn number(seen: &Seen) -> usize {
    let text = seen.text();
    let (_, rest) = text.split_once("\u{1}n").expect("its number");
    let digits: String = rest[1..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// To whom something was written.
fn written(world: &World) -> Vec<Key> {
    world.written.keys().copied().collect()
}

/// Frames that reached a peer whole. What is cut stays for the next look.
fn whole(world: &mut World, of: Key) -> Vec<Seen> {
    let Some(bytes) = world.written.get_mut(&of) else {
        return vec![];
    };
    let (mut frames, mut at) = (vec![], 0);
    while let Some(head) = head_at(bytes, at).filter(|h| at + h.frame_len() <= bytes.len()) {
        let body = bytes[at + HEAD_LEN..at + head.frame_len()].to_vec();
        frames.push(Seen { head, body });
        at += head.frame_len();
    }
    bytes.drain(..at);
    frames
}

/// What holds in a shard after each step.
fn check(world: &World) {
    let core = &world.core;
    let limits = &core.settings.limits;
    let in_flight: u32 = core.hosts.iter().map(|(_, h)| h.in_flight).sum();
    let on_hosts = core.calls.iter().filter(|(_, a)| a.host.is_some()).count();
    assert_eq!(in_flight as usize, on_hosts, "hosts know how busy they are");
    assert!(core.calls.iter().count() <= limits.max_in_flight);
    assert!(core.held.calls <= limits.held_calls && core.held.bytes <= limits.held_bytes);
    assert!(core.copied <= limits.held_bytes + limits.held_bytes);
    let sessions = core.sessions.iter().map(|(_, session)| session);
    for session in sessions {
        assert!(session.in_flight as usize <= limits.max_in_flight_per_session);
        assert!(session.output.pending() <= limits.session_queue + LONGEST);
    }
    for (_, host) in &core.hosts {
        assert!(host.pending() <= limits.host_queue + HOST_READ);
    }
    for shard in core.outbox.others() {
        assert!(core.outbox.pending(shard) <= limits.handoff + LONGEST);
    }
}

/// More bytes than any frame here has.
const LONGEST: usize = 4096;
