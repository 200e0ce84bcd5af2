//! Waiting for a condition, with a deadline.

use std::thread;
use std::time::{Duration, Instant};

use thin_sdk::{Client, State};

/// A point in time after which a test stops waiting.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// The point `within` from now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the harness drives real processes"
    )]
    pub fn after(within: Duration) -> Self {
        Self(Instant::now() + within)
    }

    /// How long is left; `None` once the point has passed.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the harness drives real processes"
    )]
    pub fn left(self) -> Option<Duration> {
        self.0
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
    }
}

/// Asks `probe` until it gives a value, and returns that.
///
/// # Panics
/// After `within`, saying `what` was awaited.
#[track_caller]
pub fn until<T>(what: &str, within: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::after(within);
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(deadline.left().is_some(), "no {what} within {within:?}");
        thread::sleep(PAUSE);
    }
}

/// Waits until the state of `client` is as `holds` wants it.
///
/// # Panics
/// After [`CLIENT_PATIENCE`], saying `what` was awaited and how it stands.
pub async fn until_state(what: &str, client: &Client, holds: impl Fn(&State) -> bool) {
    let looks = async {
        while !holds(&client.state()) {
            tokio::time::sleep(PAUSE).await;
        }
    };
    let within = tokio::time::timeout(CLIENT_PATIENCE, looks).await;
    assert!(within.is_ok(), "no {what}: {:?}", client.state());
}

/// Longest wait for a client's state.
pub const CLIENT_PATIENCE: Duration = Duration::from_secs(20);

/// Between two looks at a condition that cannot wake us.
const PAUSE: Duration = Duration::from_millis(5);
