//! Whether a response may be stored (RFC 9111 §3), and which of its fields.

use tidegate_http1::Fields;

use super::control::Directives;
use super::facts::{RequestFacts, ResponseFacts};
use super::freshness::{ExchangeTimes, Freshness, FreshnessPolicy};
use super::{date_text, vary};

/// Whether the response to a GET may be stored: its freshness, or the reason against it.
pub(crate) fn admit(
    request: &RequestFacts<'_>,
    status: u16,
    response: &ResponseFacts<'_>,
    times: ExchangeTimes,
    policy: FreshnessPolicy,
) -> Result<Freshness, &'static str> {
    let control = &response.control;
    if status < 200 || matches!(status, 206 | 304) {
        return Err("status");
    }
    if control.must_understand && !is_understood(status) {
        return Err("must-understand");
    }
    if request.control.no_store || (control.no_store && !control.must_understand) {
        return Err("no-store");
    }
    if control.private {
        return Err("private");
    }
    if request.is_authorized && !(control.public || control.must_revalidate || control.s_maxage.is_some()) {
        return Err("authorization");
    }
    if response.sets_cookie && !control.public && !withholds(control, b"set-cookie") {
        return Err("set-cookie");
    }
    if vary::is_any(&response.vary) {
        return Err("vary");
    }
    let freshness = Freshness::of(status, response, times, policy).ok_or("no-lifetime")?;
    if !freshness.is_of_use(times.received) && !response.has_validator() {
        return Err("stale");
    }
    Ok(freshness)
}

/// The fields of a response that are stored: without those of one exchange (RFC 9111 §3.1), and those that it withholds. A
/// response without `Date` gets that of its arrival (RFC 9110 §6.6.1).
pub(crate) fn stored_fields(fields: &Fields, facts: &ResponseFacts<'_>, times: ExchangeTimes) -> Fields {
    let mut stored = Fields::new();
    stored.extend_from_response(fields.iter(), |name| is_stored(name) && !withholds(&facts.control, name));
    if let Some((_, server)) = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"server")) {
        stored.push_valid("Server", server);
    }
    if facts.date.is_none() {
        stored.push_valid("Date", date_text(times.received).as_bytes());
    }
    stored
}

/// Whether fields of this name are stored.
pub(crate) fn is_stored(name: &[u8]) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    match name.len() {
        3 => !is("age"),
        18 => !is("proxy-authenticate"),
        19 => !is("proxy-authorization"),
        25 => !is("proxy-authentication-info"),
        _ => true,
    }
}

pub(crate) fn withholds(control: &Directives, name: &[u8]) -> bool {
    control.withheld.iter().any(|withheld| withheld.eq_ignore_ascii_case(name))
}

/// The statuses of RFC 9110 and RFC 6585, whose meaning for a cache is known.
fn is_understood(status: u16) -> bool {
    matches!(status, 200..=205 | 300..=303 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 428 | 429 | 431 | 500..=505 | 511)
}
