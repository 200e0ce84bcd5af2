//! The connections of a process, as the kernel tells.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// Established connections of the process to `peer`.
pub(crate) fn connections(pid: u32, peer: SocketAddr) -> io::Result<usize> {
    let root = Path::new("/proc").join(pid.to_string());
    let mut own = BTreeSet::new();
    for descriptor in fs::read_dir(root.join("fd"))? {
        // One that was just closed is none.
        if let Ok(target) = fs::read_link(descriptor?.path())
            && let Some(inode) = target.to_str().and_then(|t| t.strip_prefix("socket:["))
        {
            own.insert(inode.trim_end_matches(']').to_owned());
        }
    }
    let table = match peer {
        SocketAddr::V4(_) => "net/tcp",
        SocketAddr::V6(_) => "net/tcp6",
    };
    let (peer, sockets) = (in_proc(peer), fs::read_to_string(root.join(table))?);
    let of_peer = sockets.lines().filter(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (remote, state, inode) = (fields.get(2), fields.get(3), fields.get(9));
        remote == Some(&peer.as_str())
            && state == Some(&ESTABLISHED)
            && inode.is_some_and(|inode| own.contains(*inode))
    });
    Ok(of_peer.count())
}

/// An address as `/proc/net/tcp` writes it: words of four bytes in the machine's order.
fn in_proc(address: SocketAddr) -> String {
    let octets = match address {
        SocketAddr::V4(v4) => v4.ip().octets().to_vec(),
        SocketAddr::V6(v6) => v6.ip().octets().to_vec(),
    };
    let words = octets.chunks_exact(4).map(|word| {
        let word = word
            .iter()
            .rev()
            .fold(0u32, |all, b| all << 8 | u32::from(*b));
        format!(
            "{:08X}",
            if cfg!(target_endian = "big") {
                word.swap_bytes()
            } else {
                word
            }
        )
    });
    format!("{}:{:04X}", words.collect::<String>(), address.port())
}

/// Established, in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_to_a_peer_are_counted() {
        for ip in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(ip) else {
                // A machine without IPv6.
                continue;
            };
            let peer = listener.local_addr().expect("an address");
            let count = || connections(std::process::id(), peer).expect("ourselves");
            assert_eq!(count(), 0);
            let streams = [(); 3].map(|()| TcpStream::connect(peer).expect("a backlog"));
            assert_eq!(count(), 3);
            drop(streams);
            assert_eq!(count(), 0);
        }
    }
}
