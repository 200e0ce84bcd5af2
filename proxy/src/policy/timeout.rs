//! Until when a call is worth an answer.

use std::time::{Duration, Instant};

/// The answer must reach the caller before it gives up.
const HEADWAY: Duration = Duration::from_millis(20);

/// When we answer `UT`: 5 %, at most 20 ms, before the caller gives up.
///
/// The first that is there counts: what remains of the caller's own deadline (`_TO`), the call's
/// `timeout`, the service's; none is longer than `longest`. `None` if the time is over already.
pub(crate) fn deadline(
    now: Instant,
    remaining: Option<Duration>,
    timeout: Option<Duration>,
    service: Duration,
    longest: Duration,
) -> Option<Instant> {
    let timeout = remaining.or(timeout).unwrap_or(service).min(longest);
    if timeout.is_zero() {
        return None;
    }
    let headway = if timeout >= 20 * HEADWAY {
        HEADWAY
    } else {
        timeout / 20
    };
    Some(now + (timeout - headway))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_authority_counts() {
        #[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
        let now = Instant::now();
        let ms = |ms| Some(Duration::from_millis(ms));
        let wait = |remaining, timeout, service| {
            let (service, longest) = (Duration::from_millis(service), Duration::from_secs(10));
            deadline(now, remaining, timeout, service, longest).map(|at| (at - now).as_millis())
        };
        assert_eq!(wait(ms(100), ms(1000), 2000), Some(95));
        assert_eq!(wait(None, ms(1000), 2000), Some(980));
        assert_eq!(wait(None, None, 2000), Some(1980));
        assert_eq!(wait(ms(0), ms(1000), 2000), None);
        assert_eq!(wait(ms(u64::MAX), None, 2000), Some(9_980));
    }
}
