//! Random operations from a seed, and what must hold after each of them.

use super::*;

/// What the simulated peers know.
#[derive(Default)]
struct Truth {
    /// Calls that wait for an answer, by session and id.
    waiting: HashMap<(SessionId, u64), ()>,
    /// What each host has and did not answer.
    at_host: Vec<Vec<Seen>>,
    next: u64,
}

#[test]
fn every_call_is_answered_once_whatever_happens() {
    for seed in 0..60 {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "failing seed: {seed}");
    }
}

fn run(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut world = World::new(3, |limits, service| {
        limits.host_queue = 64 * 1024;
        idempotent(service);
    });
    let mut truth = Truth {
        at_host: vec![vec![]; 3],
        ..Truth::default()
    };
    let mut sessions: Vec<SessionId> = (0..4).map(|_| world.open()).collect();
    for _ in 0..1500 {
        match rng.u8(..100) {
            0..50 => send(&mut world, &mut truth, &mut rng, &sessions),
            50..75 => reply_some(&mut world, &mut truth, &mut rng),
            75..80 => block(&mut world, &mut rng),
            80..86 => (0..3).for_each(|h| world.unblock(Key::Host(h))),
            86..90 => {
                let host = rng.u32(..3);
                collect(&mut world, &mut truth);
                world.lose(host);
                truth.at_host[host as usize].clear();
            }
            90..94 => {
                let host = rng.u32(..3);
                if !world.core.hosts[host as usize].upstream.is_up() {
                    world.connect(host);
                }
            }
            94..96 => {
                let at = rng.usize(..sessions.len());
                world
                    .core
                    .close_session(sessions[at], crate::metrics::CloseReason::Reset);
                truth
                    .waiting
                    .retain(|(session, _), ()| *session != sessions[at]);
                sessions[at] = world.open();
            }
            _ => world.wait(Duration::from_millis(rng.u64(..400))),
        }
        collect(&mut world, &mut truth);
        check(&mut world, &mut truth, &sessions);
    }
    world.wait(Duration::from_secs(70));
    check(&mut world, &mut truth, &sessions);
    assert!(truth.waiting.is_empty(), "unanswered: {:?}", truth.waiting);
    assert!(world.core.calls.is_empty() && world.core.deadlines.is_empty());
    assert_eq!((world.core.held.calls, world.core.held.bytes), (0, 0));
}

fn send(world: &mut World, truth: &mut Truth, rng: &mut fastrand::Rng, sessions: &[SessionId]) {
    let session = sessions[rng.usize(..sessions.len())];
    let frames: Vec<u8> = (0..rng.u64(1..6))
        .flat_map(|_| {
            truth.next += 1;
            let two_way = rng.u8(..10) > 0;
            if two_way {
                truth.waiting.insert((session, truth.next), ());
            }
            let method = if rng.bool() { "find" } else { "save" };
            let timeout = rng.u32(1..3000).to_string();
            call(truth.next, method, two_way, &[("timeout", &timeout)])
        })
        .collect();
    world.request(session, &frames);
}

fn reply_some(world: &mut World, truth: &mut Truth, rng: &mut fastrand::Rng) {
    let host = rng.usize(..3);
    let count = rng.usize(..=truth.at_host[host].len());
    let mut answers = vec![];
    for _ in 0..count {
        let at = rng.usize(..truth.at_host[host].len());
        let seen = truth.at_host[host].swap_remove(at);
        if seen.head.kind == (Kind::Request { two_way: true }) {
            answers.extend(answer(&seen));
        }
    }
    let host = u32::try_from(host).expect("few");
    if world.core.hosts[host as usize].upstream.is_up() {
        world.reply(host, &answers);
    }
}

fn block(world: &mut World, rng: &mut fastrand::Rng) {
    let host = Key::Host(rng.u32(..3));
    world.kernels.insert(host, rng.usize(..2000));
}

/// Frames that reached a host whole. What is cut stays for the next look.
fn collect(world: &mut World, truth: &mut Truth) {
    for host in 0..3u32 {
        let bytes = world.written.remove(&Key::Host(host)).unwrap_or_default();
        let mut at = 0;
        while let Some(head) = head_at(&bytes, at).filter(|h| at + h.frame_len() <= bytes.len()) {
            let body = bytes[at + HEAD_LEN..at + head.frame_len()].to_vec();
            truth.at_host[host as usize].push(Seen { head, body });
            at += head.frame_len();
        }
        if world.core.hosts[host as usize].upstream.is_up() && at < bytes.len() {
            world.written.insert(Key::Host(host), bytes[at..].to_vec());
        }
    }
}

fn check(world: &mut World, truth: &mut Truth, sessions: &[SessionId]) {
    for session in sessions {
        for seen in world.session_saw(*session) {
            if matches!(seen.head.kind, Kind::Response { .. }) {
                let known = truth.waiting.remove(&(*session, seen.id()));
                assert!(
                    known.is_some(),
                    "{} was answered twice, or never asked",
                    seen.id()
                );
            }
        }
    }
    let in_flight: u32 = world.core.hosts.iter().map(|(_, h)| h.in_flight).sum();
    let on_hosts = world
        .core
        .calls
        .iter()
        .filter(|(_, a)| a.host.is_some())
        .count();
    assert_eq!(in_flight as usize, on_hosts, "hosts know how busy they are");
    let of_sessions: u32 = world.core.sessions.iter().map(|(_, s)| s.in_flight).sum();
    assert!(of_sessions as usize <= world.core.calls.iter().count());
}
