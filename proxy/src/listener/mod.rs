//! Where connections come in: bind, accept within limits, hand each socket to a shard.
//!
//! A connection is accepted only when a shard has room for it; until then it waits in the kernel.
//! None is accepted only to be closed, since some clients come back thousands of times a second;
//! the exception are foreign sources on a listener for this host alone, which are reset.

mod accept;
mod bind;

use std::{net::TcpStream, os::unix::net::UnixStream};

use tokio::sync::OwnedSemaphorePermit;

use crate::model::Side;

pub use accept::Acceptor;
pub use bind::{Bound, bind};

/// A connection on its way to a shard.
#[derive(Debug)]
pub struct Accepted {
    /// The socket, non-blocking.
    pub socket: Socket,
    /// Who connected.
    pub side: Side,
    /// Its place among `limits.max_sessions`: to be dropped when the connection is closed.
    pub permit: OwnedSemaphorePermit,
}

/// The socket of a connection.
#[derive(Debug)]
pub enum Socket {
    /// Over TCP, without Nagle's delay, with probes of a silent peer.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

#[cfg(test)]
mod tests;
