//! A client and a server joined by a pipe that cuts frames anywhere, stalls and breaks, in virtual
//! time: random operations, and after each of them what must always hold.
//!
//! A failing run prints its seed; the same seed makes the same run.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use dubbo_proto::frame::{self, Limits};
use dubbo_proto::head::{Kind, RequestId, Serialization, Status};
use dubbo_proto::mux::link::{Phase, Timing};
use dubbo_proto::mux::{Client, Config, Event, Life, Outgoing, Refusal, Server, Written, timer};
use dubbo_proto::reply;

const SEEDS: u64 = 200;
const STEPS: usize = 1_500;

#[test]
fn every_call_ends_once() {
    let mut ends = Ends::default();
    for seed in 0..SEEDS {
        let _name = Name(seed);
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
            world.check();
            if world.client.is_none() {
                break;
            }
        }
        world.settle();
        ends.add(&world.ends);
    }
    // A simulation that never gets somewhere proves nothing there.
    assert!(ends.replies > 5_000, "{ends:?}");
    assert!(ends.exhausted > 100, "{ends:?}");
    assert!(ends.timeouts > 1_000, "{ends:?}");
    assert!(ends.lost_unwritten > 50, "{ends:?}");
    assert!(ends.lost > 50, "{ends:?}");
    assert!(ends.refused > 1_000, "{ends:?}");
    assert!(ends.one_way > 1_000, "{ends:?}");
    assert!(ends.strays > 1_000, "{ends:?}");
    assert!(ends.dead > 10, "{ends:?}");
}

/// Names the seed of a run that fails.
struct Name(u64);

impl Drop for Name {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failing seed: {}", self.0);
        }
    }
}

struct World {
    random: Random,
    now: Instant,
    /// None once the connection is gone.
    client: Option<Client<u64>>,
    server: Server,
    up: Pipe,
    down: Pipe,
    calls: BTreeMap<u64, Call>,
    /// Calls the server has not answered.
    owed: Vec<(RequestId, Vec<u8>)>,
    /// Bytes the kernel has taken.
    written: u64,
    one_way_sent: u64,
    read_only_seen: u64,
    responses: u64,
    ends: Ends,
}

struct Call {
    body: Vec<u8>,
    deadline: Instant,
    /// Bytes that had to be written for its frame to be whole.
    end: u64,
    ended: bool,
    /// The server was handed it.
    run: bool,
}

#[derive(Debug, Default)]
struct Ends {
    replies: u64,
    exhausted: u64,
    timeouts: u64,
    lost: u64,
    lost_unwritten: u64,
    refused: u64,
    one_way: u64,
    strays: u64,
    dead: u64,
}

/// Bytes on their way, and those that have arrived but are no whole frame yet.
#[derive(Default)]
struct Pipe {
    flying: VecDeque<u8>,
    arrived: Vec<u8>,
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
    fn new(seed: u64) -> Self {
        let now = Instant::now();
        let mut random = Random(seed);
        let config = Config {
            limits: Limits { max_body: 400 },
            timing: Timing::default(),
            max_calls: 1 + random.below(40) as u32,
            max_queued: 200 + random.below(4_000) as usize,
        };
        let served = Config {
            max_calls: 1 + random.below(40) as u32,
            max_queued: 200 + random.below(4_000) as usize,
            ..config
        };
        Self {
            random,
            now,
            client: Some(Client::new(now, config)),
            server: Server::new(now, served),
            up: Pipe::default(),
            down: Pipe::default(),
            calls: BTreeMap::new(),
            owed: Vec::new(),
            written: 0,
            one_way_sent: 0,
            read_only_seen: 0,
            responses: 0,
            ends: Ends::default(),
        }
    }

    fn step(&mut self) {
        match self.random.below(1_000) {
            0..250 => self.send(),
            250..290 => self.send_one_way(),
            290..440 => self.write_up(),
            440..560 => self.deliver_up(),
            560..700 => self.answer(),
            700..820 => self.write_down(),
            820..940 => self.deliver_down(),
            940..990 => self.pass(200_000),
            990..995 => self.pass(70_000_000),
            995 if self.random.below(4) == 0 => self.pass(400_000_000),
            996..997 => self.server.drain(),
            997..998 => self.client.iter_mut().for_each(Client::ping),
            998 if self.random.below(4) == 0 => self.client.iter_mut().for_each(Client::drain),
            999 if self.random.below(4) == 0 => self.cut(),
            _ => {}
        }
    }

