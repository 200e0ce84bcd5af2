//! Mutated vectors: nothing panics, and whoever reads the same bytes agrees about them.

use dubbo_proto::{
    event, frame,
    head::{Head, Kind, Serialization},
    hessian2::{Reader, Tables},
    invocation::{Invocation, Scratch},
    reply,
};
use fastrand::Rng;

use crate::{
    hessian,
    vector::{LIMITS, frames, hex, load},
};

/// Inputs per test: a few seconds unoptimised.
const ROUNDS: u64 = 60_000;
/// Longer vectors are boundaries of lengths, not of structure.
const LONGEST: usize = 1024;

/// Changes one to four things.
fn mutate(random: &mut Rng, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    for _ in 0..random.usize(1..=4) {
        let at = random.usize(0..=bytes.len());
        match random.u8(0..7) {
            0 if at < bytes.len() => bytes[at] = random.u8(..),
            1 if at < bytes.len() => bytes[at] ^= 1 << random.u8(0..8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.insert(at, random.u8(..)),
            4 => bytes.truncate(at),
            5 => {
                let other = random.choice(others).expect("vectors");
                let from = random.usize(0..=other.len());
                let to = random.usize(from..=other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            _ => {
                let tags = b"CHMNOQRSUVWXZI\x60\x70\x78\x90";
                bytes.insert(at, *random.choice(tags).expect("tags"));
            }
        }
    }
}

/// Runs `check` on mutated inputs; the seed of the one that fails is printed.
fn run(inputs: &[Vec<u8>], check: impl Fn(&[u8])) {
    for seed in 0..ROUNDS {
        let mut random = Rng::with_seed(seed);
        let mut bytes = random.choice(inputs).expect("vectors").clone();
        mutate(&mut random, &mut bytes, inputs);
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&bytes)));
        assert!(checked.is_ok(), "seed {seed}: {}", hex(&bytes));
    }
}

#[test]
fn values() {
    let mut inputs = load(include_str!("../vectors/hessian.json"));
    inputs.extend(load(include_str!("../vectors/java_written.json")));
    let inputs: Vec<_> = inputs.into_iter().map(|vector| vector.bytes).collect();
    let inputs: Vec<_> = inputs.into_iter().filter(|b| b.len() <= LONGEST).collect();
    // That reading and skipping agree is checked inside.
    run(&inputs, |bytes| match hessian::read(bytes) {
        Ok((_, consumed, _)) => assert!(consumed <= bytes.len()),
        Err(error) => assert!(error.offset <= bytes.len()),
    });
}

#[test]
fn frames_of_every_kind() {
    let inputs: Vec<_> = frames().into_iter().map(|vector| vector.bytes).collect();
    let inputs: Vec<_> = inputs.into_iter().filter(|b| b.len() <= LONGEST).collect();
    run(&inputs, |bytes| {
        let _ = frame::peek(bytes, frame::Limits::default());
        if let Some((head, body)) = bytes.split_first_chunk()
            && let Some(head) = Head::decode(head)
        {
            check_body(&head, body);
        }
    });
}

fn check_body(head: &Head, body: &[u8]) {
    let mut scratch = Scratch::default();
    match head.kind {
        Kind::Request { .. } => {
            for bits in 0..32 {
                check_call(Serialization::from_bits(bits), body, &mut scratch);
            }
        }
        Kind::Response { status } => {
            let serialization = head.serialization;
            let _ = reply::kind(status, serialization, body);
            let _ = reply::exception_class(serialization, body, &mut scratch);
            let taken = reply::take_attachment(serialization, body, "dubbo", &LIMITS, &mut scratch);
            if let Some((at, _)) = taken {
                assert!(body.get(at).is_some());
            }
        }
        Kind::Event { .. } | Kind::EventResponse { .. } => {
            let _ = event::read(head.serialization, body);
        }
    }
}

fn check_call(serialization: Serialization, body: &[u8], scratch: &mut Scratch) {
    let Ok(call) = Invocation::peek(serialization, body, &LIMITS, scratch) else {
        return;
    };
    let _ = (
        call.takes_reply_attachments(),
        call.real_method().to_string(),
    );
    let range = call.attachments.range();
    assert!(call.arguments() <= range.start && range.end <= body.len());
    // What comes behind the end of a call changes nothing of it.
    let told = format!("{call:?}");
    let path = call.attachments.get("path").unwrap_or_default();
    assert_eq!(call.attachments.path.unwrap_or_default(), path);
    let again = Invocation::peek(serialization, &body[..range.end], &LIMITS, scratch);
    let again = again.expect("the same call");
    assert_eq!(again.method, call.method, "{told}");
    if serialization == Serialization::HESSIAN2 {
        let mut tables = Tables::default();
        let mut reader = Reader::new(body, &LIMITS, &mut tables);
        while reader.position() < range.end {
            reader.skip().expect("a value after the other");
        }
        assert_eq!(reader.position(), range.end);
    }
}
