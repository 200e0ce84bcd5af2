//! Times of calls, in fixed buckets.

use std::time::Duration;

/// How many observations took how long. Plain integers: an observation allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// Observations per bucket, not cumulated; the last holds what is above [`Self::BOUNDS`].
    counts: [u64; BUCKETS + 1],
    sum_nanos: u64,
}

impl Histogram {
    /// Upper ends of the buckets, inclusive.
    ///
    /// Calls take from a fraction of a millisecond (same host) to the default timeout of Java's
    /// consumers (1 s) and ours (60 s); two or three steps for each power of ten tell a doubling.
    pub const BOUNDS: [Duration; BUCKETS] = [
        Duration::from_micros(250),
        Duration::from_micros(500),
        Duration::from_millis(1),
        Duration::from_micros(2500),
        Duration::from_millis(5),
        Duration::from_millis(10),
        Duration::from_millis(25),
        Duration::from_millis(50),
        Duration::from_millis(100),
        Duration::from_millis(250),
        Duration::from_millis(500),
        Duration::from_secs(1),
        Duration::from_millis(2500),
        Duration::from_secs(5),
        Duration::from_secs(10),
        Duration::from_secs(30),
        Duration::from_secs(60),
    ];

    /// Counts one observation.
    #[inline]
    pub fn observe(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Most calls are quick: they end in the first buckets.
        let bucket = NANOS.iter().position(|bound| nanos <= *bound);
        self.counts[bucket.unwrap_or(BUCKETS)] += 1;
        self.sum_nanos = self.sum_nanos.saturating_add(nanos);
    }

    /// Adds the observations of another.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        self.sum_nanos = self.sum_nanos.saturating_add(other.sum_nanos);
    }

    /// Observations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All observations together, in seconds.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum_nanos as f64 / 1e9
    }

    /// Each bound in seconds, with the observations up to it.
    pub fn cumulated(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        Self::BOUNDS
            .iter()
            .zip(self.counts)
            .scan(0, |below, (bound, count)| {
                *below += count;
                Some((bound.as_secs_f64(), *below))
            })
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS + 1],
            sum_nanos: 0,
        }
    }
}

const BUCKETS: usize = 17;

/// The bounds in nanoseconds.
const NANOS: [u64; BUCKETS] = {
    let mut nanos = [0; BUCKETS];
    let mut at = 0;
    while at < BUCKETS {
        let bound = Histogram::BOUNDS[at];
        nanos[at] = bound.as_secs() * 1_000_000_000 + bound.subsec_nanos() as u64;
        at += 1;
    }
    nanos
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_is_in_the_first_bucket_that_holds_it() {
        let mut histogram = Histogram::default();
        for took in [
            Duration::ZERO,
            Duration::from_micros(250),
            Duration::from_nanos(250_001),
            Duration::from_secs(60),
            Duration::from_secs(61),
        ] {
            histogram.observe(took);
        }
        let cumulated: Vec<_> = histogram.cumulated().collect();
        assert_eq!(cumulated[..2], [(0.000_25, 2), (0.0005, 3)]);
        assert_eq!(cumulated[16], (60.0, 4), "61 s is above every bound");
        assert_eq!(histogram.count(), 5);
        assert!((histogram.sum() - 121.000_500_001).abs() < 1e-9);
    }

    #[test]
    fn the_bounds_rise() {
        assert!(Histogram::BOUNDS.is_sorted());
    }
}
