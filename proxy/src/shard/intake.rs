//! How inputs are read: once per batch, into a pooled buffer that stays until the flush. A frame too
//! long for one grows in a buffer of its own, within a budget of the whole process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Instant,
};

use super::{
    buffers::{BufferId, Buffers, HOST_READ, SESSION_READ},
    driver::{Downstream, Shard},
    machine::{Next, Peer},
    output::head_at,
    socket::Socket,
    wake::Token,
};
use crate::{
    call::HostId,
    metrics::{CloseReason, LostReason},
};

/// How far the input of a socket has been read.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// The beginning of a frame that is not yet whole.
    rest: Option<BufferId>,
    /// That frame is too long for a read buffer, and grows in one of its own.
    long: Option<Long>,
    /// Bytes to drop before the next frame.
    skip: usize,
    /// Nothing more is read.
    stopped: bool,
    /// Its buffer waits for the flush.
    busy: bool,
}

/// A long frame, and its part of the budget, which it gives back when it goes.
#[derive(Debug)]
struct Long {
    whole: usize,
    reserved: usize,
    budget: Arc<AtomicUsize>,
}

/// An input that was read in this batch.
#[derive(Debug)]
pub(super) struct Read {
    of: Peer,
    buffer: BufferId,
    /// Bytes that were taken; what follows is kept.
    taken: usize,
    /// The part of the budget that the buffer holds.
    _long: Option<Long>,
}

impl Shard {
    /// Reads a socket once and feeds the core.
    pub(super) fn read(&mut self, now: Instant, of: Peer) {
        // A host that was lost or forgotten in this batch has a socket until the batch ends.
        if let Peer::Host(id) = of
            && self
                .core
                .host_mut(id)
                .is_none_or(|host| !host.upstream.is_up())
        {
            return;
        }
        let Some(socket) = socket_of(&mut self.sessions, &mut self.hosts, of) else {
            return;
        };
        let input = &mut socket.input;
        if input.stopped {
            return;
        }
        if input.busy {
            return self.more.push(of.token());
        }
        let size = of.read_size();
        let buffer = match input.rest.take() {
            Some(rest) => rest,
            None if size == HOST_READ => self.buffers.for_host(),
            None => self.buffers.for_session(),
        };
        let bytes = self.buffers.get_mut(buffer);
        let room = match (&input.long, input.skip) {
            (Some(long), _) => (long.whole - bytes.len()).min(bytes.capacity() - bytes.len()),
            (None, 0) => size - bytes.len(),
            (None, skip) => skip.min(size),
        };
        match socket.poll_read(bytes, room) {
            Poll::Pending if bytes.is_empty() => self.buffers.release(buffer),
            Poll::Pending => socket.input.rest = Some(buffer),
            Poll::Ready(Ok(0)) => {
                socket.input.stopped = true;
                self.buffers.release(buffer);
                self.ended(now, of);
            }
            Poll::Ready(Ok(read)) => {
                // Only a look that finds nothing leaves the waker with the socket.
                if read == room || socket.poll_read_ready().is_ready() {
                    self.more.push(of.token());
                }
                self.count_read(now, of, read);
                self.feed(now, of, buffer);
            }
            Poll::Ready(Err(error)) => {
                self.buffers.release(buffer);
                self.broke(now, of, &error);
            }
        }
    }

    /// Gives the core what was read, and follows what it wants with the rest.
    fn feed(&mut self, now: Instant, of: Peer, buffer: BufferId) {
        let Some(socket) = socket_of(&mut self.sessions, &mut self.hosts, of) else {
            return;
        };
        let input = &mut socket.input;
        let bytes = self.buffers.get_mut(buffer);
        if input.skip > 0 {
            input.skip -= bytes.len();
            return self.buffers.release(buffer);
        }
        if input
            .long
            .as_ref()
            .is_some_and(|long| bytes.len() < long.whole)
        {
            return self.grow(now, of, buffer);
        }
        let long = input.long.take();
        input.busy = true;
        let len = bytes.len();
        let (mut at, mut next) = (0, Next::Head);
        while at < len {
            let taken = match of {
                Peer::Session(id) => self.core.requests(now, id, buffer, at, &mut bytes[at..]),
                Peer::Host(id) => self.core.replies(now, id, buffer, at, &mut bytes[at..]),
            };
            self.core.at_hand = None;
            at += taken.bytes;
            next = taken.next;
            let Next::Skip(skip) = next else { break };
            input.skip = skip.saturating_sub(len - at);
            at = len.min(at + skip);
            next = Next::Head;
        }
        if let Some(cause) = self.core.broken.take()
            && let Peer::Host(id) = of
        {
            self.lose(now, id, LostReason::BadHead, &cause);
        }
        let Some(socket) = socket_of(&mut self.sessions, &mut self.hosts, of) else {
            return;
        };
        let input = &mut socket.input;
        let mut rest = None;
        match next {
            Next::Stop => {
                input.stopped = true;
                at = len;
            }
            Next::Frame(whole) if whole > of.read_size() => {
                let start = self.buffers.get(buffer)[at..].to_vec();
                let grown = self.buffers.for_body();
                self.buffers.get_mut(grown).extend_from_slice(&start);
                let budget = Arc::clone(&self.ways.long_bodies);
                input.long = Some(Long {
                    whole,
                    reserved: 0,
                    budget,
                });
                rest = Some(grown);
                at = len;
            }
            _ => {}
        }
        self.input_bytes += len;
        self.inputs.push(Read {
            of,
            buffer,
            taken: at,
            _long: long,
        });
        if let Some(grown) = rest {
            self.grow(now, of, grown);
        }
    }

