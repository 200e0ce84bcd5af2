//! What one look into a request costs: prints nanoseconds per call.
//!
//! Instructions tell more than time does on a busy machine:
//! `valgrind --tool=callgrind target/release/deps/peek-*`, the total divided by [`CALLS`].

use std::{hint::black_box, time::Instant};

use dubbo_proto::{
    head::Serialization,
    hessian2::{Limits, writer::Writer},
    invocation::{Invocation, Outgoing, Scratch, write},
};

#[expect(
    clippy::disallowed_methods,
    reason = "a bench is a driver: it reads the clock"
)]
fn main() {
    let body = body();
    let limits = Limits::default();
    let mut scratch = Scratch::default();
    let start = Instant::now();
    for _ in 0..CALLS {
        let body = black_box(body.as_slice());
        let call = Invocation::peek(Serialization::HESSIAN2, body, &limits, &mut scratch);
        black_box(&call).as_ref().expect("a good body");
    }
    let took = start.elapsed();
    println!(
        "{:.1} ns per call",
        took.as_secs_f64() * 1e9 / f64::from(CALLS)
    );
}

/// A call with one string of 128 bytes, as Java sends it.
fn body() -> Vec<u8> {
    let mut arguments = Vec::new();
    Writer::new(&mut arguments).text(&"x".repeat(128));
    let mut body = Vec::new();
    let call = Outgoing {
        path: INTERFACE,
        version: "1.0.0",
        method: "sayHello",
        types: "Ljava/lang/String;",
        arguments: &arguments,
        attachments: &[
            ("path", INTERFACE),
            ("interface", INTERFACE),
            ("version", "1.0.0"),
            ("timeout", "1000"),
            ("remote.application", "demo-consumer"),
        ],
    };
    write(&mut body, &call);
    body
}

/// Longer than what fits a string's shortest form, as most are.
const INTERFACE: &str = "org.apache.dubbo.demo.DemoService";
const CALLS: u32 = 1_000_000;
