//! Application codes on WebTransport streams, and the HTTP/3 codes that carry them (draft-ietf-webtrans-http3 §4.4).

/// The code in RESET_STREAM and STOP_SENDING for an application code. Reserved HTTP/3 codes (RFC 9114 §8.1) are left out.
///
/// ```
/// use tidegate::http3::webtransport;
///
/// assert_eq!(webtransport::to_http3(0), 0x52e4a40fa8db);
/// assert_eq!(webtransport::from_http3(0x52e4a40fa8db), Some(0));
/// ```
#[must_use]
pub const fn to_http3(code: u32) -> u64 {
    FIRST + code as u64 + code as u64 / SPAN
}

/// The application code in an HTTP/3 code; `None` if it has none.
#[must_use]
pub const fn from_http3(code: u64) -> Option<u32> {
    // A reserved code is 0x1f times something, and 0x21.
    if code < FIRST || code > LAST || (code - 0x21).is_multiple_of(SPAN + 1) {
        return None;
    }
    let shifted = code - FIRST;
    Some((shifted - shifted / (SPAN + 1)) as u32)
}

const FIRST: u64 = 0x52e4_a40f_a8db;
const LAST: u64 = 0x52e5_ac98_3162;
const SPAN: u64 = 0x1e;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_comes_back_and_none_is_reserved() {
        assert_eq!(to_http3(u32::MAX), LAST);
        for code in (0..100_000).chain(u32::MAX - 1000..=u32::MAX) {
            let of_http3 = to_http3(code);
            assert!(!(of_http3 - 0x21).is_multiple_of(0x1f), "{code}");
            assert_eq!(from_http3(of_http3), Some(code));
        }
    }

    #[test]
    fn other_codes_have_none() {
        let reserved = (FIRST..FIRST + 100).filter(|code| (code - 0x21).is_multiple_of(0x1f));
        for code in [0, 0x10c, FIRST - 1, LAST + 1, u64::MAX].into_iter().chain(reserved) {
            assert_eq!(from_http3(code), None, "{code:#x}");
        }
    }
}
