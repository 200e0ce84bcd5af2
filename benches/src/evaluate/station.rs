//! A machine of an evaluation: serves HTTP, and tells what its processes use.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use hyper::{Method, StatusCode};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use serde::Serialize;
use tokio::net::TcpListener;

use super::course::{Name, Process, SERVICE, Usage};
use super::{Error, Options};
use crate::configuration::ANYWHERE;
use crate::connections::connections;
use crate::cpu;
use crate::http::{self, Request, Response};
use crate::machine::Machine;
use crate::part::Part;

/// The provider's machine: a provider, and what it uses.
pub(super) async fn provide(program: &Path, options: &Options) -> Result<Infallible, Error> {
    let dubbo = options.dubbo.unwrap_or(ANYWHERE).to_string();
    let arguments = ["provider", "--listen", &dubbo, "--service", SERVICE];
    let mut provider = Part::subcommand(program, "provider", &arguments)?;
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
