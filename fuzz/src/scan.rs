//! The scanner of heads: every level finds the same, which is what `httparse` finds but for its leniency.
//!
//! The first byte says where to begin, the rest is what there is.

#[path = "../../crates/scan/tests/support/opinion.rs"]
mod opinion;
#[path = "../../crates/scan/tests/support/mod.rs"]
mod support;

use self::opinion::{compare_fields, compare_request};
use self::support::{From, agreed, check};
use crate::choices::Choices;

/// A head with its request line, and fields from some place on.
pub fn scan(data: &[u8]) {
    let mut choices = Choices::new(data);
    let at = choices.below(BEGIN_MAX);
    let bytes = choices.take(WIRE_BYTES_MAX);
    check(From(bytes, at));
    compare_fields(&agreed(From(bytes, at)), From(bytes, at));
    compare_request(bytes);
}

/// Where fields begin changes nothing but the places of windows.
const BEGIN_MAX: usize = 4;

/// Some windows; what is in them repeats itself behind.
const WIRE_BYTES_MAX: usize = 320;
