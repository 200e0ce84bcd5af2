//! Which host takes a call: weighted random, or the less busy of two.

use crate::{call::HostId, model::Balance};

/// A source of random numbers, given by the owner so that tests choose it.
pub type Random = Box<dyn FnMut() -> u64 + Send>;

/// Makes a source of random numbers for each shard.
pub type Entropy = std::sync::Arc<dyn Fn() -> Random + Send + Sync>;

/// The hosts of one service that take calls now, with their weights; built anew when a host comes
/// or goes, so that a pick looks at nothing else.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    /// Each host with the sum of the weights up to and including its own.
    hosts: Vec<(HostId, u64)>,
}

impl Ready {
    /// Hosts with their weights; a host of weight 0 takes calls only if all weigh 0.
    pub(crate) fn new(hosts: impl Iterator<Item = (HostId, u32)> + Clone) -> Self {
        let idle = hosts.clone().all(|(_, weight)| weight == 0);
        let mut sum = 0;
        let hosts = hosts
            .filter(|(_, weight)| idle || *weight > 0)
            .map(|(host, weight)| {
                sum += if idle { 1 } else { u64::from(weight) };
                (host, sum)
            })
            .collect();
        Self { hosts }
    }

    /// Whether nobody takes calls.
    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Picks a host other than `left`; `load` tells the calls in flight of one. `None` if nobody
    /// else is ready.
    #[inline]
    pub(crate) fn pick(
        &self,
        balance: Balance,
        random: &mut Random,
        left: Option<HostId>,
        load: impl Fn(HostId) -> u32,
    ) -> Option<HostId> {
        match (left, self.hosts.as_slice()) {
            (_, []) => None,
            (None, [(only, _)]) => Some(*only),
            (None, [.., (_, sum)]) => {
                let one = self.at(random() % sum);
                if balance == Balance::Random {
                    return Some(one.0);
                }
                let other = self.at(random() % sum);
                Some(less_busy(one, other, load))
            }
            (Some(left), hosts) => {
                // Rare: a call that failed on a host goes on among the others.
                let weight = |i: usize| hosts[i].1 - i.checked_sub(1).map_or(0, |i| hosts[i].1);
                let others = (0..hosts.len()).filter(|i| hosts[*i].0 != left);
                let others = Self::new(
                    others.map(|i| (hosts[i].0, u32::try_from(weight(i)).unwrap_or(u32::MAX))),
                );
                others.pick(balance, random, None, load)
            }
        }
    }

    /// The host in whose share `point` lies, with its weight.
    fn at(&self, point: u64) -> (HostId, u64) {
        let index = self.hosts.partition_point(|(_, sum)| *sum <= point);
        let before = index.checked_sub(1).map_or(0, |i| self.hosts[i].1);
        let (host, sum) = self.hosts[index];
        (host, sum - before)
    }
}

/// Of two hosts the one with fewer calls in flight per weight; the first if equal.
fn less_busy(
    (one, one_weight): (HostId, u64),
    (other, other_weight): (HostId, u64),
    load: impl Fn(HostId) -> u32,
) -> HostId {
    let one_load = (u64::from(load(one)) + 1) * other_weight;
    let other_load = (u64::from(load(other)) + 1) * one_weight;
    if other_load < one_load { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeded() -> Random {
        let mut rng = fastrand::Rng::with_seed(7);
        Box::new(move || rng.u64(..))
    }

    fn shares(weights: &[u32], balance: Balance, load: impl Fn(HostId) -> u32) -> Vec<u32> {
        let ready = Ready::new(weights.iter().zip(0..).map(|(w, i)| (HostId(i), *w)));
        let mut random = seeded();
        let mut shares = vec![0; weights.len()];
        for _ in 0..10_000 {
            let host = ready
                .pick(balance, &mut random, None, &load)
                .expect("a host is ready");
            shares[host.0 as usize] += 1;
        }
        shares
    }

    #[test]
    fn random_picks_follow_the_weights() {
        let shares = shares(&[100, 50, 0, 50], Balance::Random, |_| 0);
        assert_eq!(shares[2], 0);
        assert!(shares[0].abs_diff(5_000) < 300, "{shares:?}");
        assert!(shares[1].abs_diff(2_500) < 300, "{shares:?}");
    }

    #[test]
    fn weights_of_zero_alone_count_as_equal() {
        let shares = shares(&[0, 0], Balance::Random, |_| 0);
        assert!(shares[0].abs_diff(5_000) < 300, "{shares:?}");
    }

    #[test]
    fn the_less_busy_of_two_is_taken() {
        let shares = shares(&[1, 1, 1], Balance::LeastRequest, |h| {
            if h.0 == 0 { 10 } else { 0 }
        });
        // Picked only where both draws fall on it.
        assert!(shares[0].abs_diff(1_111) < 300, "{shares:?}");
    }

    #[test]
    fn nobody_ready_is_nobody() {
        let ready = Ready::default();
        assert_eq!(
            ready.pick(Balance::Random, &mut seeded(), None, |_| 0),
            None
        );
    }

    #[test]
    fn a_host_that_was_left_is_not_picked_again() {
        let ready = Ready::new([(HostId(0), 1000), (HostId(1), 1)].into_iter());
        let left = Some(HostId(0));
        for balance in [Balance::Random, Balance::LeastRequest] {
            let pick = || ready.pick(balance, &mut seeded(), left, |_| 0);
            assert!((0..100).all(|_| pick() == Some(HostId(1))));
        }
        let alone = Ready::new([(HostId(0), 1)].into_iter());
        assert_eq!(
            alone.pick(Balance::Random, &mut seeded(), left, |_| 0),
            None
        );
    }
}
