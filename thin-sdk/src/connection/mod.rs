//! Drives one connection: many calls, one write for all that are due, heartbeats.
//!
//! A task owns the socket and the machine; whoever calls holds a [`Connection`], which queues.
//! Calls are taken while it still dials. When nobody holds it any more, or it is not used for long,
//! it finishes what is in flight and closes.

mod driver;

use std::net::SocketAddr;
use std::pin::pin;
use std::time::{Duration, Instant};

use dubbo_proto::head::{Serialization, Status};
use dubbo_proto::mux::Refusal;
use dubbo_proto::mux::link::Timing;
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

/// What is to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The whole body of a request.
    pub(crate) body: Vec<u8>,
    /// Whether it is answered.
    pub(crate) two_way: bool,
    /// When its answer is of no use any more.
    pub(crate) deadline: Instant,
    /// When the connection must be there, so that there is time to go elsewhere.
    pub(crate) start_by: Instant,
}

#[derive(Debug)]
struct Job {
    call: Outgoing,
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
    pub(crate) async fn call(&self, call: Outgoing) -> Ended {
        let (waiter, ended) = oneshot::channel();
        let job = Job { call, waiter };
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
            driver::drive(stream, options, &mut queue, waiting, &phase).await;
        }
        Err(error) => {
            let why = Unsent::Unreachable(format!("connect to {address}: {error}"));
            close(&mut queue, &phase, Cause::Refused, &why).await;
            refuse(waiting, &why);
        }
    }
}

/// Takes nothing any more; what is queued was not sent.
async fn close(
    queue: &mut mpsc::Receiver<Job>,
    phase: &watch::Sender<Phase>,
    cause: Cause,
    why: &Unsent,
) {
    // First the cause: who finds the queue closed asks for it.
    phase.send_replace(Phase::Over(cause));
    queue.close();
    // Until none can come: a caller may have got its place and not have taken it yet.
    while let Some(job) = queue.recv().await {
        let _ = job.waiter.send(Ended::Unsent(why.clone()));
    }
}

/// Connects; calls that come meanwhile wait, each as long as it may.
async fn dial(
    address: SocketAddr,
    within: Duration,
    queue: &mut mpsc::Receiver<Job>,
    waiting: &mut Vec<Job>,
) -> std::io::Result<TcpStream> {
    let mut stream = pin!(timeout(within, TcpStream::connect(address)));
    let mut queued = true;
    loop {
        let first = waiting.iter().map(|job| job.call.start_by).min();
        let room = waiting.len() < QUEUE;
        tokio::select! {
            connected = &mut stream => {
                let stream = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            count = queue.recv_many(waiting, BATCH), if queued && room => queued = count > 0,
            () = sleep_until(first.unwrap_or_else(now).into()), if first.is_some() => {
                let late = waiting.extract_if(.., |job| job.call.start_by <= now()).collect();
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::task::{Context, Waker};

    use dubbo_proto::event;
    use dubbo_proto::head::RequestId;
    use tokio::task::spawn_blocking;

    use super::*;

    const OPTIONS: Options = Options {
        connect: Duration::from_secs(1),
        timing: Timing {
            heartbeat: Duration::from_secs(60),
            timeout: Duration::from_secs(180),
        },
        idle: None,
    };

    fn outgoing(two_way: bool) -> Outgoing {
        let deadline = now() + Duration::from_secs(60);
        Outgoing {
            body: Vec::new(),
            two_way,
            deadline,
            start_by: deadline,
        }
    }

    /// Sends a call as far as its caller comes without waiting; what is left of it.
    fn send(connection: &Connection) -> Option<impl Future<Output = Ended> + use<>> {
        let connection = connection.clone();
        let mut call = Box::pin(async move { connection.call(outgoing(true)).await });
        let mut context = Context::from_waker(Waker::noop());
        let pending = call.as_mut().poll(&mut context).is_pending();
        pending.then_some(call)
    }

    /// Threads that send without a pause, until it takes no more.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_meets_the_end_of_a_connection_was_certainly_not_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let nobody = listener.local_addr().expect("a bound socket");
        drop(listener);
        for round in 0..1500 {
            let connection = Connection::dial(nobody, OPTIONS);
            let callers = [0, 1, 2, 3].map(|_| {
                let connection = connection.clone();
                spawn_blocking(move || {
                    let mut sent = Vec::new();
                    while !connection.is_over() {
                        sent.extend(send(&connection));
                    }
                    sent
                })
            });
            for caller in callers {
                for call in caller.await.expect("no panic") {
                    let ended = timeout(Duration::from_secs(10), call).await;
                    assert!(
                        matches!(ended, Ok(Ended::Unsent(_))),
                        "{ended:?} in round {round}"
                    );
                }
            }
        }
    }

    /// As many calls as come while it writes those before, again and again.
    #[tokio::test]
    async fn a_queue_that_is_never_empty_keeps_nothing_from_being_read() {
        const CALLS: usize = 200 * BATCH;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("a bound socket");
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (mut peer, _) = listener.accept().expect("a connection");
        let mut notice = Vec::new();
        event::read_only(&mut notice, RequestId(1));
        peer.write_all(&notice).expect("it is there");
        stream.readable().await.expect("it is there");
        let sink = spawn_blocking(move || {
            let mut room = vec![0; 1 << 20];
            while peer.read(&mut room).is_ok_and(|n| n > 0) {}
        });
        let (jobs, mut queue) = mpsc::channel(CALLS);
        let mut ends = Vec::new();
        for _ in 0..CALLS {
            let (waiter, ended) = oneshot::channel();
            let job = Job {
                call: outgoing(false),
                waiter,
            };
            jobs.try_send(job).expect("room");
            ends.push(ended);
        }
        let (phase, _) = watch::channel(Phase::Open);
        driver::drive(stream, OPTIONS, &mut queue, Vec::new(), &phase).await;
        assert_eq!(*phase.borrow(), Phase::Over(Cause::ReadOnly));
        let ends = ends.iter_mut().map(|ended| ended.try_recv());
        let refused = ends.filter(|end| matches!(end, Ok(Ended::Unsent(Unsent::Closed))));
        assert!(
            refused.count() > CALLS / 2,
            "it was read when all were sent"
        );
        sink.await.expect("no panic");
    }
}
