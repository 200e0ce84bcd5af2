//! What goes out on one connection: bytes of our own first, then runs of frames where they were read.

use std::io::IoSlice;

use dubbo_proto::head::{HEAD_LEN, Head};

use super::buffers::{BufferId, Buffers};

/// Pieces of one vectored write.
pub(crate) const PIECES: usize = 64;
/// Frames shorter than this that do not stand together are gathered by copy: a piece of its own
/// costs the kernel more.
const SHORT: usize = 512;
/// Room that an idle queue keeps.
const KEPT: usize = 16 * 1024;

/// Consecutive whole frames in a read buffer.
#[derive(Debug, Clone, Copy)]
struct Run {
    buffer: BufferId,
    start: usize,
    end: usize,
}

/// Where a frame stands in a read buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The buffer.
    pub(crate) buffer: BufferId,
    /// The frame's first byte in it.
    pub(crate) start: usize,
}

/// The output of one connection.
///
/// The queue holds whole frames, so that those the kernel did not wholly take can go elsewhere:
/// bytes from `whole` to `sent` are the part it took of the first of them.
#[derive(Debug, Default)]
pub(crate) struct Output {
    queue: Vec<u8>,
    whole: usize,
    sent: usize,
    runs: Vec<Run>,
    /// Bytes of the runs.
    run_bytes: usize,
    /// The kernel refused bytes: nothing is written before it says that it takes some.
    blocked: bool,
}

impl Output {
    /// Puts a frame in where it was read. The buffer must stay until the next flush.
    #[inline]
    pub(crate) fn push(&mut self, place: Place, len: usize) {
        let Place { buffer, start } = place;
        self.run_bytes += len;
        match self.runs.last_mut() {
            Some(run) if run.buffer == buffer && run.end == start => run.end += len,
            _ => self.runs.push(Run {
                buffer,
                start,
                end: start + len,
            }),
        }
    }

    /// Puts a copy in, in front of all runs.
    pub(crate) fn append(&mut self, frame: &[u8]) {
        self.queue.extend_from_slice(frame);
    }

    /// The queue, to write frames of our own into.
    pub(crate) fn queue(&mut self) -> &mut Vec<u8> {
        &mut self.queue
    }

    /// Bytes that the kernel has not taken.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.queue.len() - self.sent + self.run_bytes
    }

    /// Whether the kernel must say first that it takes bytes again.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The kernel takes bytes again.
    pub(crate) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Prepares for a write: short runs of many buffers become one piece.
    pub(crate) fn gather(&mut self, buffers: &Buffers) {
        if self.runs.len() > 2 && self.run_bytes / self.runs.len() < SHORT {
            self.copy_runs(0, buffers);
        }
    }

    /// The pieces of the next write, and how many bytes they are.
    pub(crate) fn pieces<'a>(
        &'a self,
        buffers: &'a Buffers,
        pieces: &mut [IoSlice<'a>; PIECES],
    ) -> (usize, usize) {
        let queued = self.queue.get(self.sent..).unwrap_or_default();
        let runs = self
            .runs
            .iter()
            .map(|run| &buffers.get(run.buffer)[run.start..run.end]);
        let all = std::iter::once(queued)
            .filter(|q| !q.is_empty())
            .chain(runs);
        let (mut count, mut bytes) = (0, 0);
        for (piece, slice) in pieces.iter_mut().zip(all) {
            *piece = IoSlice::new(slice);
            count += 1;
            bytes += slice.len();
        }
        (count, bytes)
    }

    /// The kernel took `count` bytes of the pieces.
    pub(crate) fn accepted(&mut self, mut count: usize, buffers: &Buffers) {
        let queued = (self.queue.len() - self.sent).min(count);
        self.sent += queued;
        count -= queued;
        self.forget_sent();
        let mut done = 0;
        for run in &self.runs {
            let len = run.end - run.start;
            if count < len {
                break;
            }
            count -= len;
            self.run_bytes -= len;
            done += 1;
        }
        self.runs.drain(..done);
        if count > 0 {
            self.copy_runs(count, buffers);
        }
    }

    /// The kernel takes no more: what is left is copied, and waits until it does.
    pub(crate) fn refused(&mut self, buffers: &Buffers) {
        self.copy_runs(0, buffers);
        self.blocked = true;
    }

    /// Takes out the whole frames that the kernel did not wholly take.
    pub(crate) fn take_unsent(&mut self) -> Vec<u8> {
        let mut frames = std::mem::take(&mut self.queue);
        let first = match head_at(&frames, self.whole) {
            // A frame of which the kernel took all but the end may have been seen by nobody: only
            // the last byte makes it whole for the peer.
            Some(_) => self.whole,
            None => frames.len(),
        };
        frames.drain(..first);
        *self = Self::default();
        frames
    }

    /// Copies the runs behind the queue; the kernel took `sent` bytes of the first.
    fn copy_runs(&mut self, sent: usize, buffers: &Buffers) {
        let mut skip = 0;
        for (nth, run) in self.runs.iter().enumerate() {
            let bytes = &buffers.get(run.buffer)[run.start..run.end];
            if nth == 0 && sent > 0 {
                skip = whole_frames(bytes, sent);
                self.whole = self.queue.len();
                self.sent = self.queue.len() + sent - skip;
                self.queue.extend_from_slice(&bytes[skip..]);
            } else {
                self.queue.extend_from_slice(bytes);
            }
        }
        debug_assert!(skip <= sent, "a cut frame begins before the cut");
        self.runs.clear();
        self.run_bytes = 0;
    }

    /// Forgets frames of the queue that the kernel took whole.
    fn forget_sent(&mut self) {
        if self.sent == self.queue.len() {
            self.queue.clear();
            self.queue.shrink_to(KEPT);
            (self.whole, self.sent) = (0, 0);
            return;
        }
        self.whole += whole_frames(&self.queue[self.whole..], self.sent - self.whole);
        if self.whole > self.queue.len() / 2 {
            self.queue.drain(..self.whole);
            self.sent -= self.whole;
            self.whole = 0;
        }
    }
}

