//! Bytes of peers in a line, which they cannot end; and the times of lines.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

/// Adds bytes of a peer: printable ASCII but quotes and backslashes, and `\xNN` for everything else.
pub(super) fn quote(line: &mut String, bytes: &[u8]) {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if let Some(text) = bytes.iter().all(is_plain).then(|| std::str::from_utf8(bytes)).and_then(Result::ok) {
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

/// The name of a version, as its request line has it.
pub(super) fn version(version: http::Version) -> &'static str {
    match version {
        http::Version::HTTP_10 => "HTTP/1.0",
        http::Version::HTTP_2 => "HTTP/2.0",
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
    with_second(|second| line.push_str(&second.http));
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
    fn the_time_is_that_of_the_common_log_format() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(971_186_136);
        assert_eq!(common_time(time), "10/Oct/2000:13:55:36 +0000");
    }
}
