//! The static table (RFC 7541, Appendix A): fields that every connection knows.

/// The field at an index, from 1 to 61.
#[inline]
pub(super) fn get(index: u32) -> Option<(&'static [u8], &'static [u8])> {
    ENTRIES.get((index as usize).checked_sub(1)?).copied()
}

// The first index of some names.
pub(crate) const PATH: u32 = 4;
pub(crate) const AGE: u32 = 21;
pub(crate) const AUTHORIZATION: u32 = 23;
pub(crate) const CONTENT_LENGTH: u32 = 28;
pub(crate) const CONTENT_RANGE: u32 = 30;
pub(crate) const COOKIE: u32 = 32;
pub(crate) const DATE: u32 = 33;
pub(crate) const ETAG: u32 = 34;
pub(crate) const IF_MODIFIED_SINCE: u32 = 40;
pub(crate) const IF_NONE_MATCH: u32 = 41;
pub(crate) const LAST_MODIFIED: u32 = 44;
pub(crate) const LOCATION: u32 = 46;
pub(crate) const PROXY_AUTHORIZATION: u32 = 49;
pub(crate) const SERVER: u32 = 54;
pub(crate) const SET_COOKIE: u32 = 55;
pub(crate) const TRANSFER_ENCODING: u32 = 57;

/// How many fields there are.
pub(super) const LENGTH: u32 = ENTRIES.len() as u32;

/// The first index of a field with this name, or 0.
#[inline]
pub(crate) fn find_name(name: &[u8]) -> u32 {
    // By length first: a comparison of all names, one after the other, would cost more than the table saves.
    match name.len() {
        3 => match name {
            b"age" => 21,
            b"via" => 60,
            _ => 0,
        },
        4 => match name {
            b"date" => 33,
            b"etag" => 34,
            b"from" => 37,
            b"host" => 38,
            b"link" => 45,
            b"vary" => 59,
            _ => 0,
        },
        5 => match name {
            b":path" => 4,
            b"allow" => 22,
            b"range" => 50,
            _ => 0,
        },
        6 => match name {
            b"accept" => 19,
            b"cookie" => 32,
            b"expect" => 35,
            b"server" => 54,
            _ => 0,
        },
        7 => match name {
            b":method" => 2,
            b":scheme" => 6,
            b":status" => 8,
            b"expires" => 36,
            b"referer" => 51,
            b"refresh" => 52,
            _ => 0,
        },
        8 => match name {
            b"if-match" => 39,
            b"if-range" => 42,
            b"location" => 46,
            _ => 0,
        },
        10 => match name {
            b":authority" => 1,
            b"set-cookie" => 55,
            b"user-agent" => 58,
            _ => 0,
        },
        11 => match name {
            b"retry-after" => 53,
            _ => 0,
        },
        12 => match name {
            b"content-type" => 31,
            b"max-forwards" => 47,
            _ => 0,
        },
        13 => match name {
            b"accept-ranges" => 18,
            b"authorization" => 23,
            b"cache-control" => 24,
            b"content-range" => 30,
            b"if-none-match" => 41,
            b"last-modified" => 44,
            _ => 0,
        },
        14 => match name {
            b"accept-charset" => 15,
            b"content-length" => 28,
            _ => 0,
        },
        15 => match name {
            b"accept-encoding" => 16,
            b"accept-language" => 17,
            _ => 0,
        },
        16 => match name {
            b"content-encoding" => 26,
            b"content-language" => 27,
            b"content-location" => 29,
            b"www-authenticate" => 61,
            _ => 0,
        },
        17 => match name {
            b"if-modified-since" => 40,
            b"transfer-encoding" => 57,
            _ => 0,
        },
        18 => match name {
            b"proxy-authenticate" => 48,
            _ => 0,
        },
        19 => match name {
            b"content-disposition" => 25,
            b"if-unmodified-since" => 43,
            b"proxy-authorization" => 49,
            _ => 0,
        },
        25 => match name {
            b"strict-transport-security" => 56,
            _ => 0,
        },
        27 => match name {
            b"access-control-allow-origin" => 20,
            _ => 0,
        },
        _ => 0,
    }
}

/// The index of a field whose first index by name is `first`, or 0.
#[inline]
pub(super) fn find_value(first: u32, value: &[u8]) -> u32 {
    let end = match first {
        2 | 4 | 6 => first + 2,
        8 => first + 7,
        16 => first + 1,
        _ => return 0,
    };
    (first..end).find(|index| ENTRIES[*index as usize - 1].1 == value).unwrap_or(0)
}

const ENTRIES: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_found() {
        for index in 1..=LENGTH {
            let (name, value) = get(index).expect("there are 61");
            let first = find_name(name);
            assert!(first > 0 && first <= index && get(first).expect("an entry").0 == name);
            assert_eq!(find_value(first, value), if value.is_empty() { 0 } else { index });
        }
        for (index, name) in [
            (PATH, ":path"),
            (AGE, "age"),
            (AUTHORIZATION, "authorization"),
            (CONTENT_LENGTH, "content-length"),
            (CONTENT_RANGE, "content-range"),
            (COOKIE, "cookie"),
            (DATE, "date"),
            (ETAG, "etag"),
            (IF_MODIFIED_SINCE, "if-modified-since"),
            (IF_NONE_MATCH, "if-none-match"),
            (LAST_MODIFIED, "last-modified"),
            (LOCATION, "location"),
            (PROXY_AUTHORIZATION, "proxy-authorization"),
            (SERVER, "server"),
            (SET_COOKIE, "set-cookie"),
            (TRANSFER_ENCODING, "transfer-encoding"),
        ] {
            assert_eq!(find_name(name.as_bytes()), index, "{name}");
        }
        assert_eq!((get(0), get(62), find_name(b"x-none")), (None, None, 0));
    }
}
