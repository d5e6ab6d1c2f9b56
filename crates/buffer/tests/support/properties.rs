//! What tests of properties share.

use proptest::prelude::ProptestConfig;
use proptest::test_runner::FileFailurePersistence;

/// How properties are tested: what has failed once is kept beside the test, and tried first from then on.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}
