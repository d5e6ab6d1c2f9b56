//! A stored response after its validation: the fields of a 304 replace its own (RFC 9111 §3.2, §4.3.4).

use tidegate_http1::Fields;

use super::conditions::opaque;
use super::control::Directives;
use super::storing::{is_stored, withholds};
use super::{Millis, date_text};

/// Whether a 304 is about the stored response: it has no entity tag, or that one.
pub(crate) fn is_about(stored: Option<&[u8]>, validated: Option<&[u8]>) -> bool {
    match (stored, validated) {
        (Some(stored), Some(validated)) => opaque(stored) == opaque(validated),
        (None, Some(_)) => false,
        (_, None) => true,
    }
}

/// The stored fields with those of the 304 in their places. `control` is that of both together. A 304 without a date has that
/// of its `arrival`.
pub(crate) fn updated(stored: &Fields, validated: &Fields, control: &Directives, arrival: Option<Millis>) -> Fields {
    let replaces = |name: &[u8]| is_stored(name) && !is_of_content(name) && !is_of_exchange(control, name);
    let is_replaced = |name: &[u8]| replaces(name) && validated.iter().any(|(new, _)| new.eq_ignore_ascii_case(name));
    let mut fields = Fields::new();
    let pushed = stored.iter().filter(|(name, _)| !is_replaced(name));
    for (name, value) in pushed.chain(validated.iter().filter(|(name, _)| replaces(name))) {
        if let Ok(name) = std::str::from_utf8(name) {
            // The parser has accepted it, and a field that the codec writes is left out.
            let _ = fields.push(name, value);
        }
    }
    if let Some(arrival) = arrival {
        // It replaces that of the stored response.
        fields.push_valid("Date", date_text(arrival).as_bytes());
    }
    fields
}

/// The fields of a 304 that are not stored, and are for the client of its request alone.
pub(crate) fn of_one_exchange(validated: &Fields, control: &Directives) -> Fields {
    let mut fields = Fields::new();
    fields.extend_from(validated.iter(), |name| !is_of_content(name) && is_of_exchange(control, name));
    fields
}

/// Whether a field of a 304 is for one client: a cookie, unless the response is `public`, or a field that it withholds by name.
fn is_of_exchange(control: &Directives, name: &[u8]) -> bool {
    (name.eq_ignore_ascii_case(b"set-cookie") && !control.public) || withholds(control, name)
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