    fn send(&mut self) {
        let Some(client) = &mut self.client else {
            return;
        };
        let serial = self.calls.len() as u64;
        let mut body = serial.to_be_bytes().to_vec();
        body.resize(8 + self.random.below(398) as usize, serial as u8);
        let deadline = self.now + Duration::from_millis(self.random.below(3_000));
        let ready = client.is_ready();
        let call = Outgoing {
            serialization: Serialization::HESSIAN2,
            body: &body,
            deadline,
        };
        match client.send(call, serial) {
            Ok(_) => {
                assert!(ready && body.len() <= 400);
                let end = self.written + client.output().len() as u64;
                let call = Call {
                    body,
                    deadline,
                    end,
                    ended: false,
                    run: false,
                };
                self.calls.insert(serial, call);
            }
            Err(refused) => {
                assert_eq!(refused.waiter, serial, "the waiter comes back");
                let long = body.len() > 400;
                match refused.why {
                    Refusal::TooLong => assert!(long),
                    why => assert!(!ready, "{why} while ready"),
                }
                self.ends.refused += 1;
            }
        }
    }

    fn send_one_way(&mut self) {
        let Some(client) = &mut self.client else {
            return;
        };
        let sent = client.send_one_way(Serialization::HESSIAN2, b"one way");
        self.one_way_sent += u64::from(sent.is_ok());
    }

    fn write_up(&mut self) {
        let Some(client) = &mut self.client else {
            return;
        };
        let n = self.up.take(client.output(), &mut self.random);
        client.sent(self.now, n);
        self.written += n as u64;
    }

    fn write_down(&mut self) {
        let n = self.down.take(self.server.output(), &mut self.random);
        self.server.sent(self.now, n);
    }

    fn deliver_up(&mut self) {
        self.up.deliver(&mut self.random);
        let mut rest = &self.up.arrived[..];
        while let Some(call) = self
            .server
            .receive(self.now, &mut rest)
            .expect("good frames")
        {
            if !call.two_way {
                assert_eq!(call.body, b"one way");
                self.ends.one_way += 1;
                continue;
            }
            let serial = u64::from_be_bytes(*call.body.first_chunk().expect("a serial"));
            let sent = self.calls.get_mut(&serial).expect("nobody sent that");
            assert_eq!(call.body, sent.body);
            assert!(!sent.run, "call {serial} ran twice");
            sent.run = true;
            self.owed.push((call.id, call.body.to_vec()));
        }
        let taken = self.up.arrived.len() - rest.len();
        self.up.arrived.drain(..taken);
    }

    /// Answers any call, now and then twice, or one that was never asked.
    fn answer(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        let which = self.random.below(self.owed.len() as u64) as usize;
        let (id, body) = self.owed.swap_remove(which);
        let (twice, alien) = (self.random.below(20) == 0, self.random.below(20) == 0);
        self.server.answer(|out| {
            for _ in 0..=u8::from(twice) {
                reply::value(out, id, false, Some(half(&body)));
            }
            if alien {
                reply::value(out, RequestId(id.0 ^ (1 << 60)), false, None);
            }
        });
    }

    fn deliver_down(&mut self) {
        self.down.deliver(&mut self.random);
        let Some(client) = &mut self.client else {
            return;
        };
        let mut count = &self.down.arrived[..];
        while let Some((head, _)) = frame::cut(&mut count, Limits::default()).expect("frames") {
            self.responses += u64::from(matches!(head.kind, Kind::Response { .. }));
        }
        let mut rest = &self.down.arrived[..];
        while let Some(event) = client.receive(self.now, &mut rest).expect("good frames") {
            match event {
                Event::Reply {
                    waiter,
                    status,
                    body,
                    ..
                } => {
                    let call = self.calls.get_mut(&waiter).expect("nobody sent that");
                    assert!(!call.ended, "call {waiter} ended twice");
                    call.ended = true;
                    if status == Status::OK {
                        assert!(call.run && body.get(1..) == Some(half(&call.body)));
                        self.ends.replies += 1;
                    } else {
                        assert_eq!(status, Status::THREADPOOL_EXHAUSTED);
                        assert!(!call.run, "call {waiter} ran, and was refused");
                        self.ends.exhausted += 1;
                    }
                }
                Event::ReadOnly => self.read_only_seen += 1,
                other => panic!("{other:?} from bytes"),
            }
        }
        let left = rest.len();
        assert_eq!(left, count.len(), "every whole frame was taken");
        let taken = self.down.arrived.len() - left;
        self.down.arrived.drain(..taken);
    }

