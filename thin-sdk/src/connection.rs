//! Drives one connection: many calls, one write for all that are due, heartbeats.
//!
//! A task owns the socket and the machine; whoever calls holds a [`Connection`], which queues.
//! Calls are taken while it still dials. When nobody holds it any more, or it is not used for long,
//! it finishes what is in flight and closes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use dubbo_proto::head::{Serialization, Status};
use dubbo_proto::mux::link::{Phase as Taking, Timing};
use dubbo_proto::mux::{Client, Config, Event, Outgoing, Refusal, Written};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep_until, timeout};

use crate::error::Unsent;
use crate::failover::Cause;
use crate::time::now;

/// A connection, to be shared.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    jobs: mpsc::Sender<Job>,
    phase: watch::Receiver<Phase>,
}

/// What kind of connection it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Longest wait for the connection itself.
    pub(crate) connect: Duration,
    /// When to send heartbeats, and when to give the peer up.
    pub(crate) timing: Timing,
    /// Close after so long without a call; never if `None`.
    pub(crate) idle: Option<Duration>,
}

/// How far a connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is being made.
    Dialing,
    /// It is there; whether anybody serves it is not known.
    Open,
    /// A heartbeat was answered.
    Proven,
    /// It takes no calls any more.
    Over(Cause),
}

/// How a job ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The peer answered.
    Reply {
        /// How the call went.
        status: Status,
        /// How `body` is written.
        serialization: Serialization,
        /// The whole body.
        body: Vec<u8>,
    },
    /// The kernel took the whole of a one-way call.
    Written,
    /// It was certainly not sent.
    Unsent(Unsent),
    /// The connection was lost, and the peer may have run it.
    Lost,
    /// The deadline is over, and the peer may have run it.
    TimedOut,
}

#[derive(Debug)]
struct Job {
    body: Vec<u8>,
    two_way: bool,
    deadline: Instant,
    waiter: oneshot::Sender<Ended>,
}

impl Connection {
    /// Starts to connect, in a task of its own.
    pub(crate) fn dial(address: SocketAddr, options: Options) -> Self {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (tell, phase) = watch::channel(Phase::Dialing);
        tokio::spawn(run(address, options, queue, tell));
        Self { jobs, phase }
    }

    /// Sends a call, and waits for how it ends. Dropping the future gives up the answer, not the
    /// call.
    pub(crate) async fn call(&self, body: Vec<u8>, two_way: bool, deadline: Instant) -> Ended {
        let (waiter, ended) = oneshot::channel();
        let job = Job {
            body,
            two_way,
            deadline,
            waiter,
        };
        match self.jobs.try_send(job) {
            Ok(()) => ended.await.unwrap_or(Ended::Lost),
            Err(mpsc::error::TrySendError::Full(_)) => Ended::Unsent(Unsent::Overloaded),
            Err(mpsc::error::TrySendError::Closed(_)) => Ended::Unsent(Unsent::Closed),
        }
    }

    /// Whether it takes no calls any more.
    pub(crate) fn is_over(&self) -> bool {
        self.jobs.is_closed()
    }

    /// Why it takes no calls any more; `None` if it does.
    pub(crate) fn cause(&self) -> Option<Cause> {
        match *self.phase.borrow() {
            Phase::Over(cause) => Some(cause),
            _ => self.is_over().then_some(Cause::Broken),
        }
    }

    /// Waits until it is proven, or over.
    pub(crate) async fn proof(&mut self) -> Result<(), Cause> {
        let wanted = |phase: &Phase| matches!(phase, Phase::Proven | Phase::Over(_));
        match self.phase.wait_for(wanted).await.as_deref() {
            Ok(Phase::Over(cause)) => Err(*cause),
            Ok(_) => Ok(()),
            Err(_) => Err(Cause::Broken),
        }
    }

    /// Waits until it takes no calls any more.
    pub(crate) async fn over(&mut self) -> Cause {
        let wanted = |phase: &Phase| matches!(phase, Phase::Over(_));
        match self.phase.wait_for(wanted).await.as_deref() {
            Ok(Phase::Over(cause)) => *cause,
            _ => Cause::Broken,
        }
    }
}

