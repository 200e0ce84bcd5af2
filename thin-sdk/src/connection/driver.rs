//! The loop around the machine: reads, writes, the clock, and calls that come.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use dubbo_proto::head::Serialization;
use dubbo_proto::mux::link::Phase as Taking;
use dubbo_proto::mux::{Client, Config, Event, Outgoing, Written};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep_until;

use super::{BATCH, Ended, Job, Options, Phase, close};
use crate::error::Unsent;
use crate::failover::Cause;
use crate::time::now;

/// Uses the connection until it takes no calls any more, and then until it owes nothing.
pub(super) async fn drive(
    mut stream: TcpStream,
    options: Options,
    queue: &mut mpsc::Receiver<Job>,
    mut batch: Vec<Job>,
    phase: &watch::Sender<Phase>,
) {
    let mut time = now();
    let mut driver = Driver::new(time, options);
    driver.take(time, &mut batch);
    let (mut reader, mut writer) = stream.split();
    let mut alarm = pin!(sleep_until(driver.wake().into()));
    let (mut takes, mut proven) = (true, false);
    let mut end = Cause::Broken;
    while takes || driver.owes() {
        // An alarm that rings early does no harm, and setting it anew for each batch would.
        let wake = driver.wake().into();
        if wake < alarm.deadline() || alarm.is_elapsed() {
            alarm.as_mut().reset(wake);
        }
        driver.input.reserve(READ_LEN);
        let output = driver.client.output();
        // Not in a fixed order: calls that come without end would keep all else waiting.
        let alive = tokio::select! {
            written = writer.write(output), if !output.is_empty() => {
                time = now();
                written.map(|n| driver.sent(time, n)).is_ok()
            }
            count = queue.recv_many(&mut batch, BATCH), if takes => {
                time = now();
                // Nobody is left who could send more.
                takes = count > 0;
                driver.take(time, &mut batch);
                true
            }
            read = reader.read_buf(&mut driver.input) => {
                time = now();
                matches!(read, Ok(1..)) && driver.receive(time)
            }
            () = alarm.as_mut() => {
                time = now();
                true
            }
        };
        if !alive {
            break;
        }
        if !driver.handle_timeout(time) {
            end = Cause::Silent;
            break;
        }
        if !proven && driver.client.is_answered() {
            proven = true;
            if takes {
                phase.send_replace(Phase::Proven);
            }
        }
        if takes && driver.client.phase() != Taking::Open {
            takes = false;
            end = Cause::ReadOnly;
            close(queue, phase, end, &Unsent::Closed).await;
        }
        if takes && driver.is_idle(time) {
            takes = false;
            close(queue, phase, end, &Unsent::Closed).await;
        }
    }
    // Before the calls in flight hear of it: they ask for another route at once.
    close(queue, phase, end, &Unsent::Closed).await;
    driver.lose();
}

struct Driver {
    client: Client<oneshot::Sender<Ended>>,
    input: BytesMut,
    /// One-way calls that the kernel has not wholly taken, with where the stream stands behind them.
    one_way: VecDeque<(u64, oneshot::Sender<Ended>)>,
    /// Bytes that the kernel took.
    sent: u64,
    idle: Option<Duration>,
    used: Instant,
}

impl Driver {
    fn new(now: Instant, options: Options) -> Self {
        let config = Config {
            timing: options.timing,
            ..Config::default()
        };
        let mut client = Client::new(now, config);
        client.ping();
        Self {
            client,
            input: BytesMut::new(),
            one_way: VecDeque::new(),
            sent: 0,
            idle: options.idle,
            used: now,
        }
    }

    fn take(&mut self, now: Instant, jobs: &mut Vec<Job>) {
        self.used = now;
        for Job { call, waiter } in jobs.drain(..) {
            let serialization = Serialization::HESSIAN2;
            let refused = if call.two_way {
                let call = Outgoing {
                    serialization,
                    body: &call.body,
                    deadline: call.deadline,
                };
                let sent = self.client.send(call, waiter);
                sent.err().map(|refused| (refused.waiter, refused.why))
            } else {
                match self.client.send_one_way(serialization, &call.body) {
                    Ok(()) => {
                        let end = self.sent + self.client.output().len() as u64;
                        self.one_way.push_back((end, waiter));
                        None
                    }
                    Err(why) => Some((waiter, why)),
                }
            };
            if let Some((waiter, why)) = refused {
                let _ = waiter.send(Ended::Unsent(why.into()));
            }
        }
    }

    fn sent(&mut self, now: Instant, n: usize) {
        self.client.sent(now, n);
        self.sent += n as u64;
        let sent = self.sent;
        while let Some((_, waiter)) = self.one_way.pop_front_if(|(end, _)| *end <= sent) {
            let _ = waiter.send(Ended::Written);
        }
    }

    /// Whether the connection may be used on.
    fn receive(&mut self, now: Instant) -> bool {
        let mut rest = &self.input[..];
        let alive = loop {
            match self.client.receive(now, &mut rest) {
                Ok(Some(Event::Reply {
                    waiter,
                    status,
                    serialization,
                    body,
                })) => {
                    // Whoever waited may be gone.
                    let _ = waiter.send(Ended::Reply {
                        status,
                        serialization,
                        body: body.to_vec(),
                    });
                }
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let taken = self.input.len() - rest.len();
        self.input.advance(taken);
        alive
    }

    /// Whether the peer is still there.
    fn handle_timeout(&mut self, now: Instant) -> bool {
        if now < self.client.poll_timeout() {
            return true;
        }
        while let Some(event) = self.client.handle_timeout(now) {
            match event {
                Event::TimedOut { waiter } => {
                    let _ = waiter.send(Ended::TimedOut);
                }
                Event::Dead => return false,
                _ => {}
            }
        }
        true
    }

    fn wake(&self) -> Instant {
        let timeout = self.client.poll_timeout();
        match self.idle {
            Some(idle) if !self.owes() => timeout.min(self.used + idle),
            _ => timeout,
        }
    }

    fn owes(&self) -> bool {
        self.client.in_flight() > 0 || !self.client.output().is_empty()
    }

    fn is_idle(&self, now: Instant) -> bool {
        let idle = self.idle.is_some_and(|idle| now >= self.used + idle);
        idle && !self.owes()
    }

    /// The connection is gone, with what is in flight.
    fn lose(self) {
        for (waiter, written) in self.client.into_lost() {
            let _ = waiter.send(match written {
                Written::No => Ended::Unsent(Unsent::Closed),
                Written::Maybe => Ended::Lost,
            });
        }
        for (_, waiter) in self.one_way {
            let _ = waiter.send(Ended::Unsent(Unsent::Closed));
        }
    }
}

/// Room for one read: a hundred usual answers.
const READ_LEN: usize = 32 * 1024;
