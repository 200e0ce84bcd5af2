//! The control plane: who provides which service, and who is told of it.
//!
//! A registry yields changes of the services that somebody asked for, the catalog makes immutable
//! snapshots of them, and the pilot answers proxies from these. Bonder runs what stands in one container,
//! and registers what it provides.

pub mod bonder;
pub mod catalog;
pub mod endpoint;
mod logging;
mod output;
mod patience;
pub mod pilot;
pub mod registry;
mod server;
mod yaml;
