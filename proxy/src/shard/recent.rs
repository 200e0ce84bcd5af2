//! Requests that differ from an earlier one in their arguments alone, as most do: what such a one
//! says is known without reading it again.

use std::{collections::HashMap, time::Duration};

use dubbo_proto::{
    head::Serialization,
    hessian2::Limits,
    invocation::{self, Invocation, Scratch},
};

use crate::{call::ServiceId, config::fixed, model::Side};

/// Calls of a method in a row whose attachments were new, after which they are not remembered
/// again for a while: they carry something that no other call does, as the id of a trace.
const PATIENCE: u8 = 16;

/// The requests seen last, by the bytes that name their method. What is known of them holds until
/// the services change.
#[derive(Debug, Default)]
pub(super) struct Recent {
    seen: HashMap<Box<[u8]>, Seen, foldhash::fast::RandomState>,
}

/// What a request says beside its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// What it calls.
    pub(super) service: ServiceId,
    /// What is left of the caller's own time.
    pub(super) remaining: Option<Duration>,
    /// How long the caller waits.
    pub(super) timeout: Option<Duration>,
    /// Whether it may be sent again after it may have run.
    pub(super) idempotent: bool,
}

#[derive(Debug)]
struct Seen {
    side: Side,
    /// How many arguments stand between names and attachments.
    arity: usize,
    attachments: Vec<u8>,
    told: Told,
    /// Calls in a row that brought other attachments; runs over.
    misses: u8,
}

impl Recent {
    /// What a request says, if the same was said before: its names and its attachments are the
    /// same bytes, and its arguments can be walked over.
    #[inline]
    pub(super) fn find(
        &mut self,
        side: Side,
        serialization: Serialization,
        body: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
    ) -> Option<Told> {
        if serialization != Serialization::HESSIAN2 {
            return None;
        }
        let names = invocation::names(body)?;
        let seen = self.seen.get_mut(names)?;
        let rest = &body[names.len()..];
        let at = scratch.skip(rest, seen.arity, limits)?;
        if rest[at..] == *seen.attachments && seen.side == side {
            seen.misses = 0;
            return Some(seen.told);
        }
        seen.misses = seen.misses.wrapping_add(1);
        None
    }

    /// Remembers a request, if it is one whose bytes mean the same whenever they come.
    #[inline(never)]
    pub(super) fn learn(&mut self, side: Side, body: &[u8], call: &Invocation<'_>, told: Told) {
        let (names, attachments) = (call.arguments(), call.attachments.range());
        if names > fixed::METHOD
            || attachments.len() > fixed::METHOD
            || attachments.end != body.len()
        {
            return;
        }
        let known = self.seen.get_mut(&body[..names]);
        if known.as_ref().is_some_and(|seen| seen.misses > PATIENCE) {
            return;
        }
        // What a generic call calls stands in its arguments.
        let generic = call.method.starts_with(b"$invoke");
        if generic
            || !call.attachments.is_plain()
            || call.serialization() != Serialization::HESSIAN2
        {
            return;
        }
        let attachments = &body[attachments];
        if let Some(seen) = known {
            seen.attachments.clear();
            seen.attachments.extend_from_slice(attachments);
            (seen.side, seen.told) = (side, told);
            return;
        }
        if self.seen.len() >= fixed::METHODS {
            self.seen.clear();
        }
        let seen = Seen {
            side,
            arity: call.arity(),
            attachments: attachments.to_vec(),
            told,
            misses: 0,
        };
        self.seen.insert(body[..names].into(), seen);
    }

    /// Methods that are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }

    /// Forgets all, since a service changed.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }
}
