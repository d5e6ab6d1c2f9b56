//! `QueryRandom`: numbers that a peer cannot guess.

use std::hash::{BuildHasher, RandomState};

/// A generator of query IDs, letters' cases and cookies: SipHash under a key of the operating system's randomness, over a
/// counter. With a seed it is the same on every machine, for simulations.
#[derive(Debug)]
pub(super) struct QueryRandom {
    key: Option<RandomState>,
    counter: u64,
}

impl QueryRandom {
    pub(super) fn from_system() -> Self {
        Self { key: Some(RandomState::new()), counter: 0 }
    }

    pub(super) const fn seeded(seed: u64) -> Self {
        Self { key: None, counter: seed }
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(0x9E37_79B9_7F4A_7C15);
        if let Some(key) = &self.key {
            return key.hash_one(self.counter);
        }
        let mut bits = self.counter;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}
