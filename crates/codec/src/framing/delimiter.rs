//! `Delimiter`: frames that end with a byte string.

use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem::Finder;
use tidegate_buffer::{Input, Slice};

use super::payload::{Envelope, enveloped};
use super::{FramingError, Payload, checked_limit, truncated_at_eof};
use crate::codec::{Codec, Step};
use crate::output::Output;
use crate::pipeline::Broadcast;

/// Frames that each end with the same byte string, which is not part of the message.
///
/// Scanning continues where it stopped, so a frame that arrives byte by byte costs no more than one that arrives whole.
/// Clones share the prepared search: build one, and clone it for each connection.
///
/// ```
/// use tidegate::framing::Delimiter;
///
/// let records = Delimiter::new(b"\r\n.\r\n").with_frame_bytes_max(256 * 1024);
/// assert_eq!(records.encoded(b"ebb")?, &b"ebb\r\n.\r\n"[..]);
/// # Ok::<(), tidegate::framing::FramingError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Delimiter {
    finder: Arc<Finder<'static>>,
    frame_bytes_max: u32,
    /// Bytes from the start of the input in which no delimiter begins.
    scanned: u32,
}

impl Delimiter {
    /// Frames that end with `delimiter` and are at most [`DELIMITED_BYTES_MAX`] bytes long.
    ///
    /// # Panics
    /// If `delimiter` is empty or longer than [`LIMIT_BYTES_MAX`](super::LIMIT_BYTES_MAX).
    #[must_use]
    pub fn new(delimiter: impl AsRef<[u8]>) -> Self {
        let delimiter = delimiter.as_ref();
        assert!(!delimiter.is_empty(), "a delimiter has at least one byte");
        checked_limit(delimiter.len());
        let finder = Arc::new(Finder::new(delimiter).into_owned());
        Self { finder, frame_bytes_max: DELIMITED_BYTES_MAX as u32, scanned: 0 }
    }

    /// Frames of at most `bytes`, the delimiter not counted.
    ///
    /// # Panics
    /// If `bytes` is zero or exceeds [`LIMIT_BYTES_MAX`](super::LIMIT_BYTES_MAX).
    #[must_use]
    pub fn with_frame_bytes_max(mut self, bytes: usize) -> Self {
        self.frame_bytes_max = checked_limit(bytes);
        self
    }

    /// The wire form of a message, for [`Payload::Encoded`].
    ///
    /// # Errors
    /// As for [`encode`](Codec::encode).
    pub fn encoded(&self, message: &[u8]) -> Result<Bytes, FramingError> {
        Ok(enveloped(message, &self.envelope(message)?))
    }

    fn envelope(&self, message: &[u8]) -> Result<Envelope<'_>, FramingError> {
        let (bytes_max, delimiter) = (self.frame_bytes_max as usize, self.finder.needle());
        if message.len() > bytes_max {
            return Err(FramingError::TooLong { bytes_max });
        }
        // With a delimiter like `aba`, a message like `xab` would match too early: at `ab` + `a`.
        let straddles =
            |kept: &usize| delimiter.starts_with(&delimiter[*kept..]) && message.ends_with(&delimiter[..*kept]);
        let early = || (1..delimiter.len()).rev().find(straddles).map(|kept| message.len() - kept);
        match self.finder.find(message).or_else(early) {
            Some(at) => Err(FramingError::EndWithin { at }),
            None => Ok(Envelope { head: &[], replaced: 0, tail: delimiter }),
        }
    }
}

impl Codec for Delimiter {
    type In = Slice;
    type Out = Payload;
    type Error = FramingError;

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        let (bytes_max, delimiter) = (self.frame_bytes_max as usize, self.finder.needle().len());
        // The longest frame with its delimiter; a delimiter beyond cannot end this one.
        let window = bytes_max + delimiter;
        let seen = input.len().min(window);
        let from = seen.min(self.scanned as usize);
        if let Some(at) = self.finder.find(&input.bytes()[from..seen]) {
            self.scanned = 0;
            let frame = input.take(from + at);
            input.consume(delimiter);
            return Ok(Step::Message(frame));
        }
        if seen == window {
            return Err(FramingError::TooLong { bytes_max });
        }
        // The last bytes may be the beginning of a delimiter.
        self.scanned = (seen + 1).saturating_sub(delimiter) as u32;
        Ok(Step::NeedMore)
    }

    /// # Errors
    /// [`FramingError::EndWithin`] if the delimiter would be found before the end of the message;
    /// [`FramingError::TooLong`].
    fn encode(&mut self, message: Payload, out: &mut Output<'_>) -> Result<(), FramingError> {
        message.write_framed(out, |message| self.envelope(message))
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        let step = self.decode(input, reply)?;
        truncated_at_eof(step, input)
    }
}

