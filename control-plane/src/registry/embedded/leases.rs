//! Which registrations end when: a machine that is told the time.

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use dubbo_proto::key::ServiceKey;

/// One instance, as it is removed.
pub(super) type Name = (ServiceKey, SocketAddr);

/// The registrations that end unless they are renewed.
#[derive(Debug, Default)]
pub(super) struct Leases {
    ends: HashMap<Arc<Name>, Instant>,
    /// Every one of `ends`, by time.
    by_end: BTreeSet<(Instant, Arc<Name>)>,
}

impl Leases {
    /// Begins the lease of `name` anew, or ends it without a word where there is no `ttl`.
    pub(super) fn set(&mut self, now: Instant, name: Name, ttl: Option<Duration>) {
        self.remove(&name);
        if let Some(ttl) = ttl {
            let (end, name) = (now + ttl, Arc::new(name));
            self.ends.insert(Arc::clone(&name), end);
            self.by_end.insert((end, name));
        }
    }

    /// Forgets the lease of `name`.
    pub(super) fn remove(&mut self, name: &Name) {
        if let Some((name, end)) = self.ends.remove_entry(name) {
            self.by_end.remove(&(end, name));
        }
    }

    /// When the next one ends.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.by_end.first().map(|(end, _)| *end)
    }

    /// Those that have ended, the first `most` of them. They stay until they are removed.
    pub(super) fn ended(&self, now: Instant, most: usize) -> Vec<Name> {
        let ended = self.by_end.iter().take_while(|(end, _)| *end <= now);
        ended
            .take(most)
            .map(|(_, name)| Name::clone(name))
            .collect()
    }
}

/// The time in which leases run: the real one, less what the process did not see of it because the
/// machine or the disk stood still. Renewals could not be taken in then either.
#[derive(Debug)]
pub(super) struct Clock {
    real: Instant,
    shown: Instant,
}

impl Clock {
    pub(super) fn new(real: Instant) -> Self {
        Self { real, shown: real }
    }

    /// The time after a wait that was to end after `wait` at the latest.
    pub(super) fn after(&mut self, wait: Duration, real: Instant) -> Instant {
        let passed = real.saturating_duration_since(self.real);
        self.real = real;
        self.shown += passed.min(wait + LATE);
        self.shown
    }
}

/// How late a wait may end on a busy machine that does not stand still.
const LATE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    fn name(port: u16) -> Name {
        let service = "a".parse().expect("a key");
        (service, ([10, 0, 0, 1], port).into())
    }

    fn start() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "a time to count from")]
        Instant::now()
    }

    #[test]
    fn a_lease_ends_when_it_was_last_renewed_for() {
        let (mut leases, start) = (Leases::default(), start());
        let at = |s| start + Duration::from_secs(s);
        let ttl = Some(Duration::from_secs(10));
        leases.set(at(0), name(1), ttl);
        leases.set(at(5), name(2), ttl);
        leases.set(at(6), name(1), ttl);
        assert_eq!(leases.next_end(), Some(at(15)));
        assert_eq!(leases.ended(at(14), 9), []);
        assert_eq!(leases.ended(at(16), 9), [name(2), name(1)]);
        assert_eq!(leases.ended(at(16), 1), [name(2)]);
        leases.remove(&name(2));
        // One that is registered without a time from now on never ends.
        leases.set(at(7), name(1), None);
        assert_eq!((leases.next_end(), leases.ended(at(99), 9)), (None, vec![]));
    }

    #[test]
    fn leases_do_not_run_while_the_process_stands_still() {
        let start = start();
        let mut clock = Clock::new(start);
        let second = Duration::from_secs(1);
        assert_eq!(clock.after(second, start + second / 2), start + second / 2);
        assert_eq!(
            clock.after(second, start + 60 * second),
            start + second / 2 + second + LATE
        );
        // Nor do they run backwards.
        assert_eq!(
            clock.after(second, start),
            start + second / 2 + second + LATE
        );
    }
}
