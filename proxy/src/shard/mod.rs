//! One thread's world: its sockets, its calls in flight, its mirror of the mesh.
//!
//! [`machine`] is one without I/O, await or lock. It is fed bytes, lost connections, deadlines
//! and changes, and yields runs of frames in the outputs of its sessions and hosts, and
//! [`Action`]s. [`driver`] reads sockets, feeds the core, and writes each touched output once.
//!
//! In the order in which a call meets them:
//! - [`accepted`], [`sessions`]: connections of applications and peers, downstream;
//! - [`core`]: a request comes in, is sent to a host, and its reply goes back: the hot path;
//! - [`recent`]: requests that say again what an earlier one said;
//! - [`services`], [`apply`]: the mirror of the mesh;
//! - [`hosts`], [`loss`]: connections to providers, upstream, and what happens when one is lost;
//! - [`discovery`]: services that are asked for because of a call;
//! - [`held`]: calls that wait for a host, or until their service is known;
//! - [`answers`]: what we answer ourselves;
//! - [`time`]: deadlines, heartbeats, drain;
//! - [`output`], [`backlog`], [`buffers`]: bytes on their way;
//! - [`intake`], [`socket`], [`wake`]: what the driver is made of;
//! - [`threads`], [`handoff`], [`links`]: all shards, batches between them, and what they know of each
//!   other's hosts;
//! - [`quarantine`]: frames that a shard failed on.

mod accepted;
mod answers;
mod apply;
mod backlog;
mod buffers;
mod core;
mod discovery;
mod driver;
mod handoff;
mod held;
mod hosts;
mod intake;
mod links;
mod loss;
mod machine;
mod output;
mod quarantine;
mod recent;
mod services;
mod sessions;
mod socket;
#[cfg(test)]
mod tests;
mod threads;
mod time;
mod wake;

pub use self::accepted::{Accepted, Connection};
pub(crate) use self::threads::{Common, Shards};
