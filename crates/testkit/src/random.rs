//! `Random`: a small generator, the same from the same seed everywhere.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// SplitMix64: a few instructions, good enough for tests, and never for secrets.
///
/// Source: Steele, Lea, Flood, *Fast Splittable Pseudorandom Number Generators*, OOPSLA 2014.
///
/// ```
/// use tidegate_testkit::Random;
///
/// let (mut one, mut other) = (Random::new(7), Random::new(7));
/// assert_eq!(one.bits(), other.bits());
/// assert!(one.below(10) < 10);
/// ```
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub const fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "no number is below zero");
        ((self.bits() as u128 * bound as u128) >> 64) as usize
    }

    /// True once in `times`, on average.
    pub const fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If there are none.
    pub const fn pick<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.below(choices.len())]
    }

    /// `length` bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.bits() as u8).collect()
    }
}

/// The seed of this run: the value of the environment variable `TIDEGATE_SEED`, in decimal or after `0x` in
/// hexadecimal, otherwise a fresh one. A test that uses it prints it when it fails.
///
/// # Panics
/// If the variable is set to something that is no number.
#[must_use]
pub fn seed() -> u64 {
    seed_from_environment().unwrap_or_else(|| RandomState::new().hash_one("seed"))
}

/// The seeds of a test that runs `count` of them: the numbers from zero, or only the value of `TIDEGATE_SEED` if that
/// is set. Such a test prints the seed that fails, as a [`Network`](crate::network::Network) does.
///
/// # Panics
/// If the variable is set to something that is no number.
#[must_use]
pub fn seeds(count: u64) -> Range<u64> {
    match seed_from_environment() {
        Some(seed) => seed..seed.saturating_add(1),
        None => 0..count,
    }
}

/// The seed that the environment names.
fn seed_from_environment() -> Option<u64> {
    let text = std::env::var_os("TIDEGATE_SEED")?;
    let text = text.to_string_lossy();
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(number.unwrap_or_else(|_| panic!("TIDEGATE_SEED is `{text}`, which is no number of 64 bits")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_paper() {
        let mut random = Random::new(1_234_567);
        let first = [random.bits(), random.bits(), random.bits()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn every_number_below_the_bound_comes_up() {
        let (mut random, mut seen) = (Random::new(1), [0; 5]);
        for _ in 0..1_000 {
            seen[random.below(5)] += 1;
        }
        assert!(seen.iter().all(|count| (150..250).contains(count)), "{seen:?}");
    }
}