/// From the dial to the end. Whatever is still queued then was not sent.
async fn run(
    address: SocketAddr,
    options: Options,
    mut queue: mpsc::Receiver<Job>,
    phase: watch::Sender<Phase>,
) {
    let mut waiting = Vec::new();
    match dial(address, options.connect, &mut queue, &mut waiting).await {
        Ok(stream) => {
            phase.send_replace(Phase::Open);
            drive(stream, options, &mut queue, waiting, &phase).await;
        }
        Err(error) => {
            let why = Unsent::Unreachable(format!("connect to {address}: {error}"));
            close(&mut queue, &phase, Cause::Refused, &why);
            refuse(waiting, &why);
        }
    }
}

/// Takes nothing any more; what is queued was not sent.
fn close(
    queue: &mut mpsc::Receiver<Job>,
    phase: &watch::Sender<Phase>,
    cause: Cause,
    why: &Unsent,
) {
    // First the cause: who finds the queue closed asks for it.
    phase.send_replace(Phase::Over(cause));
    queue.close();
    while let Ok(job) = queue.try_recv() {
        let _ = job.waiter.send(Ended::Unsent(why.clone()));
    }
}

/// Connects; calls that come meanwhile wait, each until its deadline.
async fn dial(
    address: SocketAddr,
    within: Duration,
    queue: &mut mpsc::Receiver<Job>,
    waiting: &mut Vec<Job>,
) -> std::io::Result<TcpStream> {
    let mut stream = pin!(timeout(within, TcpStream::connect(address)));
    let mut queued = true;
    loop {
        let first = waiting.iter().map(|job| job.deadline).min();
        let room = waiting.len() < QUEUE;
        tokio::select! {
            connected = &mut stream => {
                let stream = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            count = queue.recv_many(waiting, BATCH), if queued && room => queued = count > 0,
            () = sleep_until(first.unwrap_or_else(now).into()), if first.is_some() => {
                let late = waiting.extract_if(.., |job| job.deadline <= now()).collect();
                refuse(late, &Unsent::Unreachable(format!("still connecting to {address}")));
            }
        }
    }
}

fn refuse(jobs: Vec<Job>, why: &Unsent) {
    for job in jobs {
        let _ = job.waiter.send(Ended::Unsent(why.clone()));
    }
}

/// Uses the connection until it takes no calls any more, and then until it owes nothing.
async fn drive(
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
    let mut takes = true;
    let mut end = Cause::Broken;
    while takes || driver.owes() {
        // An alarm that rings early does no harm, and setting it anew for each batch would.
        let wake = driver.wake().into();
        if wake < alarm.deadline() || alarm.is_elapsed() {
            alarm.as_mut().reset(wake);
        }
        driver.input.reserve(READ_LEN);
        let output = driver.client.output();
        let alive = tokio::select! {
            biased;
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
        if driver.client.is_answered() {
            phase.send_if_modified(|phase| {
                let open = *phase == Phase::Open;
                if open {
                    *phase = Phase::Proven;
                }
                open
            });
        }
        if takes && driver.client.phase() != Taking::Open {
            takes = false;
            end = Cause::ReadOnly;
            close(queue, phase, end, &Unsent::Closed);
        }
        if takes && driver.is_idle(time) {
            takes = false;
            close(queue, phase, end, &Unsent::Closed);
        }
    }
    // Before the calls in flight hear of it: they ask for another route at once.
    close(queue, phase, end, &Unsent::Closed);
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
        for job in jobs.drain(..) {
            let serialization = Serialization::HESSIAN2;
            if job.two_way {
                let call = Outgoing {
                    serialization,
                    body: &job.body,
                    deadline: job.deadline,
                };
                if let Err(refused) = self.client.send(call, job.waiter) {
                    let _ = refused.waiter.send(Ended::Unsent(refused.why.into()));
                }
            } else {
                match self.client.send_one_way(serialization, &job.body) {
                    Ok(()) => {
                        let end = self.sent + self.client.output().len() as u64;
                        self.one_way.push_back((end, job.waiter));
                    }
                    Err(why) => {
                        let _ = job.waiter.send(Ended::Unsent(why.into()));
                    }
                }
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

impl From<Refusal> for Unsent {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Draining => Self::Closed,
            Refusal::Calls | Refusal::Queue => Self::Overloaded,
            Refusal::TooLong => Self::TooLong,
        }
    }
}

/// Calls that may wait for the task to take them.
const QUEUE: usize = 1 << 16;
/// Calls that are taken at once.
const BATCH: usize = 1024;
/// Room for one read: a hundred usual answers.
const READ_LEN: usize = 32 * 1024;
