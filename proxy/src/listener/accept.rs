//! Taking connections in: one loop for all listeners.
//!
//! First a place and a shard, then a connection: so the limits hold exactly, and what is beyond
//! them waits in the kernel.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::Instant,
};

use super::{Accepted, Bound, Connection, bind::SocketFile};
use crate::{
    config::{Limits, Listen, own_addresses},
    drain::{Drain, Phase},
    metrics,
    model::Side,
};

/// All listeners, and the shards that take what they accept.
#[derive(Debug)]
pub struct Acceptor {
    listeners: Vec<Listener>,
    shards: Vec<mpsc::Sender<Accepted>>,
    /// Whose turn it is, of the shards and of the listeners.
    turn: usize,
    places: Arc<Semaphore>,
    unacknowledged: Duration,
    metrics: metrics::Listeners,
    /// When it was last said that others wait.
    said: Option<Instant>,
}

/// One listener.
#[derive(Debug)]
struct Listener {
    side: Side,
    address: Listen,
    local_only: bool,
    socket: Listening,
    _file: Option<SocketFile>,
}

#[derive(Debug)]
enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    /// What is bound, and the shards, one sender each, at least one.
    ///
    /// # Errors
    /// The runtime cannot wait for a socket.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn new(
        bound: Vec<Bound>,
        shards: Vec<mpsc::Sender<Accepted>>,
        limits: &Limits,
        metrics: metrics::Listeners,
    ) -> io::Result<Self> {
        let listeners: io::Result<_> = bound.into_iter().map(Listener::new).collect();
        Ok(Self {
            listeners: listeners?,
            shards,
            turn: 0,
            places: Arc::new(Semaphore::new(limits.max_sessions)),
            unacknowledged: limits.unacknowledged,
            metrics,
            said: None,
        })
    }

    /// Accepts connections until the proxy drains, and gives them to the shards in turn.
    ///
    /// Ends before that only if no shard lives. Dropped, it stops listening.
    pub async fn run(mut self, drain: Drain) {
        tokio::select! {
            biased;
            () = drain.reached(Phase::StopAccepting) => {}
            () = self.accept_all() => tracing::error!("no shard takes connections any more"),
        }
    }

    async fn accept_all(&mut self) {
        let mut pause = MIN_PAUSE;
        loop {
            let permit = self.place().await;
            let Some(room) = self.shard().await else {
                return;
            };
            match poll_fn(|context| self.poll_accept(context)).await {
                Ok((side, socket)) => {
                    room.send(Accepted {
                        socket,
                        side,
                        permit,
                    });
                    pause = MIN_PAUSE;
                }
                Err(error) => {
                    // Out of files or memory: the connection still waits, and trying at once
                    // would spin.
                    tracing::warn!(%error, "cannot accept");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }

    /// A place among the sessions.
    async fn place(&mut self) -> OwnedSemaphorePermit {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return place;
        }
        self.full("as many connections as limits.max_sessions: others wait");
        let place = Arc::clone(&self.places).acquire_owned().await;
        place.expect("the semaphore is never closed")
    }

    /// Room at the next shard in turn that has some; `None` if no shard lives.
    async fn shard(&mut self) -> Option<mpsc::OwnedPermit<Accepted>> {
        self.turn = self.turn.wrapping_add(1);
        let (turn, count) = (self.turn, self.shards.len());
        let in_turn = (0..count).map(move |n| turn.wrapping_add(n) % count);
        for shard in in_turn.clone() {
            if let Ok(room) = self.shards[shard].clone().try_reserve_owned() {
                return Some(room);
            }
        }
        self.full("every shard is busy taking connections: others wait");
        // Whichever has room first: one that is stuck must not hold up the others.
        let mut waiting: Vec<_> = in_turn
            .map(|shard| Box::pin(self.shards[shard].clone().reserve_owned()))
            .collect();
        poll_fn(|context| {
            let mut room = None;
            waiting.retain_mut(|shard| match shard.as_mut().poll(context) {
                Poll::Ready(Ok(found)) if room.is_none() => {
                    room = Some(found);
                    false
                }
                Poll::Ready(_) => false,
                Poll::Pending => true,
            });
            match room {
                None if !waiting.is_empty() => Poll::Pending,
                room => Poll::Ready(room),
            }
        })
        .await
    }

    /// Others wait. Each time is counted, and one in a while is told.
    fn full(&mut self, why: &'static str) {
        self.metrics.full.inc();
        let now = Instant::now();
        if self.said.is_none_or(|said| now >= said + SAID_AGAIN) {
            self.said = Some(now);
            tracing::warn!("{why}");
        }
    }

    /// The next connection of whichever listener has one.
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(Side, Connection)>> {
        for n in 0..self.listeners.len() {
            let listener = &self.listeners[self.turn.wrapping_add(n) % self.listeners.len()];
            while let Poll::Ready(accepted) = listener.poll_accept(context) {
                let Some(accepted) = accepted.transpose() else {
                    continue;
                };
                let socket = accepted.inspect_err(|_| self.metrics.errors[listener.side].inc())?;
                if listener.local_only && socket.is_foreign() {
                    self.metrics.foreign.inc();
                    tracing::debug!(address = %listener.address, "from another host: reset");
                    socket.reset();
                    continue;
                }
                // A peer that is gone already needs nobody.
                if socket.prepare(self.unacknowledged).is_ok() {
                    return Poll::Ready(Ok((listener.side, socket)));
                }
            }
        }
        Poll::Pending
    }
}

impl Listener {
    fn new(bound: Bound) -> io::Result<Self> {
        let Bound {
            side,
            address,
            local_only,
            socket,
            file,
            ..
        } = bound;
        let socket = match address {
            Listen::Tcp(_) => Listening::Tcp(TcpListener::from_std(socket.into())?),
            Listen::Unix(_) => Listening::Unix(UnixListener::from_std(socket.into())?),
        };
        tracing::info!(side = side.as_str(), %address, "listening");
        Ok(Self {
            side,
            address,
            local_only,
            socket,
            _file: file,
        })
    }

    /// The next connection, taken out of the runtime; `None` for one that is gone again.
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Option<Connection>>> {
        let accepted = match &self.socket {
            Listening::Tcp(socket) => ready!(socket.poll_accept(context))
                .and_then(|(socket, _)| socket.into_std().map(Connection::Tcp)),
            Listening::Unix(socket) => ready!(socket.poll_accept(context))
                .and_then(|(socket, _)| socket.into_std().map(Connection::Unix)),
        };
        Poll::Ready(match accepted {
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(None),
            accepted => accepted.map(Some),
        })
    }
}

impl Connection {
    /// Whether the other end is on another host.
    fn is_foreign(&self) -> bool {
        let Self::Tcp(socket) = self else {
            return false;
        };
        let canonical =
            |address: io::Result<SocketAddr>| address.ok().map(|a| a.ip().to_canonical());
        // One that is gone already has no address any more, and does no harm.
        let Some(peer) = canonical(socket.peer_addr()) else {
            return false;
        };
        // Mostly a host calls itself from the address that it calls; the list of all costs more.
        let is_here = peer.is_loopback()
            || canonical(socket.local_addr()) == Some(peer)
            || own_addresses().contains(&peer);
        !is_here
    }

    /// Ends the connection by a reset.
    fn reset(self) {
        if let Self::Tcp(socket) = self {
            // Without lingering, closing is a reset. Failing, it is an orderly end.
            let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
        }
    }

    fn prepare(&self, unacknowledged: Duration) -> io::Result<()> {
        let Self::Tcp(socket) = self else {
            return Ok(());
        };
        let socket = SockRef::from(socket);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
        socket.set_tcp_user_timeout(Some(unacknowledged))
    }
}

/// Silence after which the kernel probes the peer.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Time between two words on connections that wait.
const SAID_AGAIN: Duration = Duration::from_secs(1);
/// Pause after the first accept that failed.
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// Longest pause between accepts that fail.
const MAX_PAUSE: Duration = Duration::from_secs(1);
