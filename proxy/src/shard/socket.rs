//! Sockets, as the driver sees them: reads that know when to stop, vectored writes.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::BufMut;
use tokio::net::{TcpStream, UnixStream};
use tokio_util::io::poll_read_buf;

use super::{
    accepted::Connection,
    buffers::Buffers,
    intake::Input,
    output::{Output, PIECES},
};
use crate::metrics::Io;

/// A connection, and how far its input has been read.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) stream: Stream,
    /// Wakes the driver with this socket's token.
    pub(super) waker: Waker,
    pub(super) input: Input,
}

/// The connection itself.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What a write came to.
#[derive(Debug, Default)]
pub(super) struct Written {
    bytes: u64,
    pub(super) writes: u64,
    pub(super) error: Option<io::Error>,
}

impl Written {
    /// Adds to the counters.
    pub(super) fn count(&self, io: &mut Io) {
        io.bytes_out += self.bytes;
        io.writes += self.writes;
    }
}

impl Stream {
    /// A connection that was accepted, as the runtime sees it.
    pub(super) fn new(socket: Connection) -> io::Result<Self> {
        Ok(match socket {
            Connection::Tcp(stream) => Self::Tcp(TcpStream::from_std(stream)?),
            Connection::Unix(stream) => Self::Unix(UnixStream::from_std(stream)?),
        })
    }
}

impl Socket {
    pub(super) fn new(stream: Stream, waker: Waker) -> Self {
        Self {
            stream,
            waker,
            input: Input::default(),
        }
    }

    /// Reads at most `room` bytes to the end of `buffer`. A short read does not cost another one
    /// that fails: it clears the socket's readiness.
    pub(super) fn poll_read(
        &mut self,
        buffer: &mut impl BufMut,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let cx = &mut Context::from_waker(&self.waker);
        let mut buffer = buffer.limit(room);
        match &mut self.stream {
            Stream::Tcp(stream) => poll_read_buf(Pin::new(stream), cx, &mut buffer),
            Stream::Unix(stream) => poll_read_buf(Pin::new(stream), cx, &mut buffer),
        }
    }

    /// Whether there may be something to read; if not, the socket's token comes when there is.
    pub(super) fn poll_read_ready(&self) -> Poll<()> {
        let cx = &mut Context::from_waker(&self.waker);
        // An error shows again at the read.
        match &self.stream {
            Stream::Tcp(stream) => stream.poll_read_ready(cx).map(drop),
            Stream::Unix(stream) => stream.poll_read_ready(cx).map(drop),
        }
    }

    /// Writes an output as far as the kernel takes it; the rest is copied, and the socket's token
    /// comes when it takes more.
    pub(super) fn write(&self, output: &mut Output, buffers: &Buffers) -> Written {
        let mut all = Written::default();
        output.gather(buffers);
        while !output.is_blocked() {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let (count, bytes) = output.pieces(buffers, &mut pieces);
            if bytes == 0 {
                break;
            }
            let written = match self.try_write(&pieces[..count]) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => {
                    output.refused(buffers);
                    return Written {
                        error: Some(error),
                        ..all
                    };
                }
            };
            all.writes += u64::from(written > 0);
            all.bytes += written as u64;
            output.accepted(written, buffers);
            if written < bytes {
                output.refused(buffers);
                if self.poll_write_ready().is_ready() {
                    output.unblock();
                }
            }
        }
        all
    }

    /// Whether the kernel takes bytes; if not, the socket's token comes when it does.
    pub(super) fn poll_write_ready(&self) -> Poll<()> {
        let cx = &mut Context::from_waker(&self.waker);
        // An error shows again at the write.
        match &self.stream {
            Stream::Tcp(stream) => stream.poll_write_ready(cx).map(drop),
            Stream::Unix(stream) => stream.poll_write_ready(cx).map(drop),
        }
    }

    fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match (&self.stream, pieces) {
            (Stream::Tcp(stream), [piece]) => stream.try_write(piece),
            (Stream::Tcp(stream), pieces) => stream.try_write_vectored(pieces),
            (Stream::Unix(stream), pieces) => stream.try_write_vectored(pieces),
        }
    }
}
