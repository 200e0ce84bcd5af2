//! Services that nobody named before a call did: they are asked for, and their calls wait.
//!
//! A call that waits stands in the table like one that waits for a host, with a copy of its frame.
//! When it is told what the service is, the copy enters like a frame that was just read; so every
//! waiter of a service is served, by its policy and within the time that its caller gave it.

use std::time::Instant;

use dubbo_proto::{
    head::{HEAD_LEN, ID, RequestId},
    invocation::Invocation,
    key::{KeyRef, ServiceKey},
};

use super::{
    answers::Refusal,
    machine::{Action, Attempt, Core, Of, Source},
    output::head_at,
    services::{Asked, Services},
};
use crate::{
    call::{Failure, ServiceId},
    mesh::Name,
    model::Side,
};

impl Services {
    /// The place of a service that no owner has named yet, and what there is to ask for. The path
    /// comes first, then the interface, as in [`Self::find`].
    #[cold]
    pub(super) fn ask(
        &mut self,
        side: Side,
        call: &Invocation<'_>,
    ) -> Result<(ServiceId, Option<Action>), Refusal> {
        if self.may_ask == 0 || side == Side::Inbound {
            return Err(Refusal::unknown(call));
        }
        let (group, version) = (call.group().to_utf8(), call.version().to_utf8());
        for name in [call.path().to_utf8(), call.interface().to_utf8()] {
            let key = KeyRef::new(&group, &name, &version);
            let known = self.place_of(key);
            match known.map(|id| (id, self.get(id).asked)) {
                Some((_, Asked::Absent)) => continue,
                Some((id, Asked::Waiting)) => return Ok((id, None)),
                Some((_, Asked::No | Asked::Known)) | None => {}
            }
            let Some(key) = to_ask(key) else { continue };
            if self.asked >= self.may_ask {
                return Err(Refusal::TooManyServices);
            }
            let id = self.place(&Name::Key(key.clone()));
            self.note(id, Asked::Waiting);
            return Ok((id, Some(Action::Subscribe(key))));
        }
        Err(Refusal::unknown(call))
    }

    /// Notes how far a service is from being known. Those that calls asked for are counted.
    pub(super) fn note(&mut self, id: ServiceId, asked: Asked) {
        let before = std::mem::replace(&mut self.get_mut(id).asked, asked);
        self.asked += usize::from(asked != Asked::No);
        self.asked -= usize::from(before != Asked::No);
    }
}

impl Core {
    /// Whether a call is held until it is known what its service is.
    pub(super) fn is_asked(&self, service: ServiceId) -> bool {
        self.services.get(service).asked == Asked::Waiting
    }

    /// What was asked for is told: the calls that wait for it enter anew.
    #[cold]
    pub(super) fn enter_again(&mut self, now: Instant, service: ServiceId) {
        let held = std::mem::take(&mut self.services.get_mut(service).held);
        for id in held {
            self.enter_one(now, id);
        }
    }

    fn enter_one(&mut self, now: Instant, id: RequestId) {
        let waits = self.calls.get(id).is_some_and(|attempt| match &attempt.of {
            Of::Call(call) => call.held,
            Of::Primary(_) => false,
        });
        if !waits {
            return;
        }
        let Some(mut call) = self.finish(id) else {
            return;
        };
        let Some(mut copy) = call.copy.take() else {
            return;
        };
        // It may have been on its way under an id of ours.
        if let Some(id) = copy.get_mut(ID) {
            id.copy_from_slice(&call.id.0.to_be_bytes());
        }
        let (session, side) = (call.session, self.side(call.session));
        if let Some(head) = head_at(&copy, 0) {
            // By the time that it came: the wait is part of what its caller gave it.
            match self.call(call.started, session, side, &head, &copy[HEAD_LEN..]) {
                Ok(call) if call.deadline <= now => {
                    let wait = now.saturating_duration_since(call.started).as_millis();
                    let details = format_args!("its service was known after {wait} ms only");
                    self.fail(call, Failure::Timeout, details);
                }
                Ok(call) => self.attempt(now, call, Source::Copy, &mut copy),
                Err(refusal) => self.refuse(session, &head, refusal),
            }
        }
        self.recycle(Some(copy));
        self.session_flushed(session);
    }

    /// Lets places go whose services nobody names any more, and no call.
    pub(super) fn reclaim(&mut self) {
        if self.services.gone.is_empty() {
            return;
        }
        let mut used: Vec<ServiceId> = Vec::new();
        for (_, attempt) in self.calls.iter() {
            let Attempt {
                of: Of::Call(call), ..
            } = attempt
            else {
                continue;
            };
            used.push(call.service);
        }
        used.sort_unstable();
        used.dedup();
        let mut gone = std::mem::take(&mut self.services.gone);
        // One that went twice while a call was for it gives its place back once.
        gone.sort_unstable();
        gone.dedup();
        for id in gone {
            let service = self.services.get(id);
            if service.route.is_some() || service.asked != Asked::No {
                continue;
            }
            if used.binary_search(&id).is_ok() {
                self.services.gone.push(id);
            } else {
                self.services.free(id);
            }
        }
    }
}

/// A key of the wire as one that can be asked for, if it is one at all.
fn to_ask(key: KeyRef<'_>) -> Option<ServiceKey> {
    let parsed = mesh_proto::names::key(&key.to_string());
    parsed.ok().filter(|parsed| key == *parsed)
}
