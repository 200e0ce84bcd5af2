//! Operations on the connection machines and their parts, compared with plain collections.
#![no_main]

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use dubbo_proto::{
    frame::Limits,
    head::{RequestId, Serialization},
    mux::{
        Client, Config, Event, Outgoing, Server,
        inflight::Slots,
        link::{Link, Timing},
        timer::{TICK, Timer},
    },
    reply,
};
use libfuzzer_sys::fuzz_target;

/// More operations than this find nothing new, slowly.
const LONGEST: usize = 512;

fuzz_target!(|input: &[u8]| {
    let input = &input[..input.len().min(LONGEST)];
    parts(input);
    machines(input);
});

/// Slots and timer against maps.
fn parts(input: &[u8]) {
    let origin = Instant::now();
    let (mut now, mut slots, mut timer) = (origin, Slots::new(1, 8), Timer::new(origin));
    let mut link = Link::new(now, Timing::default());
    let (mut calls, mut deadlines) = (BTreeMap::new(), BTreeMap::new());
    let mut seen = Vec::new();
    for pair in input.chunks_exact(2) {
        let (operation, value) = (pair[0], pair[1]);
        let key = u32::from(value % 16);
        match operation % 9 {
            0 => match slots.insert(value) {
                Ok(id) => {
                    assert!(!seen.contains(&id), "{id:?} came twice");
                    seen.push(id);
                    calls.insert(id.0, value);
                }
                Err(back) => assert!(back == value && calls.len() == 8),
            },
            1 | 2 => {
                let id = seen.get(usize::from(value)).copied();
                let id = id.unwrap_or(RequestId(u64::from(value) << 24));
                assert_eq!(slots.get(id), calls.get(&id.0));
                assert_eq!(slots.remove(id), calls.remove(&id.0));
            }
            3 => slots.shrink(),
            4 | 5 => {
                let at = now + TICK * u32::from(value) * 40;
                timer.set(key, at);
                deadlines.insert(key, at);
            }
            6 => {
                timer.cancel(key);
                deadlines.remove(&key);
            }
            7 => {
                now += TICK * u32::from(value) * 7;
                while let Some(key) = timer.expire(now) {
                    let at = deadlines.remove(&key).expect("it was set");
                    assert!(at <= now, "early");
                }
                assert!(deadlines.values().all(|at| *at + TICK * 2 > now), "late");
            }
            _ => {
                match value % 5 {
                    0 => link.received(now),
                    1 => link.sent(now),
                    2 => link.read_only(),
                    3 => link.writeable(),
                    _ => link.drain(),
                }
                now += Duration::from_secs(u64::from(value));
                let due = link.handle_timeout(now);
                assert!(due.is_some() || link.poll_timeout() > now);
            }
        }
        assert_eq!(slots.len() as usize, calls.len());
        assert_eq!(timer.len(), deadlines.len());
    }
}

/// A client and a server that talk, with whatever bytes stand in the input between their own.
fn machines(input: &[u8]) {
    let config = Config {
        limits: Limits { max_body: 512 },
        max_calls: 8,
        max_queued: 2048,
        ..Config::default()
    };
    let mut now = Instant::now();
    let (mut client, mut server) = (Client::new(now, config), Server::new(now, config));
    let (mut up, mut down, mut waiting, mut next) = (Vec::new(), Vec::new(), Vec::new(), 0u32);
    for pair in input.chunks_exact(2) {
        let (operation, value) = (pair[0], pair[1]);
        match operation % 8 {
            0 => {
                let body = &input[..input.len().min(usize::from(value))];
                let deadline = now + Duration::from_millis(u64::from(value));
                let serialization = Serialization::from_bits(value);
                let call = Outgoing {
                    serialization,
                    body,
                    deadline,
                };
                if client.send(call, next).is_ok() {
                    waiting.push(next);
                }
                next += 1;
            }
            1 => {
                let n = client.output().len().min(usize::from(value));
                up.extend_from_slice(&client.output()[..n]);
                client.sent(now, n);
            }
            2 => {
                let n = server.output().len().min(usize::from(value));
                down.extend_from_slice(&server.output()[..n]);
                server.sent(now, n);
            }
            3 => {
                let mut rest = &up[..];
                let mut owed = Vec::new();
                while let Ok(Some(call)) = server.receive(now, &mut rest) {
                    owed.extend(call.two_way.then_some((call.id, call.serialization)));
                    for (id, serialization) in owed.drain(..) {
                        let status = dubbo_proto::head::Status(value);
                        server.answer(|out| reply::error(out, serialization, id, status, "no"));
                    }
                }
                let taken = up.len() - rest.len();
                up.drain(..taken);
            }
            4 => {
                let mut rest = &down[..];
                while let Ok(Some(event)) = client.receive(now, &mut rest) {
                    end(&mut waiting, event);
                }
                let taken = down.len() - rest.len();
                down.drain(..taken);
            }
            5 => {
                now += Duration::from_millis(u64::from(value) * 3);
                while let Some(event) = client.handle_timeout(now) {
                    let dead = event == Event::Dead;
                    end(&mut waiting, event);
                    if dead {
                        break;
                    }
                }
                let _ = server.handle_timeout(now);
            }
            6 => {
                let alien = &input[..input.len().min(usize::from(value))];
                if operation & 8 == 0 {
                    up.extend(alien)
                } else {
                    down.extend(alien)
                }
            }
            _ => match value % 16 {
                0 => client.drain(),
                1 => server.drain(),
                _ => client.ping(),
            },
        }
        assert_eq!(client.in_flight() as usize, waiting.len());
        assert!(client.output().len() <= config.max_queued + 1024);
    }
    for (waiter, _) in client.into_lost() {
        waiting.retain(|other| *other != waiter);
    }
    assert!(waiting.is_empty(), "{waiting:?} never ended");
}

/// A call ends once.
fn end(waiting: &mut Vec<u32>, event: Event<'_, u32>) {
    if let Event::Reply { waiter, .. } | Event::TimedOut { waiter } = event {
        let at = waiting.iter().position(|other| *other == waiter);
        waiting.swap_remove(at.expect("it waits, and had no end before"));
    }
}
