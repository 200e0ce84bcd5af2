//! Frames for a host whose socket takes none: a list per session, drained in turns.

use indexmap::IndexMap;

use super::output::{Output, head_at};
use crate::call::SessionId;

/// Bytes that a list may send per turn.
const QUANTUM: usize = 16 * 1024;

/// Whose frames wait in one list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sender {
    /// An application or peer of this shard.
    Session(SessionId),
    /// Another shard, for all of its sessions.
    Shard(u8),
    /// Ourselves: frames that came back from a lost host.
    Own,
}

/// The lists of one host.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    lists: IndexMap<Sender, List, foldhash::fast::RandomState>,
    bytes: usize,
    turn: usize,
}

#[derive(Debug, Default)]
struct List {
    frames: Vec<u8>,
    taken: usize,
    deficit: usize,
}

impl Backlog {
    /// Puts a whole frame at the end of its sender's list.
    pub(crate) fn push(&mut self, sender: Sender, frame: &[u8]) {
        self.lists
            .entry(sender)
            .or_default()
            .frames
            .extend_from_slice(frame);
        self.bytes += frame.len();
    }

    /// Bytes of all lists.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of one list.
    pub(crate) fn bytes_of(&self, sender: Sender) -> usize {
        self.lists.get(&sender).map_or(0, List::bytes)
    }

    /// Moves frames to `output`, by deficit round robin, until it holds `room` bytes or no list is
    /// left.
    pub(crate) fn refill(&mut self, output: &mut Output, room: usize) {
        while output.pending() < room && !self.lists.is_empty() {
            self.turn %= self.lists.len();
            let Some((_, list)) = self.lists.get_index_mut(self.turn) else {
                return;
            };
            list.deficit += QUANTUM;
            self.bytes -= list.send(output);
            if list.bytes() == 0 {
                self.lists.swap_remove_index(self.turn);
            } else {
                self.turn += 1;
            }
        }
    }

    /// Takes all frames out.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let lists = std::mem::take(self).lists;
        lists
            .into_values()
            .flat_map(|list| list.frames.into_iter().skip(list.taken))
            .collect()
    }
}

impl List {
    fn bytes(&self) -> usize {
        self.frames.len() - self.taken
    }

    /// Moves the frames that the deficit covers; returns their bytes.
    fn send(&mut self, output: &mut Output) -> usize {
        let start = self.taken;
        while let Some(head) = head_at(&self.frames, self.taken) {
            let len = head.frame_len();
            if len > self.deficit {
                break;
            }
            self.deficit -= len;
            self.taken += len;
        }
        output.append(&self.frames[start..self.taken]);
        let sent = self.taken - start;
        if self.taken > self.frames.len() / 2 {
            self.frames.drain(..self.taken);
            self.taken = 0;
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use dubbo_proto::head::{Head, Kind, RequestId, Serialization};

    use super::*;

    fn frame(id: u64, body_len: u32) -> Vec<u8> {
        let kind = Kind::Request { two_way: true };
        let serialization = Serialization::HESSIAN2;
        let mut frame = Head {
            kind,
            serialization,
            id: RequestId(id),
            body_len,
        }
        .encode()
        .to_vec();
        frame.resize(16 + body_len as usize, 0);
        frame
    }

    #[test]
    fn a_loud_sender_does_not_keep_others_waiting() {
        let mut backlog = Backlog::default();
        for _ in 0..1000 {
            backlog.push(Sender::Shard(0), &frame(0, 10_000));
        }
        backlog.push(Sender::Shard(1), &frame(1, 100));
        backlog.push(Sender::Shard(2), &frame(2, 200_000));
        let total = backlog.bytes();
        let mut output = Output::default();
        backlog.refill(&mut output, 64 * 1024);
        let sent = output.take_unsent();
        assert_eq!(backlog.bytes() + sent.len(), total);
        assert_eq!(
            backlog.bytes_of(Sender::Shard(1)),
            0,
            "the quiet one went out first"
        );
        backlog.refill(&mut output, 600 * 1024);
        assert_eq!(
            backlog.bytes_of(Sender::Shard(2)),
            0,
            "a long frame gathers its share"
        );
        let left = backlog.bytes();
        assert_eq!(left, backlog.bytes_of(Sender::Shard(0)));
        assert_eq!((backlog.take().len(), backlog.bytes()), (left, 0));
    }
}
