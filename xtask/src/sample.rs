//! Samples of the exhaustive checks in the long suite: another one each time, from a seed that is printed.

use std::hash::{BuildHasher, RandomState};

/// A fresh seed.
pub(crate) fn fresh_seed() -> u64 {
    // 32 bits are enough, and shorter to type.
    RandomState::new().hash_one("sample") >> 32
}

/// `count` of `items`, in their order, chosen by the seed.
pub(crate) fn sample<T>(items: Vec<T>, count: usize, seed: u64) -> Vec<T> {
    let (mut left, mut wanted, mut state) = (items.len(), count, seed);
    let chosen = items.into_iter().filter(|_| {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let takes = (bits ^ (bits >> 31)) % (left as u64) < wanted as u64;
        left -= 1;
        wanted -= usize::from(takes);
        takes
    });
    chosen.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_size_and_depends_on_the_seed() {
        let items: Vec<_> = (0..30).collect();
        let samples: Vec<_> = (0..100).map(|seed| sample(items.clone(), 8, seed)).collect();
        assert!(samples.iter().all(|chosen| chosen.len() == 8 && chosen.is_sorted()));
        assert!(items.iter().all(|item| samples.iter().any(|chosen| chosen.contains(item))));
        assert_eq!(samples[3], sample(items.clone(), 8, 3));
        assert_eq!(sample(items.clone(), 99, 1), items);
    }
}
