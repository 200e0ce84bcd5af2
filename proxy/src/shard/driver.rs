//! All socket reads and writes of a shard.
//!
//! One task owns every socket. A batch is what became ready together: it reads each socket once,
//! feeds the core, writes each touched output once, and only then lets the read buffers go.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, atomic::AtomicUsize},
    task::{Context, Poll, Waker},
    time::Instant,
};

use dubbo_proto::{head::HEAD_LEN, key::ServiceKey};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    task::{JoinSet, coop::unconstrained, yield_now},
    time::Sleep,
};

use super::{
    accepted::Accepted,
    buffers::Buffers,
    handoff::Handoff,
    intake::Read,
    machine::{Action, Core, Peer, Settings},
    output::head_at,
    quarantine::Quarantine,
    socket::{Socket, Stream},
    wake::{Ready, Token},
};
use crate::{
    call::{HostId, SessionId},
    mesh::{Change, Mesh},
    metrics::{self, CloseReason, LostReason},
    policy::balance::Entropy,
    upstream::dial::dial,
};

/// Bytes of frames that wait for the flush before it comes early.
const EARLY_FLUSH: usize = 1024 * 1024;

/// A shard: the core, its sockets, and the ways to it.
pub(crate) struct Shard {
    pub(super) core: Core,
    pub(super) buffers: Buffers,
    pub(super) sessions: Vec<Option<Downstream>>,
    pub(super) hosts: Vec<Option<Socket>>,
    /// Inputs of this batch: their buffers stay until the flush.
    pub(super) inputs: Vec<Read>,
    /// Bytes of these.
    pub(super) input_bytes: usize,
    /// Sockets that may have more to read.
    pub(super) more: Vec<Token>,
    ready: Arc<Ready>,
    dials: JoinSet<Dialed>,
    timer: Pin<Box<Sleep>>,
    /// When the timer fires next.
    armed: Option<Instant>,
    wakers: Wakers,
    pub(super) ways: Ways,
    drained: Vec<oneshot::Sender<()>>,
    stop: bool,
}

/// The connection of a session, with its place among those that the proxy takes.
pub(super) struct Downstream {
    pub(super) id: SessionId,
    pub(super) socket: Socket,
    _permit: OwnedSemaphorePermit,
}

/// A dial that ended: the host by place and by number, since places are used again.
type Dialed = (HostId, u32, Result<tokio::net::TcpStream, String>);

/// What a shard is connected to.
pub(crate) struct Ways {
    /// Connections that the listeners accepted.
    pub(crate) accepted: mpsc::Receiver<Accepted>,
    /// Changes and orders.
    pub(crate) control: mpsc::Receiver<Control>,
    /// Questions for counters.
    pub(crate) scrapes: mpsc::Receiver<metrics::Request>,
    /// Other shards.
    pub(crate) handoff: Handoff,
    /// What all shards know.
    pub(crate) mesh: Arc<Mesh>,
    /// Bytes of long bodies in the whole process.
    pub(crate) long_bodies: Arc<AtomicUsize>,
    /// Makes the random choices.
    pub(crate) random: Entropy,
    /// Frames that a shard failed on.
    pub(crate) quarantine: Quarantine,
    /// Who is asked for services that are not known, if there is anybody.
    pub(crate) asks: Option<mpsc::Sender<ServiceKey>>,
}

/// An order to a shard.
#[derive(Debug)]
pub(crate) enum Control {
    /// Take these changes over.
    Apply(Vec<Change>),
    /// Say READONLY to all sessions and close them as they get quiet, all within the time; then
    /// tell.
    Drain(std::time::Duration, oneshot::Sender<()>),
}

struct Wakers {
    accepted: Waker,
    control: Waker,
    scrape: Waker,
    inbox: Waker,
    dials: Waker,
    timer: Waker,
}

