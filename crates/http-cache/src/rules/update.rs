//! A stored response after its validation: the fields of a 304 replace its own (RFC 9111 §3.2, §4.3.4).

use tidegate_http1::Fields;

use super::conditions::opaque;
use super::facts::ResponseFacts;
use super::storing::{is_stored, withholds};

/// Whether a 304 is about the stored response: it has no entity tag, or that one.
pub(crate) fn is_about(stored: Option<&[u8]>, validated: Option<&[u8]>) -> bool {
    match (stored, validated) {
        (Some(stored), Some(validated)) => opaque(stored) == opaque(validated),
        (None, Some(_)) => false,
        (_, None) => true,
    }
}

/// The stored fields with those of the 304 in their places.
pub(crate) fn updated(stored: &Fields, validated: &Fields, facts: &ResponseFacts<'_>) -> Fields {
    let replaces = |name: &[u8]| {
        let is_public = facts.control.public || !name.eq_ignore_ascii_case(b"set-cookie");
        is_stored(name) && !is_of_content(name) && is_public && !withholds(&facts.control, name)
    };
    let is_replaced = |name: &[u8]| replaces(name) && validated.iter().any(|(new, _)| new.eq_ignore_ascii_case(name));
    let mut fields = Fields::new();
    let pushed = stored.iter().filter(|(name, _)| !is_replaced(name));
    for (name, value) in pushed.chain(validated.iter().filter(|(name, _)| replaces(name))) {
        if let Ok(name) = std::str::from_utf8(name) {
            // The parser has accepted it, and a field that the codec writes is left out.
            let _ = fields.push(name, value);
        }
    }
    fields
}

/// The fields that describe the stored body, which a 304 does not have.
fn is_of_content(name: &[u8]) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    match name.len() {
        12 => is("content-type"),
        13 => is("content-range"),
        14 => is("content-length"),
        16 => is("content-encoding"),
        _ => false,
    }
}
