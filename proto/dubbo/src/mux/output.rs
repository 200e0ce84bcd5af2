//! Bytes to be written: what a machine owes its connection, and how much of it the kernel took.

use crate::frame;
use crate::head::{Kind, RequestId, Serialization};

/// A queue of whole frames, written from the front.
///
/// The driver writes [`Self::bytes`] as they are, one write for all frames of a wake-up.
#[derive(Debug, Default)]
pub(super) struct Output {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were taken.
    start: usize,
    /// Bytes taken since the connection was opened.
    taken: u64,
}

impl Output {
    /// What is to be written.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Bytes to be written.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The first `n` of [`Self::bytes`] were taken.
    pub(super) fn sent(&mut self, n: usize) {
        let n = n.min(self.len());
        self.taken += n as u64;
        self.start += n;
        if self.len() == 0 {
            self.clear();
        } else if self.start > self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }

    /// Keeps the memory that batches of this size need, however large they are: only a batch much
    /// smaller than the memory shows that it is not needed any more.
    fn clear(&mut self) {
        let batch = self.buffer.len();
        self.buffer.clear();
        self.start = 0;
        if batch < self.buffer.capacity() / 4 {
            self.buffer.shrink_to(KEPT.max(batch * 2));
        }
    }

    /// Where the stream stands: bytes taken since the connection was opened.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Where the stream will stand when everything so far is taken.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.taken + self.len() as u64
    }

    /// Where whole frames are appended.
    #[inline]
    pub(super) fn frames(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Appends a frame whose body was measured to be shorter than 2 GiB.
    #[inline]
    pub(super) fn push(
        &mut self,
        kind: Kind,
        serialization: Serialization,
        id: RequestId,
        body: &[u8],
    ) {
        frame::append(&mut self.buffer, kind, serialization, id, |out| {
            out.extend_from_slice(body);
        });
    }
}

/// Memory that an empty queue keeps in any case: a usual batch.
const KEPT: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_write_continues_where_it_stopped() {
        let mut output = Output::default();
        output.frames().extend_from_slice(b"abcdef");
        output.sent(4);
        assert_eq!((output.bytes(), output.taken()), (&b"ef"[..], 4));
        output.frames().extend_from_slice(b"gh");
        output.sent(1);
        assert_eq!((output.bytes(), output.end()), (&b"fgh"[..], 8));
        output.sent(3);
        assert_eq!((output.bytes(), output.taken()), (&b""[..], 8));
    }

    #[test]
    fn memory_follows_the_batches() {
        let mut output = Output::default();
        for _ in 0..2 {
            output.frames().resize(KEPT * 16, 0);
            output.sent(KEPT * 16);
            assert!(
                output.frames().capacity() >= KEPT * 16,
                "the next may be as large"
            );
        }
        output.frames().push(0);
        output.sent(1);
        assert!(output.frames().capacity() < KEPT * 2);
    }
}
