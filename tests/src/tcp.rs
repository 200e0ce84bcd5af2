//! What the kernel tells of TCP sockets over IPv4.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

/// A socket as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// Its own address.
    pub local: SocketAddr,
    /// The address it is, or is being, connected to.
    pub remote: SocketAddr,
    /// How far that is.
    pub state: State,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Both sides may send.
    Established,
    /// The other side has not answered yet.
    SynSent,
    /// Any other.
    Other,
}

/// All sockets in the network namespace of this thread.
///
/// # Panics
/// If the kernel tells none, or in another form.
#[must_use]
pub fn sockets() -> Vec<Socket> {
    let table = fs::read_to_string("/proc/thread-self/net/tcp").expect("a table of sockets");
    let rows = table.lines().skip(1);
    rows.map(|row| parse(row).unwrap_or_else(|| panic!("no socket: {row}")))
        .collect()
}

/// `N: LOCAL REMOTE STATE ...`, all of them hexadecimal.
fn parse(row: &str) -> Option<Socket> {
    let mut words = row.split_whitespace().skip(1);
    Some(Socket {
        local: address(words.next()?)?,
        remote: address(words.next()?)?,
        state: match words.next()? {
            "01" => State::Established,
            "02" => State::SynSent,
            _ => State::Other,
        },
    })
}

/// The address as a number of this machine, the port as it is read.
fn address(word: &str) -> Option<SocketAddr> {
    let (host, port) = word.split_once(':')?;
    let host = u32::from_str_radix(host, 16).ok()?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(SocketAddr::from((Ipv4Addr::from(host.to_ne_bytes()), port)))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_is_told_from_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let _server = listener.accept().expect("accepted");
        let here = Socket {
            local: client.local_addr().expect("bound"),
            remote: client.peer_addr().expect("connected"),
            state: State::Established,
        };
        let there = Socket {
            local: here.remote,
            remote: here.local,
            ..here
        };
        let told = sockets();
        assert!(told.contains(&here) && told.contains(&there), "{told:?}");
    }
}