    fn pass(&mut self, most_us: u64) {
        self.now += Duration::from_micros(self.random.below(most_us));
        let mut dead = self.server.handle_timeout(self.now) == Life::Dead;
        let Some(client) = &mut self.client else {
            return;
        };
        while let Some(event) = client.handle_timeout(self.now) {
            match event {
                Event::TimedOut { waiter } => {
                    let call = self.calls.get_mut(&waiter).expect("nobody sent that");
                    assert!(!call.ended, "call {waiter} ended twice");
                    assert!(call.deadline <= self.now, "call {waiter} timed out early");
                    call.ended = true;
                    self.ends.timeouts += 1;
                }
                Event::Dead => {
                    dead = true;
                    break;
                }
                other => panic!("{other:?} from the clock"),
            }
        }
        assert!(dead || client.poll_timeout() > self.now, "would spin");
        for (serial, call) in self.calls.iter().filter(|(_, call)| !call.ended) {
            assert!(
                call.deadline + timer::TICK > self.now,
                "call {serial} waits too long"
            );
        }
        if dead {
            self.ends.dead += 1;
            self.cut();
        }
    }

    /// The connection breaks: what is on its way up may arrive, nothing comes back.
    fn cut(&mut self) {
        let Some(client) = self.client.take() else {
            return;
        };
        self.ends.strays += client.strays();
        let in_flight = client.in_flight() as usize;
        let lost: Vec<_> = client.into_lost().collect();
        assert_eq!(lost.len(), in_flight);
        while !self.up.flying.is_empty() {
            self.deliver_up();
            self.owed.clear();
            self.server.sent(self.now, self.server.output().len());
        }
        for (serial, written) in lost {
            let call = self.calls.get_mut(&serial).expect("nobody sent that");
            assert!(!call.ended, "call {serial} ended twice");
            call.ended = true;
            assert_eq!(written == Written::No, call.end > self.written);
            match written {
                Written::No => {
                    assert!(!call.run, "call {serial} ran and was called unwritten");
                    self.ends.lost_unwritten += 1;
                }
                Written::Maybe => self.ends.lost += 1,
            }
        }
    }

    /// What must hold after every step.
    fn check(&self) {
        let waiting = self.calls.values().filter(|call| !call.ended).count();
        let Some(client) = &self.client else {
            assert_eq!(waiting, 0, "calls outlived their connection");
            return;
        };
        assert_eq!(client.in_flight() as usize, waiting);
        assert_eq!(self.server.in_flight() as usize, self.owed.len());
        assert!(self.read_only_seen <= 1);
        assert!(self.read_only_seen == 0 || client.phase() != Phase::Open);
        let replies = self.ends.replies + self.ends.exhausted;
        assert_eq!(self.responses, replies + client.strays());
        assert!(self.ends.one_way <= self.one_way_sent);
        // One more frame than the bound, and for the server all answers it owes.
        assert!(client.output().len() < 4_200 + 416 + 17);
        assert!(self.server.output().len() < 4_200 + 41 * 3 * 450);
    }

    /// Lets everything arrive, and looks whether anything is left.
    fn settle(&mut self) {
        for _ in 0..200_000 {
            let idle = self
                .client
                .as_ref()
                .is_none_or(|client| client.output().is_empty())
                && self.server.output().is_empty()
                && self.up.is_empty()
                && self.down.is_empty()
                && self.owed.is_empty();
            if self.client.is_none() || idle {
                break;
            }
            self.write_up();
            self.deliver_up();
            self.answer();
            self.write_down();
            self.deliver_down();
            self.check();
        }
        let Some(client) = &self.client else { return };
        assert_eq!(
            client.in_flight(),
            0,
            "everything was answered or timed out"
        );
        self.ends.strays += client.strays();
        assert_eq!(self.ends.one_way, self.one_way_sent);
        self.server.drain();
        assert_eq!(self.server.is_drained(), self.server.output().is_empty());
    }
}

impl Pipe {
    /// Takes some of `output`, as a kernel does that has little room; how much.
    fn take(&mut self, output: &[u8], random: &mut Random) -> usize {
        let room = 3_000 - self.flying.len().min(3_000);
        let n = (random.below(1_500) as usize).min(room).min(output.len());
        self.flying.extend(&output[..n]);
        n
    }

    fn deliver(&mut self, random: &mut Random) {
        let n = (1 + random.below(1_500) as usize).min(self.flying.len());
        self.arrived.extend(self.flying.drain(..n));
    }

    fn is_empty(&self) -> bool {
        self.flying.is_empty() && self.arrived.is_empty()
    }
}

impl Ends {
    fn add(&mut self, other: &Self) {
        self.replies += other.replies;
        self.exhausted += other.exhausted;
        self.timeouts += other.timeouts;
        self.lost += other.lost;
        self.lost_unwritten += other.lost_unwritten;
        self.refused += other.refused;
        self.one_way += other.one_way;
        self.strays += other.strays;
        self.dead += other.dead;
    }
}

/// What a call is answered with: shorter than the call, so that it is within the same limit.
fn half(body: &[u8]) -> &[u8] {
    &body[..body.len() / 2]
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}
