//! Batches between shards: calls for hosts that another shard owns, and the replies to them.
//!
//! Frames cross as copies, one batch per wake-up and shard. The session's shard owns the call, its
//! deadline and its policy; the host's shard owns only the socket. Notices travel in the same
//! stream, so each is true of all that stands before it ([`super::links`]).

use std::time::Instant;

use dubbo_proto::head::{HEAD_LEN, Kind, RequestId};
use tokio::sync::mpsc;

use super::{
    backlog::Sender,
    links::Loss,
    machine::{Core, Source},
    output::head_at,
};
use crate::{
    call::{Failure, HostId},
    config::fixed,
    metrics::Stray,
};

/// The ways between the shards: each has an inbox, and may write into every other.
#[derive(Debug)]
pub(crate) struct Handoff {
    /// Where batches for this shard arrive.
    pub(crate) inbox: mpsc::Receiver<Batch>,
    /// By shard; its own is never used.
    pub(crate) others: Vec<mpsc::Sender<Batch>>,
}

impl Handoff {
    /// The ways between `workers` shards, one for each.
    pub(crate) fn ring(workers: u8) -> Vec<Self> {
        let ways: Vec<_> = (0..workers)
            .map(|_| mpsc::channel(fixed::BATCHES))
            .collect();
        let others: Vec<_> = ways.iter().map(|(sender, _)| sender.clone()).collect();
        let hand = |(_, inbox)| Self {
            inbox,
            others: others.clone(),
        };
        ways.into_iter().map(hand).collect()
    }
}

/// What one shard has for another.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    from: u8,
    parts: Vec<Part>,
    frames: Vec<u8>,
}

/// One thing in a batch, mostly about the host of this number; frames stand behind one another.
#[derive(Debug)]
enum Part {
    /// A frame was put into quarantine.
    Quarantine,
    /// Send this frame to the host.
    Call(u32),
    /// The host sent this reply to a call of yours.
    Reply(u32),
    /// The host was lost before this frame of yours was sent.
    Unsent(u32),
    /// Does the host take calls? It became known here, perhaps after its ups and downs were told.
    Ask(u32),
    /// The host takes calls.
    Up(u32),
    /// The host takes no calls on this connection.
    ReadOnly(u32),
    /// The host is not known here any more: no call for it follows, and none is in flight.
    Left(u32),
    /// The queue of the host was full for this frame of yours.
    Full(u32),
    /// The host's reply to this call of yours cannot be passed on.
    Failed(u32, RequestId, Failure, String),
    /// The host could not be reached: it takes no calls.
    Down(u32, String),
    /// The connection to the host was lost: it takes no calls, and those on their way come back.
    Lost(u32, Loss, String),
    /// That the host was lost is known here: no call for the lost connection follows.
    Settled(u32, Loss, String),
    /// What did not come back from the host by now was on the lost connection: it may have run.
    Rest(u32, Loss, String),
}

/// What is to be handed over after this batch, by shard.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    own: u8,
    /// Bytes that may wait for one shard.
    most: usize,
    batches: Vec<Batch>,
}

impl Outbox {
    /// For shard `own` of `workers`, with at most about `most` bytes for each other.
    pub(super) fn new(own: u8, workers: u8, most: usize) -> Self {
        let batches = (0..workers)
            .map(|_| Batch {
                from: own,
                ..Batch::default()
            })
            .collect();
        Self { own, most, batches }
    }

    /// Bytes that wait to be handed to a shard.
    #[inline]
    pub(super) fn pending(&self, shard: u8) -> usize {
        self.batches[shard as usize].frames.len()
    }

    pub(super) fn call(&mut self, shard: u8, host: u32, frame: &[u8]) {
        self.frame(shard, Part::Call(host), frame);
    }