    /// Makes room for more of a long frame. Over the budget, the frame is refused and skipped.
    fn grow(&mut self, now: Instant, of: Peer, buffer: BufferId) {
        let Some(socket) = socket_of(&mut self.sessions, &mut self.hosts, of) else {
            return;
        };
        let Some(long) = &mut socket.input.long else {
            return;
        };
        let bytes = self.buffers.get_mut(buffer);
        if bytes.len() == bytes.capacity() || long.reserved == 0 {
            let want = long.whole.min(2 * bytes.len().max(SESSION_READ));
            if !long.reserve(want, self.core.settings.limits.big_bodies) {
                let whole = long.whole;
                socket.input.long = None;
                socket.input.skip = whole - bytes.len();
                let head = head_at(bytes, 0);
                self.buffers.release(buffer);
                if let Some(head) = head {
                    self.core.refuse_long(now, of, &head);
                }
                return;
            }
            bytes.reserve(want - bytes.len());
        }
        socket.input.rest = Some(buffer);
    }

    /// Lets the buffers of this batch go, after the flush; what was not taken is kept.
    pub(super) fn settle(&mut self) {
        self.input_bytes = 0;
        for Read {
            of, buffer, taken, ..
        } in self.inputs.drain(..)
        {
            let bytes = self.buffers.get_mut(buffer);
            let left = bytes.len() - taken;
            let Some(socket) = socket_of(&mut self.sessions, &mut self.hosts, of) else {
                self.buffers.release(buffer);
                continue;
            };
            socket.input.busy = false;
            if left == 0 {
                self.buffers.release(buffer);
            } else {
                bytes.copy_within(taken.., 0);
                bytes.truncate(left);
                socket.input.rest = Some(buffer);
            }
        }
    }

    /// The peer closed its side.
    fn ended(&mut self, now: Instant, of: Peer) {
        match of {
            Peer::Session(id) => self.core.session_ended(id),
            Peer::Host(id) => {
                let address = self.core.host_mut(id).map(|h| h.address());
                let cause =
                    address.map_or_else(String::new, |a| format!("{a} closed the connection"));
                self.lose(now, id, LostReason::Peer, &cause);
            }
        }
    }

    /// A read failed.
    fn broke(&mut self, now: Instant, of: Peer, error: &std::io::Error) {
        match of {
            Peer::Session(id) => self.core.close_session(id, CloseReason::Reset),
            Peer::Host(id) => {
                let address = self.core.host_mut(id).map(|h| h.address());
                let cause = address.map_or_else(String::new, |a| format!("read from {a}: {error}"));
                self.lose(now, id, LostReason::Reset, &cause);
            }
        }
    }

    /// A host is lost: what waits for it in read buffers is copied first, so that it can go
    /// elsewhere.
    fn lose(&mut self, now: Instant, id: HostId, reason: LostReason, cause: &str) {
        if let Some(host) = self.core.host_mut(id) {
            host.output.refused(&self.buffers);
        }
        self.core.lose(now, id, reason, cause);
    }

    fn count_read(&mut self, now: Instant, of: Peer, read: usize) {
        let side = match of {
            Peer::Session(id) => self.core.session_mut(id).map(|session| {
                session.received(now);
                session.side
            }),
            Peer::Host(id) => {
                if let Some(host) = self.core.host_mut(id) {
                    host.upstream.received(now);
                }
                None
            }
        };
        let io = match side {
            Some(side) => &mut self.core.stats.sessions[side].io,
            None => &mut self.core.stats.upstream.io,
        };
        io.reads += 1;
        io.bytes_in += read as u64;
    }
}

impl Peer {
    /// The token of its socket.
    fn token(self) -> Token {
        match self {
            Self::Session(id) => Token::Session(id.index),
            Self::Host(id) => Token::Host(id.0),
        }
    }

    /// Bytes of one read.
    fn read_size(self) -> usize {
        match self {
            Self::Session(_) => SESSION_READ,
            Self::Host(_) => HOST_READ,
        }
    }
}

impl Long {
    /// Takes part of the budget, so that it holds `want` bytes of `most` in all.
    fn reserve(&mut self, want: usize, most: usize) -> bool {
        let more = want.saturating_sub(self.reserved);
        let taken = self.budget.fetch_add(more, Ordering::Relaxed) + more;
        if taken > most {
            self.budget.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.reserved += more;
        true
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        self.budget.fetch_sub(self.reserved, Ordering::Relaxed);
    }
}

impl Buffers {
    /// Lets go what an input held whose socket is closed.
    pub(super) fn forget(&mut self, input: Input) {
        if let Some(rest) = input.rest {
            self.release(rest);
        }
    }
}

/// The socket of a peer, if it is still there.
fn socket_of<'a>(
    sessions: &'a mut [Option<Downstream>],
    hosts: &'a mut [Option<Socket>],
    of: Peer,
) -> Option<&'a mut Socket> {
    match of {
        Peer::Session(id) => {
            let down = sessions.get_mut(id.index as usize)?.as_mut()?;
            (down.id == id).then_some(&mut down.socket)
        }
        Peer::Host(id) => hosts.get_mut(id.0 as usize)?.as_mut(),
    }
}
