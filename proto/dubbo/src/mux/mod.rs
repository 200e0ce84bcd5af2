//! Many calls on one connection, as machines without I/O: what the loader, the test provider, the
//! SDK and the proxy's shard have in common.
//!
//! [`inflight`] (who waits for which reply), [`timer`] (until when) and [`link`] (is the peer still
//! there) own no bytes, and serve every one of them. [`Client`] and [`Server`] join them with a
//! buffer of what is to be written; the proxy's shard has a core of its own.
//!
//! A driver of either reads bytes and gives them to `receive`, acts on what that hands out until it
//! hands out nothing, writes `output` with one write, says how much was `sent`, and calls
//! `handle_timeout` at `poll_timeout`.

mod client;
pub mod inflight;
pub mod link;
mod output;
mod server;
#[cfg(test)]
mod tests;
pub mod timer;

pub use client::{Client, Event, Outgoing, Refusal, Refused, Written};
pub use server::{Call, Life, Server};

use crate::frame::Limits;

/// Bounds and timing of one connection, on either side.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// What may come in, and the longest call that may go out.
    pub limits: Limits,
    /// Heartbeats, and when the peer is dead.
    pub timing: link::Timing,
    /// Most calls without an answer. Default 65,536.
    pub max_calls: u32,
    /// Bytes that may wait to be written. When there are more, a client refuses calls and a server
    /// stops reading, so one frame more is the most that waits. Default 16 MiB.
    pub max_queued: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            timing: link::Timing::default(),
            max_calls: 1 << 16,
            max_queued: 16 * 1024 * 1024,
        }
    }
}
