//! Bytes of peers in a line, which they cannot end; and the times of lines.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// Adds bytes of a peer: printable ASCII but quotes and backslashes, and `\xNN` for everything else.
pub(super) fn quote(line: &mut String, bytes: &[u8]) {
    if let Some(text) = is_plain(bytes).then(|| std::str::from_utf8(bytes)).and_then(Result::ok) {
        return line.push_str(text);
    }
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => {
                line.push('\\');
                line.push(char::from(byte));
            }
            b' '..=b'~' => line.push(char::from(byte)),
            _ => {
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
    }
}

/// Whether all bytes are printable ASCII, but for quotes and backslashes.
pub(super) fn is_plain(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    // No early end: nearly all texts are plain.
    words.iter().chain([&last]).fold(0, |marks, word| marks | marks_of(u64::from_le_bytes(*word))) == 0
}

/// Marks in the high bits of those bytes that are not plain; bytes above a marked one may be marked as well.
fn marks_of(word: u64) -> u64 {
    let each = |byte: u8| u64::from(byte) * 0x0101_0101_0101_0101;
    let below = |word: u64, least: u8| word.wrapping_sub(each(least)) & !word;
    let is = |byte: u8| below(word ^ each(byte), 1);
    (below(word, b' ') | word | is(b'"') | is(b'\\') | is(0x7f)) & each(0x80)
}

/// Adds an address. The formatter of the standard library costs ten times as much.
pub(super) fn push_ip(line: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            for (place, octet) in ip.octets().into_iter().enumerate() {
                if place > 0 {
                    line.push(b'.');
                }
                push_number(line, octet.into());
            }
        }
        IpAddr::V6(ip) => line.extend_from_slice(ip.to_string().as_bytes()),
    }
}

pub(super) fn push_number(line: &mut Vec<u8>, number: u64) {
    line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// The name of a version, as its request line has it.
pub(super) fn version(version: http::Version) -> &'static str {
    match version {
        http::Version::HTTP_10 => "HTTP/1.0",
        http::Version::HTTP_2 => "HTTP/2.0",
        http::Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// Adds a time in seconds, to the microsecond.
pub(super) fn push_seconds(line: &mut String, took: Duration) {
    let _ = write!(line, "{}.{:06}", took.as_secs(), took.subsec_micros());
}

/// The texts of a second: those of all lines that are written within it.
#[derive(Default)]
struct Second {
    number: u64,
    http: String,
    common: String,
}

thread_local! {
    static SECOND: RefCell<Second> = RefCell::default();
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn with_second(use_it: impl FnOnce(&Second)) {
    let number = since_epoch().as_secs();
    SECOND.with_borrow_mut(|second| {
        if second.number != number || second.http.is_empty() {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(number);
            *second = Second { number, http: httpdate::fmt_http_date(time), common: common_time(time) };
        }
        use_it(second);
    });
}

/// Adds the present time as HTTP has it (RFC 9110 §5.6.7).
pub(super) fn push_http_time(line: &mut String) {
    with_http_time(|time| line.push_str(time));
}

pub(super) fn with_http_time(use_it: impl FnOnce(&str)) {
    with_second(|second| use_it(&second.http));
}

/// Adds the present time as the common log format has it.
pub(super) fn push_common_time(line: &mut String) {
    with_second(|second| line.push_str(&second.common));
}

/// Adds the seconds since 1970, to the millisecond.
pub(super) fn push_unix_time(line: &mut String) {
    let now = since_epoch();
    let _ = write!(line, "{}.{:03}", now.as_secs(), now.subsec_millis());
}

/// A time as the common log format has it: `10/Oct/2000:13:55:36 +0000`.
fn common_time(time: SystemTime) -> String {
    // `Tue, 10 Oct 2000 13:55:36 GMT`
    let date = httpdate::fmt_http_date(time);
    match date.split(' ').collect::<Vec<_>>()[..] {
        [_, day, month, year, clock, _] => format!("{day}/{month}/{year}:{clock} +0000"),
        _ => date,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_peer_cannot_end_their_quotes_or_the_line() {
        let mut line = String::new();
        quote(&mut line, b"a\"b\\c\nd\xff");
        assert_eq!(line, r#"a\"b\\c\x0ad\xff"#);
    }

    #[test]
    fn a_byte_that_is_not_plain_is_found_at_each_place() {
        for length in 0..40 {
            let plain = vec![b'~'; length];
            assert!(is_plain(&plain));
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut bytes = plain.clone();
                    bytes[at] = byte;
                    let expected = matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
                    assert_eq!(is_plain(&bytes), expected, "{byte} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn an_address_has_its_usual_text() {
        for ip in ["0.0.0.0", "10.20.100.255", "::1", "2001:db8::7"] {
            let mut line = Vec::new();
            push_ip(&mut line, ip.parse().unwrap());
            assert_eq!(line, ip.as_bytes());
        }
    }

    #[test]
    fn the_time_is_that_of_the_common_log_format() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(971_186_136);
        assert_eq!(common_time(time), "10/Oct/2000:13:55:36 +0000");
    }
}
