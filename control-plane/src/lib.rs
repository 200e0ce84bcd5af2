//! The control plane: who provides which service, and who is told of it.
//!
//! A registry yields changes of the services that somebody asked for, the catalog makes immutable
//! snapshots of them, and the pilot answers proxies from these.

pub mod catalog;
pub mod pilot;
pub mod registry;