    /// A shard that takes nothing loses replies beyond the bound: their calls time out there.
    pub(super) fn reply(&mut self, shard: u8, host: u32, frame: &[u8]) -> bool {
        let fits = self
            .batches
            .get(shard as usize)
            .is_some_and(|b| b.frames.len() <= self.most);
        if fits {
            self.frame(shard, Part::Reply(host), frame);
        }
        fits
    }

    pub(super) fn unsent(&mut self, shard: u8, host: u32, frame: &[u8]) {
        self.frame(shard, Part::Unsent(host), frame);
    }

    fn full(&mut self, shard: u8, host: u32, frame: &[u8]) {
        self.frame(shard, Part::Full(host), frame);
    }

    pub(super) fn failed(
        &mut self,
        shard: u8,
        host: u32,
        id: RequestId,
        failure: Failure,
        cause: &str,
    ) {
        self.frame(
            shard,
            Part::Failed(host, id, failure, cause.to_owned()),
            &[],
        );
    }

    pub(super) fn ask(&mut self, shard: u8, host: u32) {
        self.frame(shard, Part::Ask(host), &[]);
    }

    pub(super) fn left(&mut self, shard: u8, host: u32) {
        self.frame(shard, Part::Left(host), &[]);
    }

    pub(super) fn up(&mut self, shard: u8, host: u32) {
        self.frame(shard, Part::Up(host), &[]);
    }

    pub(super) fn down(&mut self, shard: u8, host: u32, cause: &str) {
        self.frame(shard, Part::Down(host, cause.to_owned()), &[]);
    }

    pub(super) fn lost(&mut self, shard: u8, host: u32, loss: Loss, cause: &str) {
        self.frame(shard, Part::Lost(host, loss, cause.to_owned()), &[]);
    }

    pub(super) fn settled(&mut self, shard: u8, host: u32, loss: Loss, cause: String) {
        self.frame(shard, Part::Settled(host, loss, cause), &[]);
    }

    pub(super) fn rest(&mut self, shard: u8, host: u32, loss: Loss, cause: String) {
        self.frame(shard, Part::Rest(host, loss, cause), &[]);
    }

    pub(super) fn quarantine(&mut self) {
        for shard in self.others() {
            self.frame(shard, Part::Quarantine, &[]);
        }
    }

    pub(super) fn read_only(&mut self, host: u32) {
        for shard in self.others() {
            self.frame(shard, Part::ReadOnly(host), &[]);
        }
    }

    /// All shards but this.
    pub(super) fn others(&self) -> impl Iterator<Item = u8> + use<> {
        let own = self.own;
        (0..)
            .take(self.batches.len())
            .filter(move |shard| *shard != own)
    }

    /// Hands each batch that has something in it to `hand`, which hands back what does not fit
    /// now. Whether something was handed back.
    pub(crate) fn hand_over(
        &mut self,
        mut hand: impl FnMut(u8, Batch) -> Result<(), Batch>,
    ) -> bool {
        let mut full = false;
        for (shard, batch) in (0..).zip(&mut self.batches) {
            if batch.parts.is_empty() {
                continue;
            }
            let whole = std::mem::replace(
                batch,
                Batch {
                    from: self.own,
                    ..Batch::default()
                },
            );
            if let Err(whole) = hand(shard, whole) {
                *batch = whole;
                full = true;
            }
        }
        full
    }

    /// A shard that does not exist any more, or never did, is told nothing.
    fn frame(&mut self, shard: u8, part: Part, frame: &[u8]) {
        if let Some(batch) = self.batches.get_mut(shard as usize) {
            batch.parts.push(part);
            batch.frames.extend_from_slice(frame);
        }
    }
}

impl Core {
    /// Another shard handed a batch over.
    pub(crate) fn handed(&mut self, now: Instant, mut batch: Batch) {
        self.stats.handoff_batches += 1;
        let mut at = 0;
        for part in std::mem::take(&mut batch.parts) {
            let len = match part {
                Part::Call(_) | Part::Reply(_) | Part::Unsent(_) | Part::Full(_) => {
                    head_at(&batch.frames, at).map_or(0, |head| head.frame_len())
                }
                _ => 0,
            };
            let Some(frame) = batch.frames.get_mut(at..at + len) else {
                return;
            };
            at += len;
            self.handed_part(now, batch.from, part, frame);
        }
    }

