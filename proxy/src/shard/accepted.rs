//! What a listener hands over.

use std::{net::TcpStream, os::unix::net::UnixStream};

use tokio::sync::OwnedSemaphorePermit;

use crate::model::Side;

/// A connection on its way to a shard.
#[derive(Debug)]
pub struct Accepted {
    /// The socket, non-blocking.
    pub socket: Connection,
    /// Who connected.
    pub side: Side,
    /// Its place among `limits.max_sessions`: to be dropped when the connection is closed.
    pub permit: OwnedSemaphorePermit,
}

/// The socket of a connection.
#[derive(Debug)]
pub enum Connection {
    /// Over TCP, without Nagle's delay, with probes of a silent peer.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}
