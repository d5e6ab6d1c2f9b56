//! The static table (RFC 9204, Appendix A): fields that every connection knows.

/// The field at an index, from 0 to 98.
#[inline]
pub(super) fn get(index: u32) -> Option<(&'static [u8], &'static [u8])> {
    ENTRIES.get(index as usize).copied()
}

/// The index of a field, if the table has it with this value; else the first index of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Field(u32),
    Name(u32),
    Nothing,
}

/// Looks for a field, by the length of its name first.
#[inline]
pub(super) fn find(name: &[u8], value: &[u8]) -> Found {
    let [start, end] = NAMES_OF_LENGTH.get(name.len()).copied().unwrap_or_default();
    let names = NAMES.get(usize::from(start)..usize::from(end)).unwrap_or_default();
    let Some((_, indices)) = names.iter().find(|(known, _)| *known == name) else { return Found::Nothing };
    let is_value = |index: &&u8| get(u32::from(**index)).is_some_and(|(_, known)| known == value);
    match (indices.iter().find(is_value), indices.first()) {
        (Some(index), _) => Found::Field(u32::from(*index)),
        (None, Some(index)) => Found::Name(u32::from(*index)),
        (None, None) => Found::Nothing,
    }
}

/// Names in the order of their lengths, and the indices of each.
static NAMES: [(&[u8], &[u8]); 52] = [
    (b"age", &[2]),
    (b"date", &[6]),
    (b"etag", &[7]),
    (b"link", &[11]),
    (b"vary", &[59, 60]),
    (b":path", &[1]),
    (b"range", &[55]),
    (b"cookie", &[5]),
    (b"accept", &[29, 30]),
    (b"origin", &[90]),
    (b"server", &[92]),
    (b"referer", &[13]),
    (b":method", &[15, 16, 17, 18, 19, 20, 21]),
    (b":scheme", &[22, 23]),
    (b":status", &[24, 25, 26, 27, 28, 63, 64, 65, 66, 67, 68, 69, 70, 71]),
    (b"alt-svc", &[83]),
    (b"purpose", &[91]),
    (b"location", &[12]),
    (b"if-range", &[89]),
    (b"expect-ct", &[87]),
    (b"forwarded", &[88]),
    (b":authority", &[0]),
    (b"set-cookie", &[14]),
    (b"early-data", &[86]),
    (b"user-agent", &[95]),
    (b"content-type", &[44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54]),
    (b"if-none-match", &[9]),
    (b"last-modified", &[10]),
    (b"accept-ranges", &[32]),
    (b"cache-control", &[36, 37, 38, 39, 40, 41]),
    (b"authorization", &[84]),
    (b"content-length", &[4]),
    (b"accept-encoding", &[31]),
    (b"accept-language", &[72]),
    (b"x-forwarded-for", &[96]),
    (b"x-frame-options", &[97, 98]),
    (b"content-encoding", &[42, 43]),
    (b"x-xss-protection", &[62]),
    (b"if-modified-since", &[8]),
    (b"content-disposition", &[3]),
    (b"timing-allow-origin", &[93]),
    (b"x-content-type-options", &[61]),
    (b"content-security-policy", &[85]),
    (b"strict-transport-security", &[56, 57, 58]),
    (b"upgrade-insecure-requests", &[94]),
    (b"access-control-allow-origin", &[35]),
    (b"access-control-allow-headers", &[33, 34, 75]),
    (b"access-control-allow-methods", &[76, 77, 78]),
    (b"access-control-expose-headers", &[79]),
    (b"access-control-request-method", &[81, 82]),
    (b"access-control-request-headers", &[80]),
    (b"access-control-allow-credentials", &[73, 74]),
];

/// For each length the range of its names in `NAMES`.
static NAMES_OF_LENGTH: [[u8; 2]; 33] = [
    [0, 0],
    [0, 0],
    [0, 0],
    [0, 1],
    [1, 5],
    [5, 7],
    [7, 11],
    [11, 17],
    [17, 19],
    [19, 21],
    [21, 25],
    [0, 0],
    [25, 26],
    [26, 31],
    [31, 32],
    [32, 36],
    [36, 38],
    [38, 39],
    [0, 0],
    [39, 41],
    [0, 0],
    [0, 0],
    [41, 42],
    [42, 43],
    [0, 0],
    [43, 45],
    [0, 0],
    [45, 46],
    [46, 48],
    [48, 50],
    [50, 51],
    [0, 0],
    [51, 52],
];

