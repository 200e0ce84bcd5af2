//! Which few of many providers one node goes to: the same ones for this node, others for another.

use std::net::SocketAddr;

use mesh_proto::digest::Digest;

/// A provider to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Where it is.
    pub(crate) address: SocketAddr,
    /// Its share among all nodes; one of 0 is never chosen.
    pub(crate) weight: u32,
    /// Whether it is known to take calls, or nothing is known.
    pub(crate) healthy: bool,
}

/// At most `limit` of the candidates, those that `node` prefers first, all healthy ones before
/// others.
///
/// Weighted rendezvous hashing: each node has an order of its own over all addresses, in which a
/// candidate that comes or goes moves no other; over all nodes, a candidate stands first in
/// proportion to its weight. So nodes that fail over together do not all meet at the same few.
pub(crate) fn preferred(
    node: &str,
    candidates: impl IntoIterator<Item = Candidate>,
    limit: usize,
) -> Vec<SocketAddr> {
    let node = Digest::new().text(node);
    let mut ranked: Vec<_> = candidates
        .into_iter()
        .filter(|candidate| candidate.weight > 0)
        .map(|candidate| {
            let drawn = node.address(candidate.address).finish();
            (!candidate.healthy, cost(drawn, candidate.weight), candidate)
        })
        .collect();
    ranked.sort_by(|(sick, cost, one), (other_sick, other_cost, other)| {
        let by_order = sick.cmp(other_sick).then(cost.total_cmp(other_cost));
        by_order.then(one.address.cmp(&other.address))
    });
    let addresses = ranked.into_iter().map(|(_, _, one)| one.address);
    addresses.take(limit).collect()
}

/// An exponentially distributed time with the rate `weight`: the smallest of several is each one's
/// in proportion to its weight.
fn cost(drawn: u64, weight: u32) -> f64 {
    // 53 bits, as many as the number has, and never 0.
    let uniform = ((drawn >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -uniform.ln() / f64::from(weight)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn at(host: u8) -> Candidate {
        Candidate {
            address: ([10, 0, 0, host], 20880).into(),
            weight: 100,
            healthy: true,
        }
    }

    fn hosts(count: u8) -> Vec<Candidate> {
        (0..count).map(at).collect()
    }

    /// How often each of the candidates is among the first `limit` of 2,000 nodes.
    fn shares(candidates: &[Candidate], limit: usize) -> Vec<u32> {
        let mut counts: HashMap<SocketAddr, u32> = HashMap::new();
        for node in 0..2000 {
            let node = format!("node-{node}");
            for address in preferred(&node, candidates.iter().copied(), limit) {
                *counts.entry(address).or_default() += 1;
            }
        }
        let count = |one: &Candidate| counts.get(&one.address).copied().unwrap_or(0);
        candidates.iter().map(count).collect()
    }

    #[test]
    fn nodes_spread_over_all_hosts() {
        for share in shares(&hosts(100), 10) {
            assert!((140..=260).contains(&share), "{share} of 200 expected");
        }
    }

    #[test]
    fn a_host_is_first_in_proportion_to_its_weight() {
        let mut three = hosts(3);
        three[1].weight = 200;
        three[2].weight = 0;
        let [one, two, none] = shares(&three, 1)[..] else {
            panic!("three")
        };
        assert!((570..=760).contains(&one) && two == 2000 - one, "{one}");
        assert_eq!(none, 0, "of weight 0");
    }

    #[test]
    fn who_comes_or_goes_moves_nobody_else() {
        let all = preferred("shop-1", hosts(50), 50);
        assert_eq!(preferred("shop-1", hosts(50).into_iter().rev(), 50), all);
        let gone = all[3];
        let left = hosts(50).into_iter().filter(|one| one.address != gone);
        let expected: Vec<_> = all.iter().copied().filter(|one| *one != gone).collect();
        assert_eq!(preferred("shop-1", left, 50), expected);
        assert_ne!(preferred("shop-2", hosts(50), 50), all);
    }

    #[test]
    fn the_sick_are_last_and_still_there() {
        let all = preferred("shop-1", hosts(5), 5);
        let sick = hosts(5).into_iter().map(|one| Candidate {
            healthy: one.address != all[0],
            ..one
        });
        let mut expected = all.clone();
        expected.rotate_left(1);
        assert_eq!(preferred("shop-1", sick, 5), expected);
    }
}
