//! `Balance`: which of the upstreams that are available gets the next request.
//!
//! A balancer belongs to a loop; load and health are shared. It leaves out upstreams that are away, that have as many
//! requests as they may, or that this request has tried already.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Which upstream gets the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Balance {
    /// Each in turn, as often as its weight says.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in progress for its weight.
    LeastConnections,
    /// The one that the key of the request is mapped to: requests of the same key go to the same upstream, and where one
    /// is away, only the keys of that one move (rendezvous hashing).
    ConsistentHash,
}

/// A balancer's view of one upstream.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// The same for the same address, on all loops and in all processes.
    pub hash: u64,
    /// Its weight times the share that it gets, in percent; at least 1.
    pub weight: u32,
    /// Requests in progress.
    pub active: u32,
    /// Whether it may get the request.
    pub is_eligible: bool,
}

/// The balancer of a loop.
#[derive(Debug)]
pub struct Balancer {
    kind: Balance,
    /// Of smooth weighted round robin: how far each is behind its share.
    credit: Vec<i64>,
}

impl Balancer {
    /// A balancer that has given nothing yet.
    #[must_use]
    pub fn new(kind: Balance) -> Self {
        Self { kind, credit: Vec::new() }
    }

    /// The place of the upstream for a request; `None` if none is eligible.
    pub fn pick(&mut self, candidates: &[Candidate], key: u64) -> Option<usize> {
        match self.kind {
            Balance::RoundRobin => self.round_robin(candidates),
            Balance::LeastConnections => self.least_connections(candidates),
            Balance::ConsistentHash => rendezvous(candidates, key),
        }
    }

    /// Smooth weighted round robin: each gains its weight, and the one with the most pays the sum.
    fn round_robin(&mut self, candidates: &[Candidate]) -> Option<usize> {
        self.round_robin_of(candidates, |candidate| candidate.is_eligible)
    }

    /// The same among some of them.
    #[inline]
    fn round_robin_of(&mut self, candidates: &[Candidate], is_one: impl Fn(&Candidate) -> bool) -> Option<usize> {
        if self.credit.len() != candidates.len() {
            self.credit = vec![0; candidates.len()];
        }
        let (mut total, mut best) = (0, None);
        for (place, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| is_one(candidate)) {
            let weight = i64::from(candidate.weight);
            self.credit[place] += weight;
            total += weight;
            if best.is_none_or(|best: usize| self.credit[place] > self.credit[best]) {
                best = Some(place);
            }
        }
        self.credit[best?] -= total;
        best
    }

    /// The one with the fewest requests for its weight. Among equals it is round robin: so an upstream with a small weight has
    /// its share also while none has requests.
    fn least_connections(&mut self, candidates: &[Candidate]) -> Option<usize> {
        // Loads are compared times the other's weight, so that nothing is rounded.
        let compare = |one: &Candidate, other: &Candidate| {
            let load = |one: &Candidate, other: &Candidate| u64::from(one.active) * u64::from(other.weight);
            load(one, other).cmp(&load(other, one))
        };
        let eligible = || candidates.iter().filter(|candidate| candidate.is_eligible);
        let least = *eligible().min_by(|one, other| compare(one, other))?;
        self.round_robin_of(candidates, |candidate| candidate.is_eligible && compare(candidate, &least).is_eq())
    }
}

/// The eligible candidate with the highest score: weighted rendezvous hashing.
fn rendezvous(candidates: &[Candidate], key: u64) -> Option<usize> {
    let scored =
        candidates.iter().enumerate().filter(|(_, candidate)| candidate.is_eligible).map(|(place, candidate)| {
            // Within (0, 1), from the 53 bits that a float has.
            let uniform = ((mix(candidate.hash ^ key) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            (place, -f64::from(candidate.weight) / uniform.ln())
        });
    scored.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(place, _)| place)
}

/// The hash of a key.
#[must_use]
pub fn hash_of(key: impl Hash) -> u64 {
    // Its keys are fixed, so all processes agree.
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// The finaliser of splitmix64: each bit of the input changes half of the output.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(weights: &[u32]) -> Vec<Candidate> {
        let candidate = |(place, weight): (usize, &u32)| Candidate {
            hash: hash_of(place),
            weight: weight * 100,
            active: 0,
            is_eligible: true,
        };
        weights.iter().enumerate().map(candidate).collect()
    }

    fn counts(balancer: &mut Balancer, candidates: &[Candidate], keys: u64) -> Vec<u64> {
        let mut counts = vec![0; candidates.len()];
        for key in 0..keys {
            counts[balancer.pick(candidates, mix(key)).expect("one is eligible")] += 1;
        }
        counts
    }

    #[test]
    fn nothing_is_picked_where_nothing_is_eligible() {
        for kind in [Balance::RoundRobin, Balance::LeastConnections, Balance::ConsistentHash] {
            let mut balancer = Balancer::new(kind);
            assert_eq!(balancer.pick(&[], 1), None);
            let mut none = candidates(&[1, 1]);
            none.iter_mut().for_each(|candidate| candidate.is_eligible = false);
            assert_eq!(balancer.pick(&none, 1), None);
        }
    }

    #[test]
    fn round_robin_takes_turns_by_weight_without_bursts() {
        let mut balancer = Balancer::new(Balance::RoundRobin);
        let three = candidates(&[3, 1, 1]);
        let order: Vec<_> = (0..5).map(|_| balancer.pick(&three, 0)).collect();
        assert_eq!(order, [0, 1, 0, 2, 0].map(Some));
        assert_eq!(counts(&mut balancer, &three, 500), [300, 100, 100]);
    }

    #[test]
    fn least_connections_takes_the_smallest_load_for_its_weight() {
        let mut balancer = Balancer::new(Balance::LeastConnections);
        let mut three = candidates(&[1, 1, 2]);
        (three[0].active, three[1].active, three[2].active) = (5, 3, 8);
        assert_eq!(balancer.pick(&three, 0), Some(1));
        three[2].active = 6;
        assert_eq!(balancer.pick(&three, 0), Some(2));
        let equal = candidates(&[1, 1, 1]);
        assert_eq!(counts(&mut Balancer::new(Balance::LeastConnections), &equal, 300), [100, 100, 100]);
        // A canary has its share of requests that come one at a time.
        let canary = candidates(&[9, 1]);
        assert_eq!(counts(&mut Balancer::new(Balance::LeastConnections), &canary, 300), [270, 30]);
    }

    #[test]
    fn consistent_hash_moves_only_the_keys_of_an_upstream_that_is_away() {
        let mut balancer = Balancer::new(Balance::ConsistentHash);
        let all = candidates(&[1, 1, 1, 1]);
        let mut fewer = all.clone();
        fewer[2].is_eligible = false;
        let mut moved = 0;
        for key in (0..4_000).map(mix) {
            let (before, after) = (balancer.pick(&all, key), balancer.pick(&fewer, key));
            assert_eq!(before, balancer.pick(&all, key));
            assert!(before == after || before == Some(2), "a key of another upstream has moved");
            moved += u32::from(before == Some(2));
        }
        assert!((850..1_150).contains(&moved), "{moved} of 4000 keys belong to one of four");
    }

    #[test]
    fn consistent_hash_gives_shares_by_weight() {
        let mut balancer = Balancer::new(Balance::ConsistentHash);
        let shares = counts(&mut balancer, &candidates(&[1, 3]), 10_000);
        assert!((7_200..7_800).contains(&shares[1]), "{shares:?}");
    }
}
