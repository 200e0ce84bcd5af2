//! Which sockets have news: each has a waker of its own, which notes its token and wakes the
//! driver once per batch.

use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use parking_lot::Mutex;

/// The tokens that were woken since the driver last looked.
#[derive(Debug, Default)]
pub(super) struct Ready {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tokens: Vec<Token>,
    driver: Option<Waker>,
}

/// Whose waker it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// The socket of the session at this index.
    Session(u32),
    /// The socket of the host at this index.
    Host(u32),
    /// Accepted connections.
    Accepted,
    /// Changes and orders.
    Control,
    /// Questions for counters.
    Scrape,
    /// Batches of other shards.
    Inbox,
    /// Dials that ended.
    Dials,
    /// The timer.
    Timer,
}

impl Token {
    /// What is looked at once before anything was woken: to leave the wakers there.
    pub(super) const ONCE: [Self; 6] = [
        Self::Accepted,
        Self::Control,
        Self::Scrape,
        Self::Inbox,
        Self::Dials,
        Self::Timer,
    ];
}

struct Noted {
    token: Token,
    ready: Arc<Ready>,
}

impl Ready {
    /// A waker that notes `token`.
    pub(super) fn waker(self: &Arc<Self>, token: Token) -> Waker {
        Arc::new(Noted {
            token,
            ready: Arc::clone(self),
        })
        .into()
    }

    /// Notes a token, as its waker does.
    pub(super) fn note(&self, token: Token) {
        let mut state = self.state.lock();
        state.tokens.push(token);
        if state.tokens.len() == 1
            && let Some(driver) = state.driver.take()
        {
            drop(state);
            driver.wake();
        }
    }

    /// Swaps what was noted with `tokens`, which must be empty. Pending while nothing was.
    pub(super) fn poll(&self, cx: &mut Context<'_>, tokens: &mut Vec<Token>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.tokens.is_empty() {
            state.driver = Some(cx.waker().clone());
            return Poll::Pending;
        }
        std::mem::swap(&mut state.tokens, tokens);
        Poll::Ready(())
    }

    /// Moves what was noted to `tokens`.
    pub(super) fn take(&self, tokens: &mut Vec<Token>) {
        tokens.append(&mut self.state.lock().tokens);
    }
}

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.note(self.token);
    }
}
