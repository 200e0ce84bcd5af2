//! The test harness: processes, scripted Dubbo peers, HTTP, a keeper of sockets, a pilot, network namespaces,
//! the table of TCP sockets, and waiting.
//!
//! Everything blocks the calling thread, waits for a condition with a deadline instead of sleeping,
//! and panics with what was seen where a test should fail: these are test helpers.

pub mod ads;
pub mod http;
pub mod keeper;
pub mod namespace;
pub mod peer;
pub mod pilot;
pub mod process;
pub mod proxy;
pub mod tcp;
pub mod wait;