impl Shard {
    /// A shard with everything the mesh knows. Must be called in its runtime.
    pub(crate) fn new(settings: Settings, ways: Ways) -> Self {
        let ready = Arc::new(Ready::default());
        let wakers = Wakers {
            accepted: ready.waker(Token::Accepted),
            control: ready.waker(Token::Control),
            scrape: ready.waker(Token::Scrape),
            inbox: ready.waker(Token::Inbox),
            dials: ready.waker(Token::Dials),
            timer: ready.waker(Token::Timer),
        };
        let now = now();
        Self {
            core: core(now, settings, &ways),
            buffers: Buffers::default(),
            sessions: Vec::new(),
            hosts: Vec::new(),
            inputs: Vec::new(),
            input_bytes: 0,
            more: Vec::new(),
            ready,
            dials: JoinSet::new(),
            timer: Box::pin(tokio::time::sleep_until(now.into())),
            armed: None,
            wakers,
            ways,
            drained: Vec::new(),
            stop: false,
        }
    }

    /// Serves until it is told to stop.
    ///
    /// Not cancel safe: dropped, every connection is closed.
    pub(crate) async fn run(self) {
        unconstrained(self.serve()).await;
    }

    async fn serve(mut self) {
        let mut tokens = Token::ONCE.to_vec();
        while !self.stop {
            if catch_unwind(AssertUnwindSafe(|| self.batch(&tokens))).is_err() {
                self.start_anew();
            }
            tokens.clear();
            if self.more.is_empty() {
                std::future::poll_fn(|cx| self.ready.poll(cx, &mut tokens)).await;
            } else {
                // Lets the runtime look which other sockets became ready meanwhile.
                yield_now().await;
                self.ready.take(&mut tokens);
                tokens.append(&mut self.more);
            }
        }
    }

    /// All that became ready together.
    fn batch(&mut self, tokens: &[Token]) {
        let now = now();
        for token in tokens {
            match *token {
                Token::Session(index) => self.session_ready(now, index),
                Token::Host(index) => self.host_ready(now, index),
                Token::Accepted => self.accept(now),
                Token::Control => self.obey(now),
                Token::Scrape => self.scrape(),
                Token::Inbox => self.take_in(now),
                Token::Dials => self.dialed(now),
                Token::Timer => self.armed = None,
            }
            if self.input_bytes > EARLY_FLUSH {
                self.flush(now);
            }
        }
        // Before anybody is given up, what is for them is offered to the kernel.
        self.flush(now);
        self.core.timeout(now);
        self.flush(now);
        self.act();
        self.hand_over();
        self.set_timer();
        if self.core.is_drained() {
            for done in self.drained.drain(..) {
                // Who does not wait any more need not know.
                let _ = done.send(());
            }
        }
    }

    fn session_ready(&mut self, now: Instant, index: u32) {
        let Some(Some(Downstream { id, socket, .. })) = self.sessions.get_mut(index as usize)
        else {
            return;
        };
        let id = *id;
        if let Some(session) = self.core.session_mut(id)
            && session.output.is_blocked()
            && socket.poll_write_ready().is_ready()
        {
            session.output.unblock();
            self.write_session(now, id);
        }
        self.read(now, Peer::Session(id));
    }

    fn host_ready(&mut self, now: Instant, index: u32) {
        let Some(Some(socket)) = self.hosts.get_mut(index as usize) else {
            return;
        };
        let id = HostId(index);
        if let Some(host) = self.core.host_mut(id)
            && host.output.is_blocked()
            && socket.poll_write_ready().is_ready()
        {
            host.refill();
            self.write_host(now, id);
        }
        self.read(now, Peer::Host(id));
    }

    /// Writes each touched output once, and lets the read buffers go.
    fn flush(&mut self, now: Instant) {
        while let Some(peer) = self.core.touched.pop() {
            match peer {
                Peer::Session(id) => self.write_session(now, id),
                Peer::Host(id) => self.write_host(now, id),
            }
        }
        self.settle();
    }

    fn write_session(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.core.session_mut(id) else {
            return;
        };
        session.untouch();
        let Some(Some(down)) = self.sessions.get(id.index as usize) else {
            return;
        };
        let written = down.socket.write(&mut session.output, &self.buffers);
        if written.writes > 0 {
            session.sent(now);
        }
        let side = session.side;
        written.count(&mut self.core.stats.sessions[side].io);
        match written.error {
            Some(_) => self.core.close_session(id, CloseReason::Reset),
            None => self.core.session_flushed(id),
        }
    }

