//! How long a change waits for the next one of its service: a machine that is told the time.
//!
//! A service that starts changes a hundred times within a second, and each change that is told costs
//! every proxy of its consumers. So a change waits until its service was quiet for [`QUIET`], but
//! never longer than [`LONGEST`] after the first that was held back.
//!
//! ```text
//!            put              put (again)             QUIET passed, or
//! (nothing) ─────> waiting ──────────────> waiting ── LONGEST since the first ──> taken
//!                due = QUIET       due = min(QUIET from now, LONGEST from the first)
//! ```

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use dubbo_proto::key::ServiceKey;

use crate::registry::Change;

/// The changes that are held back, of each service the newest.
#[derive(Debug, Default)]
pub struct Coalesce {
    waiting: HashMap<ServiceKey, Waiting>,
    /// Every one of `waiting`, by when it is due.
    due: BTreeSet<(Instant, ServiceKey)>,
}

#[derive(Debug)]
struct Waiting {
    change: Change,
    due: Instant,
    latest: Instant,
}

/// How urgent a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Somebody waits for it: the first that is heard of a service.
    AtOnce,
    /// It may be followed by others.
    Gathered,
}

impl Coalesce {
    /// Holds back `change` in place of the one of before.
    pub fn put(&mut self, now: Instant, service: ServiceKey, change: Change, pace: Pace) {
        let before = self.waiting.get(&service);
        let latest = before.map_or(now + LONGEST, |waiting| waiting.latest);
        let due = match pace {
            Pace::AtOnce => now,
            Pace::Gathered => latest.min(now + QUIET),
        };
        let waiting = Waiting {
            change,
            due,
            latest,
        };
        self.due.insert((due, service.clone()));
        // Both may be due at the same time, and are then one.
        let replaced = self.waiting.insert(service.clone(), waiting);
        if let Some(replaced) = replaced.filter(|replaced| replaced.due != due) {
            self.due.remove(&(replaced.due, service));
        }
    }

    /// Forgets what waits of `service`.
    pub fn forget(&mut self, service: &ServiceKey) {
        if let Some(waiting) = self.waiting.remove(service) {
            self.due.remove(&(waiting.due, service.clone()));
        }
    }

    /// When the next change is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Takes out one that is due, the longest due first.
    pub fn take(&mut self, now: Instant) -> Option<(ServiceKey, Change)> {
        let (due, _) = self.due.first()?;
        if *due > now {
            return None;
        }
        let (_, service) = self.due.pop_first()?;
        let waiting = self.waiting.remove(&service)?;
        Some((service, waiting.change))
    }
}

/// How long a service must be quiet: an application registers its services one after another, some
/// milliseconds apart.
pub const QUIET: Duration = Duration::from_millis(20);
/// Longest time that a change is held back, however restless its service is.
pub const LONGEST: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ServiceKey {
        text.parse().expect("a key")
    }

    /// A machine, and a clock that says milliseconds since its start.
    fn start() -> (Coalesce, impl Fn(u64) -> Instant) {
        #[expect(clippy::disallowed_methods, reason = "a time to count from")]
        let start = Instant::now();
        (Coalesce::default(), move |ms| {
            start + Duration::from_millis(ms)
        })
    }

    fn some() -> Change {
        Change::Set([].into())
    }

    #[test]
    fn a_change_waits_until_its_service_is_quiet() {
        let (mut machine, at) = start();
        machine.put(at(0), key("a"), some(), Pace::Gathered);
        machine.put(at(15), key("a"), Change::Gone, Pace::Gathered);
        assert_eq!(machine.take(at(34)), None);
        assert_eq!(machine.next_due(), Some(at(35)));
        assert_eq!(machine.take(at(35)), Some((key("a"), Change::Gone)));
        assert_eq!((machine.next_due(), machine.take(at(999))), (None, None));
    }

    #[test]
    fn a_restless_service_is_told_of_after_the_longest_time() {
        let (mut machine, at) = start();
        for ms in (0..=190).step_by(10) {
            assert_eq!(machine.take(at(ms)), None, "{ms}");
            machine.put(at(ms), key("a"), some(), Pace::Gathered);
        }
        assert_eq!(machine.next_due(), Some(at(200)));
        assert!(machine.take(at(200)).is_some());
        // The next one is held back anew.
        machine.put(at(201), key("a"), some(), Pace::Gathered);
        assert_eq!(machine.next_due(), Some(at(221)));
    }

    #[test]
    fn the_first_is_told_at_once_and_no_service_waits_for_another() {
        let (mut machine, at) = start();
        machine.put(at(0), key("b"), some(), Pace::Gathered);
        machine.put(at(5), key("a"), some(), Pace::AtOnce);
        assert_eq!(machine.take(at(5)), Some((key("a"), some())));
        assert_eq!(machine.take(at(5)), None);
        // Somebody waits for what was held back.
        machine.put(at(6), key("b"), Change::Gone, Pace::AtOnce);
        assert_eq!(machine.take(at(6)), Some((key("b"), Change::Gone)));
        assert_eq!(machine.next_due(), None);
    }

    #[test]
    fn what_is_forgotten_is_never_told() {
        let (mut machine, at) = start();
        machine.put(at(0), key("a"), some(), Pace::Gathered);
        machine.forget(&key("a"));
        machine.forget(&key("b"));
        assert_eq!((machine.next_due(), machine.take(at(999))), (None, None));
    }
}
