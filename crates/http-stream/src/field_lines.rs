//! Lines of fields, as the codec of a stream writes them into outbound records.

/// The first line, as name and value, and the lines behind it. `None` at the end.
///
/// The name of a pseudo-field begins with a colon.
#[must_use]
#[inline]
pub fn split_line(lines: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    // A pseudo-field begins with a colon.
    let name_end = 1 + lines.get(1..)?.iter().position(|byte| *byte == b':')?;
    let value_start = name_end + 1;
    let length = lines[value_start..].iter().position(|byte| *byte == b'\r')?;
    let value = lines[value_start..value_start + length].trim_ascii();
    Some((&lines[..name_end], value, lines.get(value_start + length + 2..)?))
}

/// Whether a field concerns one HTTP/1.1 connection, so that no other version may have it (RFC 9113 §8.2.2, RFC 9114
/// §4.2). `name` is in lower case.
#[must_use]
#[inline]
pub fn is_of_connection(name: &[u8]) -> bool {
    matches!(name, b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade")
}

/// Whether the value of a field is a secret, which no table may hold (RFC 7541 §7.1.3, RFC 9204 §7.1.3). `name` is in
/// lower case.
#[must_use]
#[inline]
pub fn is_secret(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"authorization" | b"proxy-authorization" | b"set-cookie" => true,
        b"cookie" => value.len() < SHORT_COOKIE_BYTES,
        _ => false,
    }
}

/// A shorter cookie could be guessed (RFC 7541 §7.1.3).
pub const SHORT_COOKIE_BYTES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_in_their_order() {
        let lines = b":path: /a:b\r\nx: y \r\n";
        let (name, value, rest) = split_line(lines).expect("two lines");
        assert_eq!((name, value), (&b":path"[..], &b"/a:b"[..]));
        assert_eq!(split_line(rest), Some((&b"x"[..], &b"y"[..], &b""[..])));
        assert_eq!(split_line(b""), None);
    }

    #[test]
    fn secrets_and_fields_of_connections_are_known() {
        assert!(is_secret(b"cookie", b"a=1") && !is_secret(b"cookie", &[b'a'; 20]) && is_secret(b"set-cookie", b"a"));
        assert!(is_of_connection(b"upgrade") && !is_of_connection(b"te"));
    }
}