    fn write_host(&mut self, now: Instant, id: HostId) {
        let Some(Some(socket)) = self.hosts.get(id.0 as usize) else {
            return;
        };
        while let Some(host) = self.core.host_mut(id) {
            host.untouch();
            let address = host.address();
            let written = socket.write(&mut host.output, &self.buffers);
            let done = host.output.is_blocked() || host.pending() == 0;
            if !done {
                host.refill();
            }
            written.count(&mut self.core.stats.upstream.io);
            if let Some(error) = written.error {
                let cause = format!("write to {address}: {error}");
                return self.core.lose(now, id, LostReason::Reset, &cause);
            }
            if done {
                return self.core.host_flushed(id);
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        let waker = self.wakers.accepted.clone();
        let mut cx = Context::from_waker(&waker);
        while let Poll::Ready(Some(accepted)) = self.ways.accepted.poll_recv(&mut cx) {
            let stream = match Stream::new(accepted.socket) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "an accepted connection cannot be served");
                    continue;
                }
            };
            let id = self.core.open(now, accepted.side);
            let waker = self.ready.waker(Token::Session(id.index));
            let socket = Socket::new(stream, waker);
            let down = Downstream {
                id,
                socket,
                _permit: accepted.permit,
            };
            put(&mut self.sessions, id.index, down, |old| {
                self.buffers.forget(old.socket.input)
            });
            self.read(now, Peer::Session(id));
        }
    }

    fn obey(&mut self, now: Instant) {
        let waker = self.wakers.control.clone();
        let mut cx = Context::from_waker(&waker);
        while let Poll::Ready(order) = self.ways.control.poll_recv(&mut cx) {
            match order {
                Some(Control::Apply(changes)) => self.core.apply(now, changes),
                Some(Control::Drain(time, done)) => {
                    self.core.drain(now, time);
                    self.drained.push(done);
                }
                None => {
                    self.stop = true;
                    return;
                }
            }
        }
    }

    fn scrape(&mut self) {
        let waker = self.wakers.scrape.clone();
        let mut cx = Context::from_waker(&waker);
        while let Poll::Ready(Some(asked)) = self.ways.scrapes.poll_recv(&mut cx) {
            // Who does not wait any more does not need it.
            let _ = asked.send(Box::new(self.core.snapshot(self.buffers.bytes())));
        }
    }

    fn take_in(&mut self, now: Instant) {
        let waker = self.wakers.inbox.clone();
        let mut cx = Context::from_waker(&waker);
        while let Poll::Ready(Some(batch)) = self.ways.handoff.inbox.poll_recv(&mut cx) {
            self.core.handed(now, batch);
            self.flush(now);
        }
    }

    fn dialed(&mut self, now: Instant) {
        let waker = self.wakers.dials.clone();
        let mut cx = Context::from_waker(&waker);
        while let Poll::Ready(Some(dialed)) = self.dials.poll_join_next(&mut cx) {
            let Ok((id, number, stream)) = dialed else {
                continue;
            };
            if self
                .core
                .host_mut(id)
                .is_none_or(|host| host.number() != number)
            {
                continue;
            }
            match stream {
                Ok(stream) => {
                    let waker = self.ready.waker(Token::Host(id.0));
                    let socket = Socket::new(Stream::Tcp(stream), waker);
                    put(&mut self.hosts, id.0, socket, |old| {
                        self.buffers.forget(old.input)
                    });
                    self.core.connected(now, id);
                    self.read(now, Peer::Host(id));
                }
                Err(cause) => self.core.unreachable(now, id, &cause),
            }
        }
    }

    /// Does what the core wants beside moving bytes.
    fn act(&mut self) {
        while let Some(action) = self.core.poll_action() {
            match action {
                Action::Dial {
                    host,
                    number,
                    address,
                } => {
                    let limits = &self.core.settings.limits;
                    let (wait, dead) = (limits.connect_timeout, limits.unacknowledged);
                    let dialed = async move { (host, number, dial(address, wait, dead).await) };
                    self.dials.spawn(dialed);
                    self.ready.note(Token::Dials);
                }
                Action::Subscribe(key) => {
                    let asks = self.ways.asks.as_ref();
                    let asked = asks.map_or(Ok(()), |asks| asks.try_send(key));
                    // Full: whoever is asked is busy, so that it is tried again with the next batch.
                    if let Err(mpsc::error::TrySendError::Full(key)) = asked {
                        self.core.actions.push_back(Action::Subscribe(key));
                        self.more.push(Token::Inbox);
                        return;
                    }
                }
                Action::Hang(id) => {
                    if let Some(socket) = self.hosts.get_mut(id.0 as usize).and_then(Option::take) {
                        self.buffers.forget(socket.input);
                    }
                }
                Action::Close(id) => {
                    let place = self.sessions.get_mut(id.index as usize);
                    if let Some(down) = place.and_then(|d| d.take_if(|d| d.id == id)) {
                        self.buffers.forget(down.socket.input);
                    }
                }
            }
        }
    }

    /// Hands batches to other shards; a full inbox is tried again with the next batch.
    fn hand_over(&mut self) {
        let others = &self.ways.handoff.others;
        let full = self.core.outbox.hand_over(|shard, batch| {
            let Some(other) = others.get(shard as usize) else {
                return Ok(());
            };
            match other.try_send(batch) {
                Err(mpsc::error::TrySendError::Full(batch)) => Err(batch),
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            }
        });
        if full {
            self.more.push(Token::Inbox);
        }
    }

    fn set_timer(&mut self) {
        let Some(at) = self.core.poll_timeout() else {
            return;
        };
        if self.armed.is_some_and(|armed| armed <= at) {
            return;
        }
        self.armed = Some(at);
        self.timer.as_mut().reset(at.into());
        let mut cx = Context::from_waker(&self.wakers.timer);
        if self.timer.as_mut().poll(&mut cx).is_ready() {
            self.ready.note(Token::Timer);
        }
    }

    /// The core failed: its connections are closed, the frame at hand is kept and refused from now
    /// on, and a new core takes over what the mesh knows.
    fn start_anew(&mut self) {
        tracing::error!("the shard failed and starts anew; its connections are closed");
        let place = self.core.at_hand.take();
        let frame = place.and_then(|place| {
            let bytes = self.buffers.get(place.buffer).get(place.start..)?;
            bytes.get(..head_at(bytes, 0)?.frame_len())
        });
        if let Some(frame) = frame
            && let Err(error) = self.ways.quarantine.keep(frame, &frame[HEAD_LEN..])
        {
            tracing::error!(%error, "the frame that it failed on cannot be kept");
        }
        let settings = self.core.settings.clone();
        let fresh = core(now(), settings, &self.ways);
        std::mem::replace(&mut self.core, fresh).bequeath(&mut self.core);
        self.sessions.clear();
        self.hosts.clear();
        self.inputs.clear();
        self.input_bytes = 0;
        self.more.clear();
        self.dials = JoinSet::new();
        self.buffers = Buffers::default();
        self.armed = None;
        Token::ONCE.iter().for_each(|token| self.ready.note(*token));
    }
}

/// Puts a connection at its place; one that still stands there is forgotten.
fn put<T>(places: &mut Vec<Option<T>>, index: u32, new: T, forget: impl FnOnce(T)) {
    let index = index as usize;
    if places.len() <= index {
        places.resize_with(index + 1, || None);
    }
    if let Some(old) = places[index].replace(new) {
        forget(old);
    }
}

/// A core with everything the mesh knows.
fn core(now: Instant, settings: Settings, ways: &Ways) -> Core {
    let workers = u8::try_from(ways.handoff.others.len()).unwrap_or(u8::MAX);
    let mut core = Core::new(
        now,
        settings,
        workers,
        (ways.random)(),
        ways.quarantine.clone(),
    );
    core.apply(now, ways.mesh.all());
    core
}

#[expect(
    clippy::disallowed_methods,
    reason = "a driver tells its machine the time"
)]
fn now() -> Instant {
    Instant::now()
}
