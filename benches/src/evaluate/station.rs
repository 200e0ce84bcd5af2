//! A machine of an evaluation: serves HTTP, and tells what its processes use.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use hyper::{Method, StatusCode};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use serde::Serialize;
use tokio::net::TcpListener;

use super::course::{Machine, Name, Process, SERVICE, Usage};
use super::{Error, Options};
use crate::cpu;
use crate::http::{self, Request, Response};
use crate::part::Part;

/// The provider's machine: a provider, and what it uses.
pub(super) async fn provide(program: &Path, options: &Options) -> Result<Infallible, Error> {
    let dubbo = options.dubbo.unwrap_or(DUBBO).to_string();
    let arguments = ["provider", "--listen", &dubbo, "--service", SERVICE];
    let mut provider = Part::start(program, "provider", &arguments)?;
    let address = provider.address("listening on ")?;
    println!("Dubbo on {address}");
    let pid = provider.pid();
    let answer = move |request: Request| async move {
        match (&request.method, request.path.as_str()) {
            (&Method::GET, "/usage") => usage(&[(Name::Provider, pid)], address),
            _ => Response::new(StatusCode::NOT_FOUND, "GET /usage\n"),
        }
    };
    serve(options, answer).await
}

/// Serves HTTP on `--listen`, for ever.
pub(super) async fn serve<A, F>(options: &Options, answer: A) -> Result<Infallible, Error>
where
    A: Fn(Request) -> F + Clone + 'static,
    F: Future<Output = Response> + 'static,
{
    let listener = TcpListener::bind(options.listen).await?;
    let address = listener.local_addr()?;
    let mut stdout = io::stdout();
    writeln!(stdout, "listening on {address}").and_then(|()| stdout.flush())?;
    Ok(http::serve(listener, answer).await)
}

/// Makes this process end with `parent`, however that ends.
pub(super) fn end_with(parent: i32) -> Result<(), Error> {
    set_pdeathsig(Signal::SIGTERM).map_err(io::Error::from)?;
    if getppid().as_raw() == parent {
        return Ok(());
    }
    // It ended before we asked to be told.
    Err(Error::Interrupted)
}

/// What `processes` have used, and the connections that they have to `provider`.
pub(super) fn usage(processes: &[(Name, u32)], provider: SocketAddr) -> Response {
    let told: io::Result<Vec<_>> = processes
        .iter()
        .map(|&(name, pid)| {
            let used = cpu::sample(&[pid])?;
            Ok(Process {
                name,
                cpu_s: used.iter().map(|used| used.cpu.as_secs_f64()).sum(),
                rss_kib: used.iter().map(|used| used.rss_kib).sum(),
                connections: connections(pid, provider)?,
            })
        })
        .collect();
    match told {
        Ok(processes) => json(&Usage {
            machine: Machine::here(),
            processes,
        }),
        Err(e) => Response::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{e}\n")),
    }
}

/// A document.
fn json(document: &impl Serialize) -> Response {
    match serde_json::to_vec(document) {
        Ok(text) => Response::new(StatusCode::OK, text),
        Err(e) => Response::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{e}\n")),
    }
}

/// Established connections of the process to `peer`.
fn connections(pid: u32, peer: SocketAddr) -> io::Result<usize> {
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
/// Where the provider takes calls by itself.
const DUBBO: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

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
