//! The rules of RFC 9111, free of I/O: time is an argument.

pub(crate) mod conditions;
pub(crate) mod control;
pub(crate) mod facts;
pub(crate) mod freshness;
pub(crate) mod range;
pub(crate) mod storing;
pub(crate) mod update;
pub(crate) mod vary;

/// Milliseconds since 1970, by the clock of the cache.
pub(crate) type Millis = u64;

/// The time of an HTTP date (RFC 9110 §5.6.7); `None` if it is not valid.
pub(crate) fn date(value: &[u8]) -> Option<Millis> {
    let time = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Some(since.as_secs().saturating_mul(1000))
}

/// The same as text.
pub(crate) fn date_text(time: Millis) -> String {
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs((time / 1000).min(DATE_SECONDS_MAX)))
}

/// The last second of the year 9999, beyond which no date has a text.
const DATE_SECONDS_MAX: u64 = 253_402_300_799;
