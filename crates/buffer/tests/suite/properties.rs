//! Shared parts of property tests.

use proptest::prelude::ProptestConfig;
use proptest::test_runner::{FileFailurePersistence, RngSeed};

/// How properties are tested: with the same cases in every run, unless `PROPTEST_RNG_SEED` asks for others and
/// `PROPTEST_CASES` for more. A failing case is stored beside the test, and later runs try it first.
pub(crate) fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = match default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(2693),
        given @ RngSeed::Fixed(_) => given,
    };
    println!("PROPTEST_RNG_SEED={rng_seed}");
    ProptestConfig {
        rng_seed,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..default
    }
}
