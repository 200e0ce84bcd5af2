//! Client and server, each alone; `tests/mux_simulation.rs` joins them.

mod client;
mod server;

use std::time::Instant;

use super::output::Output;
use crate::head::{Kind, RequestId, Serialization};

#[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
fn start() -> Instant {
    Instant::now()
}

fn frame(kind: Kind, id: RequestId, body: &[u8]) -> Vec<u8> {
    let mut output = Output::default();
    output.push(kind, Serialization::HESSIAN2, id, body);
    output.bytes().to_vec()
}
