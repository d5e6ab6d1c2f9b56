//! The scanner of heads: every instruction-set level returns the same result, which equals that of `httparse` except
//! for its leniency.
//!
//! The first byte is the start offset, the rest is the input.

#[path = "../../crates/scan/tests/suite/support/mod.rs"]
mod support;

use self::support::opinion::{compare_fields, compare_request};
use self::support::{From, agreed, check};
use crate::choices::Choices;

/// A head with its request line, and fields from an offset on.
pub fn scan(data: &[u8]) {
    let mut choices = Choices::new(data);
    let at = choices.below(BEGIN_MAX);
    let bytes = choices.take(WIRE_BYTES_MAX);
    check(From(bytes, at));
    compare_fields(&agreed(From(bytes, at)), From(bytes, at));
    compare_request(bytes);
}

/// The start offset of fields changes only the alignment of windows.
const BEGIN_MAX: usize = 4;

/// A few windows: longer input only repeats them.
const WIRE_BYTES_MAX: usize = 320;
