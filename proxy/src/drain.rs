//! How the proxy ends: named phases, each bounded, each visible.
//!
//! ```text
//! Running ─> NotReady ─> StopAccepting ─> FinishCalls ─> CloseUpstreams ─> Flush ─> Ended
//!    └──────────┴──────────────┴───────────────┴───────────────┴──── skip ───────────▲
//! ```
//! A [`Drain`] holds two phases: the one that is reached, and the one that is wanted. `POST
//! /drain_listeners` wants [`Phase::StopAccepting`] and no more; a signal or `POST /quitquitquit`
//! wants [`Phase::Ended`]. One task walks the phases with [`Drain::pass`]; anybody may hold a clone
//! to ask, to wait or to begin.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::sync::watch;

/// The handle. Clones share their state.
#[derive(Debug, Clone)]
pub struct Drain(Arc<watch::Sender<State>>);

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Phase {
    /// Not at all.
    #[default]
    Running,
    /// `/ready` says no, so that nobody new is sent here.
    NotReady,
    /// No connection is accepted any more; peers are told by READONLY.
    StopAccepting,
    /// Calls in flight get their answers.
    FinishCalls,
    /// The connections to providers are closed.
    CloseUpstreams,
    /// What is counted and logged is written out.
    Flush,
    /// Nothing is left to do.
    Ended,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    reached: Phase,
    wanted: Phase,
}

impl Drain {
    /// A handle of a proxy that runs.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(State::default())))
    }

    /// How far it has come.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.0.borrow().reached
    }

    /// How far it shall come.
    #[must_use]
    pub fn wanted(&self) -> Phase {
        self.0.borrow().wanted
    }

    /// Walks to the end. Says whether that was new: a second signal may then [`Self::skip`].
    pub fn begin(&self) -> bool {
        self.want(Phase::Ended)
    }

    /// Walks as far as [`Phase::StopAccepting`] and stays there. Says whether that was new.
    pub fn begin_listeners(&self) -> bool {
        self.want(Phase::StopAccepting)
    }

    /// Jumps to the end: whatever is waited for is given up.
    pub fn skip(&self) {
        self.0.send_modify(|state| {
            *state = State {
                reached: Phase::Ended,
                wanted: Phase::Ended,
            };
        });
    }

    /// Waits until `phase` or a later one is reached. Cancel safe.
    pub async fn reached(&self, phase: Phase) {
        self.wait(|state| state.reached >= phase).await;
    }

    /// Takes one step: waits until `phase` is wanted, enters it, and stays in it until `work` is
    /// done, `bound` is over or the end was skipped to. `None` if the work was given up.
    ///
    /// Not cancel safe: the phase stays entered.
    pub async fn pass<T>(
        &self,
        phase: Phase,
        bound: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        self.wait(|state| state.wanted >= phase).await;
        if !self.enter(phase) {
            return None;
        }
        tracing::info!(phase = phase.as_str(), "draining");
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.reached(Phase::Ended), if phase < Phase::Ended => None,
            () = tokio::time::sleep(bound) => {
                tracing::warn!(phase = phase.as_str(), "drain phase cut short at its bound");
                None
            }
        }
    }

    fn want(&self, phase: Phase) -> bool {
        self.0.send_if_modified(|state| {
            let new = state.wanted < phase;
            state.wanted = state.wanted.max(phase);
            new
        })
    }

    fn enter(&self, phase: Phase) -> bool {
        self.0.send_if_modified(|state| {
            let new = state.reached < phase;
            state.reached = state.reached.max(phase);
            new
        })
    }

    async fn wait(&self, until: impl FnMut(&State) -> bool) {
        let mut state = self.0.subscribe();
        let seen = state.wait_for(until).await;
        debug_assert!(seen.is_ok(), "self holds the sender");
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl Phase {
    /// As logs and the admin pages write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::NotReady => "not_ready",
            Self::StopAccepting => "stop_accepting",
            Self::FinishCalls => "finish_calls",
            Self::CloseUpstreams => "close_upstreams",
            Self::Flush => "flush",
            Self::Ended => "ended",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn listeners_alone_drain_until_the_end_is_wanted() {
        let drain = Drain::new();
        let walker = drain.clone();
        let walk = tokio::spawn(async move {
            for phase in [
                Phase::NotReady,
                Phase::StopAccepting,
                Phase::FinishCalls,
                Phase::Ended,
            ] {
                walker.pass(phase, LONG, async {}).await;
            }
        });
        assert!(drain.begin_listeners());
        assert!(!drain.begin_listeners(), "not new");
        drain.reached(Phase::StopAccepting).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(drain.phase(), Phase::StopAccepting);
        assert!(drain.begin());
        drain.reached(Phase::Ended).await;
        assert!(walk.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_phase_ends_with_its_work_or_its_bound() {
        let drain = Drain::new();
        drain.begin();
        assert_eq!(
            drain.pass(Phase::NotReady, LONG, async { 7 }).await,
            Some(7)
        );
        let never = std::future::pending::<()>();
        assert_eq!(drain.pass(Phase::FinishCalls, LONG, never).await, None);
        assert_eq!(drain.phase(), Phase::FinishCalls);
    }

    #[tokio::test]
    async fn a_second_signal_ends_what_is_waited_for() {
        let drain = Drain::new();
        assert!(drain.begin());
        let walker = drain.clone();
        let walk = tokio::spawn(async move {
            walker
                .pass(Phase::FinishCalls, LONG, std::future::pending::<()>())
                .await
        });
        drain.reached(Phase::FinishCalls).await;
        assert!(!drain.begin());
        drain.skip();
        assert_eq!(walk.await.ok(), Some(None));
        assert_eq!(
            drain.pass(Phase::Flush, LONG, async {}).await,
            None,
            "behind the end"
        );
    }
}