/// Bytes of the whole frames within the first `len` bytes; all of them where no frame stands.
fn whole_frames(bytes: &[u8], len: usize) -> usize {
    let mut at = 0;
    while at < len {
        let Some(head) = head_at(bytes, at) else {
            return len;
        };
        if at + head.frame_len() > len {
            break;
        }
        at += head.frame_len();
    }
    at
}

/// The head at `at`, if there is one.
pub(crate) fn head_at(bytes: &[u8], at: usize) -> Option<Head> {
    Head::decode(bytes.get(at..)?.first_chunk::<HEAD_LEN>()?)
}

#[cfg(test)]
mod tests {
    use dubbo_proto::head::{Kind, RequestId, Serialization};

    use super::*;

    fn frame(id: u64, body_len: u32) -> Vec<u8> {
        let head = Head {
            kind: Kind::Request { two_way: true },
            serialization: Serialization::HESSIAN2,
            id: RequestId(id),
            body_len,
        };
        let mut frame = head.encode().to_vec();
        frame.resize(head.frame_len(), b'x');
        frame
    }

    fn ids(frames: &[u8]) -> Vec<u64> {
        let (mut ids, mut at) = (vec![], 0);
        while let Some(head) = head_at(frames, at) {
            ids.push(head.id.0);
            at += head.frame_len();
        }
        assert_eq!(at, frames.len(), "whole frames");
        ids
    }

    fn write(output: &Output, buffers: &Buffers, take: usize) -> Vec<u8> {
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let (count, _) = output.pieces(buffers, &mut pieces);
        let all: Vec<u8> = pieces[..count].iter().flat_map(|p| p.to_vec()).collect();
        all[..take.min(all.len())].to_vec()
    }

    /// Whatever the kernel takes, in whatever portions: the bytes are right, and what is unsent is
    /// whole frames.
    #[test]
    fn every_cut_keeps_frames_whole() {
        let frames: Vec<Vec<u8>> = (0..6).map(|i| frame(i, 30 + i as u32)).collect();
        let total: usize = frames.iter().map(Vec::len).sum();
        for first in 0..=total {
            for second in [0, 1, 7, 46, 60, total] {
                let mut buffers = Buffers::default();
                let (a, b) = (buffers.for_session(), buffers.for_session());
                let mut output = Output::default();
                output.append(&frames[0]);
                for (i, frame) in frames.iter().enumerate().skip(1) {
                    let buffer = if i < 4 { a } else { b };
                    let start = buffers.get(buffer).len();
                    buffers.get_mut(buffer).extend_from_slice(frame);
                    output.push(Place { buffer, start }, frame.len());
                }
                let mut wire = write(&output, &buffers, first);
                output.accepted(first, &buffers);
                assert_eq!(output.pending(), total - first);
                output.refused(&buffers);
                buffers.release(a);
                buffers.release(b);
                let more = write(&output, &buffers, second);
                output.accepted(more.len(), &buffers);
                wire.extend(&more);
                assert_eq!(wire, frames.concat()[..wire.len()]);
                assert_eq!(output.pending(), total - wire.len());
                let (mut whole, mut at) = (0, 0);
                while whole < 6 && at + frames[whole].len() <= wire.len() {
                    at += frames[whole].len();
                    whole += 1;
                }
                let unsent = ids(&output.take_unsent());
                assert_eq!(
                    unsent,
                    (whole as u64..6).collect::<Vec<_>>(),
                    "{first} then {second}"
                );
            }
        }
    }
}
