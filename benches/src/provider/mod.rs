//! A real Dubbo provider for tests: it answers every method of its services with the argument it
//! was given, or with a payload of a given size, at once or after a delay.

mod answer;
mod connection;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZero;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dubbo_proto::hessian2::writer::Writer;
use dubbo_proto::key::ServiceKey;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::descriptors;
use crate::signals::Signals;
use answer::Answers;

/// What to serve, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Address to listen on; port 0 picks one, which is printed
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:20880")]
    pub listen: SocketAddr,
    /// A service to serve, as group/interface:version; without any, every service
    #[arg(long = "service", value_name = "KEY")]
    pub services: Vec<ServiceKey>,
    /// Time between a call and its answer, such as 2ms
    #[arg(long, value_parser = crate::time::parse, value_name = "TIME", default_value = "0s")]
    pub delay: Duration,
    /// What to answer: `echo` for the first argument, or the length of a string in bytes
    #[arg(long, value_name = "echo|BYTES", default_value = "echo")]
    pub payload: Payload,
    /// Threads
    #[arg(long, value_name = "N", default_value = "1")]
    pub workers: NonZero<usize>,
    /// Longest wait for calls in flight after SIGTERM
    #[arg(long, value_parser = crate::time::parse, value_name = "TIME", default_value = "10s")]
    pub drain: Duration,
}

/// What to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// The first argument, or null if there is none.
    Echo,
    /// A string of so many bytes.
    Bytes(usize),
}

impl Payload {
    /// The value of every call, in Hessian2; none if each call has its own.
    fn encoded(self) -> Option<Vec<u8>> {
        let Self::Bytes(len) = self else {
            return None;
        };
        let mut value = Vec::new();
        Writer::new(&mut value).text(&"x".repeat(len));
        Some(value)
    }
}

impl FromStr for Payload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "echo" {
            return Ok(Self::Echo);
        }
        let bytes = text.parse();
        bytes
            .map(Self::Bytes)
            .map_err(|_| format!("`{text}` is neither `echo` nor a number"))
    }
}

/// Serves until SIGTERM or SIGINT, and then until the calls in flight are answered. A second
/// signal ends at once.
///
/// Prints `listening on ADDR` once calls can come.
///
/// # Errors
/// The address cannot be bound, or the operating system refuses threads, sockets or signals.
pub fn run(options: Options) -> io::Result<()> {
    descriptors::lift_limit()?;
    let listener = TcpListener::bind(options.listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let answers = Arc::new(Answers::new(&options, address));
    let stop = CancellationToken::new();
    let mut others = Vec::new();
    for _ in 1..options.workers.get() {
        let (listener, answers) = (listener.try_clone()?, Arc::clone(&answers));
        let (stop, options) = (stop.clone(), options.clone());
        others.push(thread::spawn(move || {
            worker(listener, &answers, &options, &stop, false)
        }));
    }
    let mut stdout = io::stdout();
    writeln!(stdout, "listening on {address}").and_then(|()| stdout.flush())?;
    worker(listener, &answers, &options, &stop, true)?;
    for other in others {
        other
            .join()
            .map_err(|_| io::Error::other("a worker panicked"))??;
    }
    Ok(())
}

/// One thread: accepts, and drives what it accepted.
fn worker(
    listener: TcpListener,
    answers: &Arc<Answers>,
    options: &Options,
    stop: &CancellationToken,
    signals: bool,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    runtime.block_on(async {
        if signals {
            task::spawn_local(stop_on_signal(stop.clone())?);
        }
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let Ok((stream, _)) = accepted else {
                // Out of descriptors, most likely: some may come back.
                sleep(Duration::from_millis(10)).await;
                continue;
            };
            stream.set_nodelay(true)?;
            let task = connection::serve(stream, Arc::clone(answers), options.delay, stop.clone());
            connections.spawn_local(task);
        }
        drop(listener);
        connections.close();
        // Whoever is still connected then has been told, and has had its time.
        let _ = timeout(options.drain, connections.wait()).await;
        Ok(())
    })
}

/// The first signal stops, the second ends the process.
fn stop_on_signal(stop: CancellationToken) -> io::Result<impl Future<Output = ()>> {
    let mut signals = Signals::new()?;
    Ok(async move {
        signals.next().await;
        stop.cancel();
        signals.next().await;
        std::process::exit(1);
    })
}
