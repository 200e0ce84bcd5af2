//! What one call has been through, and whom it may go to next.

use std::net::SocketAddr;
use std::time::Instant;

use crate::error::{Error, Executed, Unsent};
use crate::failover::{Ending, Next, Route, Tries};
use crate::shared::Way;

/// What one call has been through.
#[derive(Debug)]
pub(crate) struct Journey {
    pub(crate) next: Next,
    /// Providers that it went to in vain, in this round.
    pub(crate) tried: Vec<SocketAddr>,
    tries: Tries,
    /// Rounds to all providers that are over.
    rounds: u32,
    /// When those that it went to may be tried again.
    pub(crate) again_at: Option<Instant>,
    /// Whether a connection closed under it that was no fault of its provider.
    closed: bool,
    /// Why it is not over yet.
    last: Option<Error>,
}

impl Journey {
    pub(crate) fn new() -> Self {
        Self {
            next: Next::Route,
            tried: Vec::new(),
            tries: Tries::default(),
            rounds: 0,
            again_at: None,
            closed: false,
            last: None,
        }
    }

    /// An attempt that went this way ended without an answer.
    pub(crate) fn been(&mut self, way: &Way, ending: Ending, error: &Error) {
        match way.route {
            // What was not sent did no harm, and pauses bound it.
            _ if ending == Ending::Unsent => {}
            Route::Direct => self.tries.direct += 1,
            _ => self.tries.sidecar += 1,
        }
        let Some(provider) = way.provider else { return };
        // A connection that closed just then does not tell against the provider, once.
        let closed = *error == Error::NotSent(Unsent::Closed);
        if closed && !self.closed {
            self.closed = true;
        } else {
            self.tried.push(provider);
        }
    }

    /// What follows; see [`Ending::next`].
    pub(crate) fn decide(
        &mut self,
        ending: Ending,
        by: Route,
        idempotent: bool,
        known: bool,
    ) -> Next {
        self.next = ending.next(by, self.tries, idempotent, known);
        self.next
    }

    /// A round is over; `until` says when the next may begin, told how many were over before.
    pub(crate) fn pause(&mut self, until: impl FnOnce(u32) -> Instant) {
        self.again_at = Some(until(self.rounds));
        self.rounds += 1;
    }

    /// Begins another round if it is time.
    pub(crate) fn look(&mut self, now: Instant) {
        if self.again_at.take_if(|at| now >= *at).is_some() {
            self.tried.clear();
        }
    }

    /// It goes on after `error`.
    pub(crate) fn goes_on(&mut self, error: Error) {
        self.last = Some(self.verdict(error));
    }

    /// It can go nowhere.
    pub(crate) fn stranded(&mut self) -> Error {
        self.last.take().unwrap_or(Error::NotSent(Unsent::Nowhere))
    }

    /// What to say when it fails with `error`: not that it did not run, if an earlier attempt may
    /// have.
    pub(crate) fn verdict(&mut self, error: Error) -> Error {
        let earlier = self.last.take();
        let earlier = earlier.filter(|earlier| earlier.executed() != Executed::No);
        match error.executed() {
            Executed::No => earlier.unwrap_or(error),
            _ => error,
        }
    }
}
