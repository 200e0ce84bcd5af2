//! Connections to providers, one each, and whose turn it is.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dubbo_proto::key::ServiceKey;
use fastrand::Rng;

use crate::connection::{Connection, Options};
use crate::failover::Cause;

/// The providers that calls go to direct.
#[derive(Debug)]
pub(crate) struct Pool {
    options: Options,
    hosts: HashMap<SocketAddr, Host>,
    /// How many hosts there may be before those that are of no use are looked for.
    sweep_at: usize,
    /// Whose turn it is, per service. Starts anywhere, so that not every process begins with the
    /// same provider.
    turns: HashMap<ServiceKey, usize>,
}

#[derive(Debug, Default)]
struct Host {
    connection: Option<Connection>,
    /// Until when it is avoided: it could not be reached, takes no new calls, or fell silent.
    avoid: Option<Instant>,
}

impl Pool {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            hosts: HashMap::new(),
            sweep_at: SWEEP,
            turns: HashMap::new(),
        }
    }

    /// The provider whose turn it is, of those that are not in `tried`; one that is avoided only if
    /// there is no other.
    pub(crate) fn pick(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        key: &ServiceKey,
        providers: &[SocketAddr],
        tried: &[SocketAddr],
    ) -> Option<SocketAddr> {
        let len = providers.len();
        if len == 0 {
            return None;
        }
        let turn = match self.turns.get_mut(key) {
            Some(turn) => {
                *turn = turn.wrapping_add(1);
                *turn
            }
            None => {
                let first = rng.usize(..len);
                self.turns.insert(key.clone(), first);
                first
            }
        };
        let in_turn = (0..len).map(|step| providers[(turn.wrapping_add(step)) % len]);
        let left = in_turn.filter(|address| !tried.contains(address));
        let mut avoided = None;
        for address in left {
            let host = self.hosts.get_mut(&address);
            if !host.is_some_and(|host| host.is_avoided(now)) {
                return Some(address);
            }
            avoided = avoided.or(Some(address));
        }
        avoided
    }

    /// The connection to a provider, made if there is none.
    pub(crate) fn connection(&mut self, now: Instant, address: SocketAddr) -> Connection {
        let options = self.options;
        if self.hosts.len() >= self.sweep_at && !self.hosts.contains_key(&address) {
            self.sweep_at = (self.sweep(now) * 2).max(SWEEP);
        }
        let host = self.hosts.entry(address).or_default();
        host.look(now);
        let dial = || Connection::dial(address, options);
        host.connection.get_or_insert_with(dial).clone()
    }

    /// A provider could not be reached, or takes no calls.
    pub(crate) fn avoid(&mut self, now: Instant, address: SocketAddr) {
        if let Some(host) = self.hosts.get_mut(&address) {
            host.avoid(now + UNREACHED);
        }
    }

    /// Forgets connections that have ended; how many are left.
    pub(crate) fn sweep(&mut self, now: Instant) -> usize {
        self.hosts
            .retain(|_, host| host.is_avoided(now) || host.connection.is_some());
        self.hosts.len()
    }
}

impl Host {
    /// Forgets a connection that is over, and takes note of what that says of the provider.
    fn look(&mut self, now: Instant) {
        let over = self.connection.take_if(|connection| connection.is_over());
        match over.and_then(|connection| connection.cause()) {
            Some(Cause::ReadOnly | Cause::Silent) => self.avoid(now + LEAVING),
            // Who cannot be reached is known by the calls; another connection may do better.
            Some(Cause::Refused | Cause::Broken) | None => {}
        }
    }

    fn avoid(&mut self, until: Instant) {
        self.avoid = self.avoid.max(Some(until));
    }

    fn is_avoided(&mut self, now: Instant) -> bool {
        self.look(now);
        self.avoid.is_some_and(|until| now < until)
    }
}

/// How long a provider that could not be reached is avoided.
const UNREACHED: Duration = Duration::from_secs(1);
/// How long a provider is avoided that said READONLY or fell silent: as long as Java's takes to
/// end, new connections accepted all the while (apache/dubbo, `dubbo.service.shutdown.wait`).
const LEAVING: Duration = Duration::from_secs(10);
/// Fewest hosts among which it pays to look for those that are of no use.
const SWEEP: usize = 64;

#[cfg(test)]
mod tests {
    use dubbo_proto::mux::link::Timing;

    use super::*;
    use crate::time::now;

    #[test]
    fn turns_go_round_and_skip_who_is_avoided() {
        let options = Options {
            connect: Duration::ZERO,
            timing: Timing::default(),
            idle: None,
        };
        let mut pool = Pool::new(options);
        let mut rng = Rng::with_seed(7);
        let key: ServiceKey = "a.B".parse().expect("a key");
        let all: Vec<SocketAddr> = (1..=3).map(|n| ([127, 0, 0, n], 1).into()).collect();
        let t0 = now();
        let mut pick =
            |pool: &mut Pool, tried: &[SocketAddr]| pool.pick(t0, &mut rng, &key, &all, tried);
        let mut first: Vec<_> = (0..3).filter_map(|_| pick(&mut pool, &[])).collect();
        let second: Vec<_> = (0..3).filter_map(|_| pick(&mut pool, &[])).collect();
        assert_eq!(first, second, "in turn");
        first.sort_unstable();
        assert_eq!(first, all, "each once");
        pool.hosts.entry(all[1]).or_default();
        pool.avoid(t0, all[1]);
        assert!((0..6).all(|_| pick(&mut pool, &[]) != Some(all[1])));
        assert_eq!(pick(&mut pool, &[all[0], all[2]]), Some(all[1]), "no other");
        assert_eq!(pick(&mut pool, &all), None);
    }
}
