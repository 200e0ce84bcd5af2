//! How long to wait between two dials.

use std::time::Duration;

/// Waits that double from the first to the longest, each cut by a random part of up to a half, so
/// that proxies which lost the same host do not come back together.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Waits between `first` and `longest`.
    pub(crate) fn new((first, longest): (Duration, Duration)) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// The next wait; `random` is any number.
    pub(crate) fn next(&mut self, random: u64) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.longest);
        let half = full / 2;
        let part = u32::try_from(random >> 32).unwrap_or(0);
        half + Duration::from_nanos(
            u64::try_from((half.as_nanos() * u128::from(part)) >> 32).unwrap_or(0),
        )
    }

    /// Starts anew, as after a connection that lasted.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_within_their_bounds() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new((ms(50), ms(300)));
        let longest: Vec<_> = (0..5).map(|_| backoff.next(u64::MAX).as_millis()).collect();
        assert_eq!(longest, [49, 99, 199, 299, 299]);
        backoff.reset();
        assert_eq!(backoff.next(0), ms(25));
    }
}
