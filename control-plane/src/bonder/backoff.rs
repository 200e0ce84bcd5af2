//! How long to wait before what failed is tried again.

use std::time::Duration;

/// Waits that double from the first to the longest, each cut by a random part of up to a half, so
/// that who failed together does not come back together.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Waits between `first` and `longest`.
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// The next wait; `random` is any number.
    pub(super) fn next(&mut self, random: u64) -> Duration {
        let half = self.next / 2;
        self.next = (self.next * 2).min(self.longest);
        let share = random as f64 / u64::MAX as f64;
        half + half.mul_f64(share)
    }

    /// Starts anew, as after a try that lasted.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}
