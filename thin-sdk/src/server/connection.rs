//! Drives one connection: reads a batch of calls, writes all answers that are there with one write.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use dubbo_proto::head::{RequestId, Serialization, Status};
use dubbo_proto::hessian2::writer::Writer;
use dubbo_proto::invocation::Scratch;
use dubbo_proto::mux::{self, Config, Life};
use dubbo_proto::reply;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::invocation::{Fault, Invocation};
use super::one_way::OneWay;
use super::{Answer, Handlers};
use crate::time::now;
use crate::value::Value;

/// Serves until the peer has closed or broken the protocol; after `stop`, until it has been quiet
/// for a moment and is owed nothing.
pub(super) async fn serve(
    mut stream: TcpStream,
    handlers: Arc<Handlers>,
    one_way: OneWay,
    stop: CancellationToken,
) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut time = now();
    let (answers, mut answered) = mpsc::channel(1024);
    let mut connection = Connection {
        server: mux::Server::new(time, Config::default()),
        handlers,
        scratch: Scratch::default(),
        input: BytesMut::new(),
        readable: true,
        quiet: None,
        running: JoinSet::new(),
        one_way,
        answers,
    };
    let (mut reader, mut writer) = stream.split();
    let mut alarm = pin!(sleep_until(connection.wake().into()));
    let mut stopped = pin!(stop.cancelled());
    while !connection.is_over(time) {
        let wake = connection.wake().into();
        if wake < alarm.deadline() || alarm.is_elapsed() {
            alarm.as_mut().reset(wake);
        }
        let reads = connection.readable && connection.server.output().len() < MAX_OUTPUT;
        if reads {
            connection.input.reserve(READ_LEN);
        }
        let output = connection.server.output();
        tokio::select! {
            biased;
            Some((reply, result)) = answered.recv() => {
                time = now();
                connection.answer(reply, result);
            }
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
            Some(ended) = connection.running.join_next() => {
                // A handler that panicked leaves its caller without an answer: better no connection.
                if ended.is_err() {
                    return;
                }
            }
            () = alarm.as_mut() => time = now(),
            () = stopped.as_mut(), if connection.quiet.is_none() => {
                time = now();
                connection.drain(time);
            }
        }
        if time >= connection.server.poll_timeout()
            && connection.server.handle_timeout(time) == Life::Dead
        {
            return;
        }
    }
}

struct Connection {
    server: mux::Server,
    handlers: Arc<Handlers>,
    scratch: Scratch,
    input: BytesMut,
    /// Whether more may be read: neither the end nor a broken frame was seen.
    readable: bool,
    /// Once we drain: when the peer will have been quiet for long enough to be left.
    quiet: Option<Instant>,
    /// Handlers that wait. They end with the connection: nobody would hear them.
    running: JoinSet<()>,
    one_way: OneWay,
    answers: mpsc::Sender<(Reply, Result<Value, Fault>)>,
}

/// Where an answer goes, and in which form.
#[derive(Debug, Clone, Copy)]
struct Reply {
    id: RequestId,
    serialization: Serialization,
    two_way: bool,
    attachments: bool,
}

impl Connection {
    fn receive(&mut self, now: Instant) {
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        loop {
            match self.server.receive(now, &mut rest) {
                Ok(Some(call)) => self.call(&call),
                Ok(None) => break,
                Err(_) => {
                    self.readable = false;
                    break;
                }
            }
        }
        let taken = input.len() - rest.len();
        self.input = input;
        self.input.advance(taken);
        self.quiet = self.quiet.map(|_| now + QUIET);
    }

    fn call(&mut self, call: &mux::Call<'_>) {
        if !call.two_way && self.one_way.is_full() {
            tracing::warn!("a one-way call is dropped: too many run");
            return;
        }
        let mut reply = Reply {
            id: call.id,
            serialization: call.serialization,
            two_way: call.two_way,
            attachments: false,
        };
        let running = match self.handler(call, &mut reply) {
            Ok(running) => running,
            Err(fault) => return self.answer(reply, Err(fault)),
        };
        self.run(reply, running);
    }

    fn handler(&mut self, call: &mux::Call<'_>, reply: &mut Reply) -> Result<Answer, Fault> {
        let invocation = Invocation::read(call, &mut self.scratch)?;
        reply.attachments = invocation.takes_attachments;
        if call.serialization != Serialization::HESSIAN2 {
            return Err(Fault::Arguments(crate::value::Error::Mismatch(
                "this provider speaks Hessian2 only".into(),
            )));
        }
        if invocation.method() == "$echo" {
            let echoed = invocation.values()?.pop().unwrap_or(Value::Null);
            return Ok(Box::pin(async move { Ok(echoed) }));
        }
        let handler = self
            .handlers
            .find(invocation.service(), invocation.method())?;
        if !invocation.is_generic() {
            return Ok(handler(invocation));
        }
        let running = handler(invocation);
        Ok(Box::pin(async move { Ok(running.await?.generalized()) }))
    }

    /// Runs a handler as far as it comes without waiting, and the rest in a task of its own.
    fn run(&mut self, reply: Reply, mut running: Answer) {
        let now = running
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        match now {
            Poll::Ready(result) => self.answer(reply, result),
            Poll::Pending if !reply.two_way => self.one_way.spawn(running),
            Poll::Pending => {
                let answers = self.answers.clone();
                self.running.spawn(async move {
                    let result = poll_fn(|context| running.as_mut().poll(context)).await;
                    // Without a receiver the connection is gone.
                    let _ = answers.send((reply, result)).await;
                });
            }
        }
    }

    fn answer(&mut self, to: Reply, result: Result<Value, Fault>) {
        let Reply {
            id,
            serialization,
            attachments,
            ..
        } = to;
        if !to.two_way {
            return;
        }
        self.server.answer(|out| match &result {
            Ok(Value::Null) => reply::value(out, id, attachments, None),
            Ok(value) => {
                let mut encoded = Vec::new();
                value.write(&mut Writer::new(&mut encoded));
                reply::value(out, id, attachments, Some(&encoded));
            }
            Err(Fault::Exception(thrown)) => {
                let (class, message) = (&thrown.class, &thrown.message);
                reply::exception(out, serialization, id, attachments, class, message);
            }
            Err(fault) => {
                let (status, text) = (fault.status(), fault.to_string());
                debug_assert_ne!(status, Status::OK);
                reply::error(out, serialization, id, status, &text);
            }
        });
    }

    fn sent(&mut self, now: Instant, n: usize) {
        self.server.sent(now, n);
        // What the server would not take in while it owed too much.
        if self.server.output().is_empty() && self.readable && !self.input.is_empty() {
            self.receive(now);
        }
    }

    fn drain(&mut self, now: Instant) {
        self.server.drain();
        self.quiet = Some(now + QUIET);
    }

    fn wake(&self) -> Instant {
        let timeout = self.server.poll_timeout();
        self.quiet.map_or(timeout, |quiet| match self.owes() {
            true => timeout,
            false => timeout.min(quiet),
        })
    }

    fn is_over(&self, now: Instant) -> bool {
        let left = self.quiet.is_some_and(|quiet| now >= quiet);
        !self.owes() && (left || !self.readable)
    }

    fn owes(&self) -> bool {
        self.server.in_flight() > 0 || !self.server.output().is_empty()
    }
}

/// Silence after which a peer has heard that we drain, and has no call on its way.
const QUIET: Duration = Duration::from_millis(500);
/// Room for one read.
const READ_LEN: usize = 32 * 1024;
/// Bytes of answers that may wait before reading stops.
const MAX_OUTPUT: usize = 1024 * 1024;
