//! Drives one connection: reads a batch, answers all of it with one write.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use dubbo_proto::mux::{Config, Life, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::answer::{Answerer, Answers};
use crate::time::now;

/// Serves until the peer has closed, broken the protocol or fallen silent; after `stop`, until it
/// has been quiet for a moment and is owed nothing.
pub(super) async fn serve(
    mut stream: TcpStream,
    answers: Arc<Answers>,
    delay: Duration,
    stop: CancellationToken,
) {
    let mut time = now();
    let mut connection = Connection::new(time, answers, delay);
    let (mut reader, mut writer) = stream.split();
    let mut alarm = pin!(sleep_until(connection.wake().into()));
    let mut stopped = pin!(stop.cancelled());
    while !connection.is_over(time) {
        // An alarm that rings early does no harm, and setting it anew for each batch would.
        let wake = connection.wake().into();
        if wake < alarm.deadline() || alarm.is_elapsed() {
            alarm.as_mut().reset(wake);
        }
        let reads = connection.reads();
        let output = connection.server.output();
        tokio::select! {
            biased;
            written = writer.write(output), if !output.is_empty() => {
                time = now();
                match written {
                    Ok(n) => connection.sent(time, n),
                    Err(_) => return,
                }
            }
            read = reader.read_buf(&mut connection.input), if reads => {
                time = now();
                match read {
                    Ok(0) | Err(_) => connection.readable = false,
                    Ok(_) => connection.receive(time),
                }
            }
            () = alarm.as_mut() => time = now(),
            () = stopped.as_mut(), if connection.quiet.is_none() => time = now(),
        }
        // Not in the branches: a busy peer would keep them from their turn.
        if stop.is_cancelled() {
            connection.drain(time);
        }
        if time >= connection.wake() && connection.handle_timeout(time) == Life::Dead {
            return;
        }
    }
}

struct Connection {
    server: Server,
    answerer: Answerer,
    delay: Duration,
    held: Held,
    input: BytesMut,
    /// Whether more may be read: neither the end nor a broken frame was seen.
    readable: bool,
    /// Once we drain: when the peer will have been quiet for long enough to be left.
    quiet: Option<Instant>,
}

impl Connection {
    fn new(now: Instant, answers: Arc<Answers>, delay: Duration) -> Self {
        let config = Config {
            max_calls: u32::MAX,
            ..Config::default()
        };
        Self {
            server: Server::new(now, config),
            answerer: Answerer::new(answers),
            delay,
            held: Held::default(),
            input: BytesMut::new(),
            readable: true,
            quiet: None,
        }
    }

    /// Makes room to read, if it is time to.
    fn reads(&mut self) -> bool {
        let reads = self.readable && self.held.bytes.len() < MAX_HELD;
        if reads && self.server.output().is_empty() {
            self.input.reserve(READ_LEN);
            return true;
        }
        false
    }

    fn receive(&mut self, now: Instant) {
        let mut rest = &self.input[..];
        loop {
            let call = match self.server.receive(now, &mut rest) {
                Ok(Some(call)) => call,
                Ok(None) => break,
                Err(_) => {
                    self.readable = false;
                    break;
                }
            };
            if !call.two_way {
                continue;
            }
            let answer = self.answerer.answer(&call);
            if self.delay.is_zero() {
                self.server.answer(|out| out.extend_from_slice(answer));
            } else {
                self.held.push(now + self.delay, answer);
            }
        }
        let taken = self.input.len() - rest.len();
        self.input.advance(taken);
        self.quiet = self.quiet.map(|_| now + QUIET);
    }

    fn drain(&mut self, now: Instant) {
        if self.quiet.is_none() {
            self.server.drain();
            self.quiet = Some(now + QUIET);
        }
    }

    fn sent(&mut self, now: Instant, n: usize) {
        self.server.sent(now, n);
        // What the server would not take in while it owed too much.
        if self.server.output().is_empty() && self.readable && !self.input.is_empty() {
            self.receive(now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) -> Life {
        while let Some(answer) = self.held.due(now) {
            let len = answer.len();
            self.server.answer(|out| out.extend_from_slice(answer));
            self.held.bytes.advance(len);
        }
        self.server.handle_timeout(now)
    }

    fn wake(&self) -> Instant {
        let held = self.held.lens.front().map(|(due, _)| *due);
        let quiet = self.quiet.filter(|_| !self.owes());
        let others = held.into_iter().chain(quiet);
        others.fold(self.server.poll_timeout(), Instant::min)
    }

    fn is_over(&self, now: Instant) -> bool {
        let left = self.quiet.is_some_and(|quiet| now >= quiet);
        !self.owes() && (left || !self.readable)
    }

    fn owes(&self) -> bool {
        self.server.in_flight() > 0 || !self.server.output().is_empty()
    }
}

/// Answers that wait for their time, first in first out.
#[derive(Debug, Default)]
struct Held {
    bytes: BytesMut,
    lens: VecDeque<(Instant, usize)>,
}

impl Held {
    fn push(&mut self, due: Instant, answer: &[u8]) {
        self.bytes.extend_from_slice(answer);
        self.lens.push_back((due, answer.len()));
    }

    /// Takes the next answer off whose time has come; its bytes stay in front.
    fn due(&mut self, now: Instant) -> Option<&[u8]> {
        let (_, len) = self.lens.pop_front_if(|(due, _)| *due <= now)?;
        Some(&self.bytes[..len])
    }
}

/// Silence after which a peer has heard that we drain, and has no call on its way.
const QUIET: Duration = Duration::from_millis(500);
/// Room for one read: some hundreds of usual calls.
const READ_LEN: usize = 128 * 1024;
/// Bytes of answers that may be held before reading stops.
const MAX_HELD: usize = 64 * 1024 * 1024;
