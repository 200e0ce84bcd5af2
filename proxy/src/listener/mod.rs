//! Where connections come in: bind, accept within limits, hand each socket to a shard.
//!
//! A connection is accepted only when a shard has room for it; until then it waits in the kernel.
//! None is accepted only to be closed, since some clients come back thousands of times a second;
//! the exception are foreign sources on a listener for this host alone, which are reset.

mod accept;
mod bind;
mod keeper;

pub use crate::shard::{Accepted, Connection};
pub use accept::Acceptor;
pub use bind::{Bound, Error, bind};
pub use keeper::{Inherited, Keeper, KeeperError};

#[cfg(test)]
mod tests;
