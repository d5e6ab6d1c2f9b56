//! The stamp in a message that is delivered to others: its author, which is a thread of the load, and its time.

use std::time::Duration;

/// How a message begins.
pub(crate) fn write(author: u64, time: Duration) -> String {
    format!("{MARK}{author:016x}{:016x} ", u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The stamp in a message, whatever a server writes around it: its author, and when it was sent.
pub(crate) fn find(message: &[u8]) -> Option<(u64, Duration)> {
    let at = message.windows(MARK.len()).position(|bytes| bytes == MARK.as_bytes())? + MARK.len();
    let digits = str::from_utf8(message.get(at..at + 32)?).ok()?;
    let (author, time) = digits.split_at_checked(16)?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some((number(author)?, Duration::from_nanos(number(time)?)))
}

/// The prefix of a stamp.
const MARK: &str = "tidegate:";

/// The length of a stamp.
pub(crate) const STAMP_BYTES: usize = MARK.len() + 16 + 16 + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_found_in_whatever_a_server_writes_around_it() {
        let text = write(7, Duration::from_nanos(123_456_789));
        assert_eq!(text.len(), STAMP_BYTES);
        for message in [text.clone(), format!("{{\"text\":\"{text}xxx\"}}"), format!("tide tidegate: {text}")] {
            let expected = (!message.starts_with("tide ")).then_some((7, Duration::from_nanos(123_456_789)));
            assert_eq!(find(message.as_bytes()), expected, "{message}");
        }
        for message in ["", "tidegate:", "tidegate:00", "tidegate:zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"] {
            assert_eq!(find(message.as_bytes()), None, "{message}");
        }
    }
}