impl Broadcast for Delimiter {}

/// The default for the longest frame, in bytes, its delimiter not counted.
pub const DELIMITED_BYTES_MAX: usize = 64 * 1024;

const _: () = assert!(size_of::<Delimiter>() <= 16);

#[cfg(test)]
mod tests {
    use std::time::{Instant, SystemTime};

    use tidegate_buffer::{Outbound, Pool};

    use super::super::tests::{encode, run};
    use super::*;
    use crate::output::Time;

    #[test]
    fn frames_end_with_the_delimiter() {
        let (frames, end) = run(Delimiter::new("--"), b"a----b-c---d--");
        assert_eq!(frames, ["a", "", "b-c", "-d"]);
        assert_eq!(end, Ok(()));
        assert_eq!(run(Delimiter::new([0]), b"a\0b\0").0, ["a", "b"]);
    }

    #[test]
    fn a_delimiter_that_repeats_itself_is_found_wherever_it_is_cut() {
        assert_eq!(run(Delimiter::new("aab"), b"aaabaaaab").0, ["a", "aa"]);
        assert_eq!(run(Delimiter::new("abab"), b"xababyabababab").0, ["x", "y", ""]);
    }

    #[test]
    fn scanning_goes_on_where_it_left_off() {
        let pool = Pool::new();
        let time = Time::new(Instant::now(), SystemTime::UNIX_EPOCH);
        let (mut queue, mut input, mut framing) = (Outbound::new(&pool), Input::new(), Delimiter::new("\r\n.\r\n"));
        for count in 1..=100_u32 {
            input.append(pool.copy(b"x"), &pool);
            let step = framing.decode(&mut input, &mut Output::new(&mut queue, &pool, &time)).unwrap();
            assert_eq!((step, framing.scanned), (Step::NeedMore, count.saturating_sub(4)));
        }
    }

    #[test]
    fn the_limit_is_the_longest_frame() {
        let four = Delimiter::new("--").with_frame_bytes_max(4);
        let too_long = Err(FramingError::TooLong { bytes_max: 4 });
        assert_eq!(run(four.clone(), b"abcd--").0, ["abcd"]);
        assert_eq!(run(four.clone(), b"abcde--").1, too_long);
        assert_eq!(run(four.clone(), b"abcdef").1, too_long);
        assert_eq!(run(four.clone(), b"abcde").1, Err(FramingError::Truncated { bytes: 5 }));
        assert_eq!(run(four, b"--abcd-x").1, too_long);
    }

    #[test]
    fn bytes_after_the_last_delimiter_are_a_truncated_frame() {
        assert_eq!(run(Delimiter::new("--"), b"a--b-").1, Err(FramingError::Truncated { bytes: 2 }));
    }

    #[test]
    fn a_message_that_would_not_come_back_the_same_is_refused() {
        let aba = Delimiter::new("aba").with_frame_bytes_max(5);
        assert_eq!(encode(aba.clone(), "xabax"), Err(FramingError::EndWithin { at: 1 }));
        assert_eq!(encode(aba.clone(), "xab"), Err(FramingError::EndWithin { at: 1 }), "xab+aba has aba at 1");
        assert_eq!(encode(aba.clone(), "xa").unwrap(), b"xaaba", "the first aba of xaaba is the delimiter");
        assert_eq!(encode(aba.clone(), "xxxxxx"), Err(FramingError::TooLong { bytes_max: 5 }));
        assert_eq!(encode(Delimiter::new("--"), "a-"), Err(FramingError::EndWithin { at: 1 }));
        assert_eq!(encode(aba, "").unwrap(), b"aba");
    }

    #[test]
    fn whatever_is_encoded_comes_back_the_same() {
        for delimiter in ["a", "ab", "aa", "aba", "aab", "abab"] {
            let framing = Delimiter::new(delimiter);
            for number in 0..729_u32 {
                let message: Vec<u8> = (0..6).map(|place| b"abc"[(number / 3_u32.pow(place) % 3) as usize]).collect();
                let came_early = [&message[..], delimiter.as_bytes()].concat();
                let first = framing.finder.find(&came_early).unwrap();
                match framing.encoded(&message) {
                    Ok(wire) => assert_eq!(run(framing.clone(), &wire).0, [message.escape_ascii().to_string()]),
                    Err(error) => {
                        assert_eq!(error, FramingError::EndWithin { at: first }, "{delimiter} {message:?}");
                        assert!(first < message.len());
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "at least one byte")]
    fn an_empty_delimiter_is_refused() {
        let _ = Delimiter::new("");
    }
}
