//! What the other shards know of a host of ours, so that none of them takes a call for lost that is
//! still on its way here.
//!
//! ```text
//!             Up                    Lost
//! unlinked ───────────> linked ───────────────> owing
//!   ▲  ▲      Left        │                       │
//!   │  └──────────────────┘                       │
//!   └─────────────────────────────────────────────┘
//!                Settled (answered by Rest), Left
//! ```
//!
//! Only a shard that was told that the host is up hands calls over. When the connection is lost, it
//! says that it knows; its calls before that come back unsent, and what has not come back by then
//! may have run. A host is not forgotten while a shard is linked or owes: that one may still have
//! calls for it. Losses have numbers, for a shard may have left and come again meanwhile.

use super::machine::Core;
use crate::call::HostId;

/// How far the other shards know a host of ours, each as a bit: a proxy has at most 64.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Links {
    linked: u64,
    owing: u64,
    /// The loss that was told last; of another shard's host the one that was heard, until it is up
    /// again.
    pub(super) loss: Loss,
}

/// Which loss of a connection it is, of all of the shard that owned it; 0 for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Loss(u64);

impl Links {
    /// Whether no shard will hand a call over, or waits for an answer.
    pub(super) fn is_empty(self) -> bool {
        self.linked | self.owing == 0
    }

    /// Whether a shard may not know yet that the connection is lost that it was told of last.
    pub(super) fn owes(self, shard: u8) -> bool {
        self.owing & bit(shard) != 0
    }

    /// The connection is lost: all that were told of it, or of one before, have to settle.
    fn lose(&mut self, loss: Loss) {
        self.owing |= self.linked;
        self.linked = 0;
        self.loss = loss;
    }

    fn link(&mut self, shard: u8) {
        self.linked |= bit(shard);
    }

    fn leave(&mut self, shard: u8) {
        self.linked &= !bit(shard);
        self.owing &= !bit(shard);
    }
}

fn bit(shard: u8) -> u64 {
    1 << (shard % 64)
}

impl Core {
    /// Tells a shard that a host takes calls, if it does, and the shard has settled what was.
    pub(super) fn tell_up(&mut self, id: HostId, shard: u8) {
        let host = &mut self.hosts[id.0 as usize];
        if host.upstream.is_ready() && !host.links.owes(shard) {
            host.links.link(shard);
            self.outbox.up(shard, host.number());
        }
    }

    /// Tells every other shard that a host takes calls.
    pub(super) fn tell_all_up(&mut self, id: HostId) {
        for shard in self.outbox.others() {
            self.tell_up(id, shard);
        }
    }

    /// Tells every other shard that a host takes no calls, and why.
    pub(super) fn tell_all_down(&mut self, id: HostId, cause: &str) {
        let host = &mut self.hosts[id.0 as usize];
        self.losses.0 += 1;
        host.links.lose(self.losses);
        for shard in self.outbox.others() {
            match host.links.owes(shard) {
                true => self.outbox.lost(shard, host.number(), self.losses, cause),
                false => self.outbox.down(shard, host.number(), cause),
            }
        }
    }

    /// A shard has seen that a host was lost: all that it sent there is back, or was sent.
    pub(super) fn settled(&mut self, id: HostId, shard: u8, loss: Loss, cause: String) {
        let host = &mut self.hosts[id.0 as usize];
        self.outbox.rest(shard, host.number(), loss, cause);
        if host.links.loss == loss && host.links.owes(shard) {
            host.links.leave(shard);
            self.tell_up(id, shard);
            self.forget_if_unused(id);
        }
    }

    /// A shard does not know a host any more.
    pub(super) fn left(&mut self, id: HostId, shard: u8) {
        self.hosts[id.0 as usize].links.leave(shard);
        self.forget_if_unused(id);
    }
}