const ENTRIES: [(&[u8], &[u8]); 99] = [
    (b":authority", b""),
    (b":path", b"/"),
    (b"age", b"0"),
    (b"content-disposition", b""),
    (b"content-length", b"0"),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"referer", b""),
    (b"set-cookie", b""),
    (b":method", b"CONNECT"),
    (b":method", b"DELETE"),
    (b":method", b"GET"),
    (b":method", b"HEAD"),
    (b":method", b"OPTIONS"),
    (b":method", b"POST"),
    (b":method", b"PUT"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"103"),
    (b":status", b"200"),
    (b":status", b"304"),
    (b":status", b"404"),
    (b":status", b"503"),
    (b"accept", b"*/*"),
    (b"accept", b"application/dns-message"),
    (b"accept-encoding", b"gzip, deflate, br"),
    (b"accept-ranges", b"bytes"),
    (b"access-control-allow-headers", b"cache-control"),
    (b"access-control-allow-headers", b"content-type"),
    (b"access-control-allow-origin", b"*"),
    (b"cache-control", b"max-age=0"),
    (b"cache-control", b"max-age=2592000"),
    (b"cache-control", b"max-age=604800"),
    (b"cache-control", b"no-cache"),
    (b"cache-control", b"no-store"),
    (b"cache-control", b"public, max-age=31536000"),
    (b"content-encoding", b"br"),
    (b"content-encoding", b"gzip"),
    (b"content-type", b"application/dns-message"),
    (b"content-type", b"application/javascript"),
    (b"content-type", b"application/json"),
    (b"content-type", b"application/x-www-form-urlencoded"),
    (b"content-type", b"image/gif"),
    (b"content-type", b"image/jpeg"),
    (b"content-type", b"image/png"),
    (b"content-type", b"text/css"),
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-type", b"text/plain"),
    (b"content-type", b"text/plain;charset=utf-8"),
    (b"range", b"bytes=0-"),
    (b"strict-transport-security", b"max-age=31536000"),
    (b"strict-transport-security", b"max-age=31536000; includesubdomains"),
    (b"strict-transport-security", b"max-age=31536000; includesubdomains; preload"),
    (b"vary", b"accept-encoding"),
    (b"vary", b"origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-xss-protection", b"1; mode=block"),
    (b":status", b"100"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"302"),
    (b":status", b"400"),
    (b":status", b"403"),
    (b":status", b"421"),
    (b":status", b"425"),
    (b":status", b"500"),
    (b"accept-language", b""),
    (b"access-control-allow-credentials", b"FALSE"),
    (b"access-control-allow-credentials", b"TRUE"),
    (b"access-control-allow-headers", b"*"),
    (b"access-control-allow-methods", b"get"),
    (b"access-control-allow-methods", b"get, post, options"),
    (b"access-control-allow-methods", b"options"),
    (b"access-control-expose-headers", b"content-length"),
    (b"access-control-request-headers", b"content-type"),
    (b"access-control-request-method", b"get"),
    (b"access-control-request-method", b"post"),
    (b"alt-svc", b"clear"),
    (b"authorization", b""),
    (b"content-security-policy", b"script-src 'none'; object-src 'none'; base-uri 'none'"),
    (b"early-data", b"1"),
    (b"expect-ct", b""),
    (b"forwarded", b""),
    (b"if-range", b""),
    (b"origin", b""),
    (b"purpose", b"prefetch"),
    (b"server", b""),
    (b"timing-allow-origin", b"*"),
    (b"upgrade-insecure-requests", b"1"),
    (b"user-agent", b""),
    (b"x-forwarded-for", b""),
    (b"x-frame-options", b"deny"),
    (b"x-frame-options", b"sameorigin"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_found() {
        for (index, (name, value)) in (0..).zip(ENTRIES) {
            assert_eq!(find(name, value), Found::Field(index), "{index}");
            let Found::Name(first) = find(name, b"no such value") else { panic!("{index} has a name") };
            assert!(first <= index && get(first).is_some_and(|(known, _)| known == name));
        }
        assert_eq!((get(99), find(b"x-none", b""), find(&[b'a'; 300], b"")), (None, Found::Nothing, Found::Nothing));
    }
}