    fn handed_part(&mut self, now: Instant, from: u8, part: Part, frame: &mut [u8]) {
        let (Part::Call(id)
        | Part::Reply(id)
        | Part::Unsent(id)
        | Part::Ask(id)
        | Part::Up(id)
        | Part::ReadOnly(id)
        | Part::Left(id)
        | Part::Full(id)
        | Part::Failed(id, ..)
        | Part::Down(id, _)
        | Part::Lost(id, ..)
        | Part::Settled(id, ..)
        | Part::Rest(id, ..)) = part
        else {
            return self.quarantine.refresh();
        };
        let Some(host) = self.host_by_id(id) else {
            return self.handed_unknown(now, from, id, part, frame);
        };
        match part {
            Part::Call(_) => self.handed_call(now, from, host, frame),
            Part::Reply(_) => {
                if let Some(head) = head_at(frame, 0)
                    && frame.len() >= HEAD_LEN
                    && let Kind::Response { status } = head.kind
                {
                    self.reply(now, host, &head, status, Source::Copy, frame);
                }
            }
            Part::Unsent(_) => self.move_unsent(now, host, frame),
            Part::Ask(_) => self.tell_up(host, from),
            Part::Left(_) => self.left(host, from),
            Part::Up(_) => {
                self.hosts[host.0 as usize].links.loss = Loss::default();
                self.connected(now, host);
            }
            Part::ReadOnly(_) => self.read_only(now, host),
            Part::Full(_) => {
                if let Some(head) = head_at(frame, 0) {
                    let address = self.hosts[host.0 as usize].address();
                    let full = format!("the queue to {address} is full (limits.host_queue)");
                    self.give_up(head.id, Failure::Overflow, &full);
                }
            }
            Part::Failed(_, id, failure, cause) => {
                self.attempt_lost(now, host, id, failure, &cause);
            }
            Part::Down(_, cause) => self.unreachable(now, host, &cause),
            Part::Lost(_, loss, cause) => {
                self.hosts[host.0 as usize].links.loss = loss;
                self.unreachable(now, host, &cause);
                self.outbox.settled(from, id, loss, cause);
            }
            Part::Settled(_, loss, cause) => self.settled(host, from, loss, cause),
            Part::Rest(_, loss, cause) => {
                if self.hosts[host.0 as usize].links.loss == loss {
                    self.fail_all(now, host, Failure::ConnectionLost, &cause);
                }
            }
            Part::Quarantine => {}
        }
    }

    /// Something about a host that is not known here: not yet, or not any more.
    #[cold]
    fn handed_unknown(&mut self, now: Instant, from: u8, id: u32, part: Part, frame: &mut [u8]) {
        match part {
            Part::Call(_) => self.outbox.unsent(from, id, frame),
            Part::Reply(_) => self.stats.upstream.stray[Stray::Late] += 1,
            // A two-way call would have kept the host known.
            Part::Unsent(_) => self.one_way_again(now, None, frame),
            Part::Up(_) => self.outbox.left(from, id),
            Part::Settled(_, loss, cause) => self.outbox.rest(from, id, loss, cause),
            _ => {}
        }
    }

    /// A call of another shard for a host of ours.
    fn handed_call(&mut self, now: Instant, from: u8, to: HostId, frame: &[u8]) {
        let sender = Sender::Shard(from);
        let host = &self.hosts[to.0 as usize];
        if !host.upstream.is_up() || host.links.owes(from) {
            return self.outbox.unsent(from, host.number(), frame);
        }
        if self.room(to, sender, frame.len()).is_err() {
            return self.outbox.full(from, host.number(), frame);
        }
        self.send(now, to, sender, Source::Copy, frame);
    }
}
