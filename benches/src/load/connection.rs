//! Drives one connection: sends all that is due with one write, reads a batch of answers.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use dubbo_proto::head::Serialization;
use dubbo_proto::mux::link::Phase;
use dubbo_proto::mux::{Client, Config, Event, Outgoing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, sleep_until};

use super::plan::Plan;
use super::schedule::{Schedule, Ticket};
use super::tally::{Failure, Tally};
use crate::pace::Pace;
use crate::time::now;

/// Sends what `schedule` says until it is over; a connection that is lost is opened again.
pub(super) async fn drive(
    plan: Rc<Plan>,
    target: SocketAddr,
    stream: TcpStream,
    mut schedule: Schedule,
    tally: Rc<Tally>,
) -> io::Result<()> {
    let mut next = Some(stream);
    while !schedule.is_over(now()) {
        let Some(stream) = next.take() else {
            if now() >= schedule.until() {
                break;
            }
            sleep(RECONNECT).await;
            next = TcpStream::connect(target).await.ok();
            continue;
        };
        stream.set_nodelay(true)?;
        session(&plan, stream, &mut schedule, &tally).await?;
    }
    tally.fail(Failure::Unsent, schedule.unsent());
    Ok(())
}

/// Uses one connection until it is lost, drained, or not needed any more.
async fn session(
    plan: &Plan,
    mut stream: TcpStream,
    schedule: &mut Schedule,
    tally: &Tally,
) -> io::Result<()> {
    let mut session = Session {
        client: Client::new(
            now(),
            Config {
                max_calls: MAX_CALLS,
                ..Config::default()
            },
        ),
        input: BytesMut::new(),
        plan,
        next_body: 0,
        schedule,
        tally,
    };
    let (mut reader, mut writer) = stream.split();
    let mut alarm = pin!(sleep_until(session.client.poll_timeout().into()));
    let mut pace = Pace::default();
    let mut time = now();
    while session.goes_on(time) {
        session.send(time);
        // An alarm that rings early does no harm, and setting it anew for each batch would.
        let timeout = session.wake(time).into();
        if timeout < alarm.deadline() || alarm.is_elapsed() {
            alarm.as_mut().reset(timeout);
        }
        let due = session.schedule.wake();
        pace.arm(time, due)?;
        session.input.reserve(READ_LEN);
        let output = session.client.output();
        let alive = tokio::select! {
            biased;
            written = writer.write(output), if !output.is_empty() => {
                time = now();
                written.map(|n| session.client.sent(time, n)).is_ok()
            }
            read = reader.read_buf(&mut session.input) => {
                time = now();
                matches!(read, Ok(1..)) && session.receive(time)
            }
            rung = pace.rung(), if due.is_some() => {
                time = now();
                rung.map(|()| true)?
            }
            () = alarm.as_mut() => {
                time = now();
                true
            }
        };
        // Not in the alarm's branch: a busy peer would keep it from its turn.
        if !alive || !session.handle_timeout(time) {
            break;
        }
    }
    session.lose();
    Ok(())
}

struct Session<'p> {
    client: Client<Ticket>,
    input: BytesMut,
    plan: &'p Plan,
    /// Whose turn it is of the plan's bodies.
    next_body: usize,
    schedule: &'p mut Schedule,
    tally: &'p Tally,
}

impl Session<'_> {
    fn send(&mut self, now: Instant) {
        while self.client.is_ready() {
            let Some(ticket) = self.schedule.next(now) else {
                return;
            };
            let body = &self.plan.bodies[self.next_body];
            self.next_body = (self.next_body + 1) % self.plan.bodies.len();
            let call = Outgoing {
                serialization: Serialization::HESSIAN2,
                body,
                deadline: ticket.call + self.plan.timeout,
            };
            if self.client.send(call, ticket).is_err() {
                self.fail(Failure::Unsent);
            }
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
                })) => match Failure::of(status, serialization, body) {
                    None => {
                        let page = self.schedule.answered(waiter, now);
                        let call = now.saturating_duration_since(waiter.call);
                        self.tally.answer(call, page);
                    }
                    Some(failure) => {
                        self.schedule.failed();
                        self.tally.fail(failure, 1);
                    }
                },
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
            if event == Event::Dead {
                return false;
            }
            self.fail(Failure::Timeout);
        }
        true
    }

    /// When to look at the clock again, at the latest.
    fn wake(&self, now: Instant) -> Instant {
        let until = Some(self.schedule.until()).filter(|until| *until > now);
        let timeout = self.client.poll_timeout();
        until.map_or(timeout, |until| until.min(timeout))
    }

    fn fail(&mut self, failure: Failure) {
        self.schedule.failed();
        self.tally.fail(failure, 1);
    }

    fn goes_on(&self, now: Instant) -> bool {
        let idle = self.client.in_flight() == 0;
        let wanted = self.client.phase() == Phase::Open && !self.schedule.is_over(now);
        !idle || wanted
    }

    fn lose(self) {
        for (_, written) in self.client.into_lost() {
            self.schedule.failed();
            self.tally.fail(written.into(), 1);
        }
    }
}

/// Calls in flight on one connection, which an open loop may reach: memory, and no more than that.
const MAX_CALLS: u32 = 1 << 20;
/// Room for one read: some hundreds of usual answers.
const READ_LEN: usize = 128 * 1024;
/// Pause before a lost connection is opened again.
const RECONNECT: Duration = Duration::from_millis(50);
