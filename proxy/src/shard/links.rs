//! What the other shards know of a host of ours, so that none of them takes a call for lost that is
//! still on its way here.
//!
//! ```text
//!             Up                    Lost
//! unlinked ───────────> linked ───────────────> owing
//!   ▲  ▲      Left        │                       │
//!   │  └──────────────────┘                       │
//!   └─────────────────────────────────────────────┘
//!                Settled (answered by Rest)
//! ```
//!
//! Only a shard that was told that the host is up hands calls over. When the connection is lost, it
//! says that it knows; its calls before that come back unsent, and what has not come back by then
//! may have run. A host is not forgotten while a shard is linked or owes: that one may still have
//! calls for it. Each `Lost` is settled once, whether the host is known there or not any more.

use super::machine::Core;
use crate::call::HostId;

/// How far the other shards know the host, each as a bit: a proxy has at most 64.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Links {
    linked: u64,
    owing: u64,
}

impl Links {
    /// Whether no shard will hand a call over, or waits for an answer.
    pub(super) fn is_empty(self) -> bool {
        self.linked | self.owing == 0
    }

    /// Whether a shard may not know yet that the connection is lost that it was told of last.
    pub(super) fn owes(self, shard: u8) -> bool {
        self.owing & bit(shard) != 0
    }

    fn link(&mut self, shard: u8) {
        self.linked |= bit(shard);
    }

    /// The connection is lost: whether the shard was told that it is up, and now has to settle.
    pub(super) fn lose(&mut self, shard: u8) -> bool {
        let linked = self.linked & bit(shard);
        self.linked &= !linked;
        self.owing |= linked;
        linked != 0
    }

    /// Whether the shard had to.
    fn settle(&mut self, shard: u8) -> bool {
        let owed = self.owes(shard);
        self.owing &= !bit(shard);
        owed
    }

    fn leave(&mut self, shard: u8) {
        self.linked &= !bit(shard);
    }

    /// What shards owe may have been overheard: they are to be told again.
    pub(super) fn doubt(&mut self) {
        self.linked |= std::mem::take(&mut self.owing);
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
        for shard in self.outbox.others() {
            match host.links.lose(shard) {
                true => self.outbox.lost(shard, host.number(), cause),
                false => self.outbox.down(shard, host.number(), cause),
            }
        }
    }

    /// A shard has seen that a host was lost: all that it sent there is back, or was sent.
    pub(super) fn settled(&mut self, id: HostId, shard: u8, cause: String) {
        let host = &mut self.hosts[id.0 as usize];
        if !host.links.settle(shard) {
            return;
        }
        self.outbox.rest(shard, host.number(), cause);
        self.tell_up(id, shard);
        self.forget_if_unused(id);
    }

    /// A shard does not know a host any more.
    pub(super) fn left(&mut self, id: HostId, shard: u8) {
        self.hosts[id.0 as usize].links.leave(shard);
        self.forget_if_unused(id);
    }
}
