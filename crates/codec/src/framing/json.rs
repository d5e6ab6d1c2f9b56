//! `Json`: one JSON value a frame.

use bytes::Bytes;
use memchr::memchr2;
use tidegate_buffer::{Input, Slice};

use super::payload::{Envelope, enveloped};
use super::{FRAME_BYTES_MAX, FramingError, Payload, checked_limit, truncated_at_eof};
use crate::codec::{Codec, Step};
use crate::output::Output;
use crate::pipeline::Broadcast;

/// JSON objects, arrays and strings behind each other, with or without white space between them.
///
/// The framing finds the end of a value by its brackets and quotation marks; a parser of JSON reads the message then. A
/// number or a literal does not say where it ends, so it is refused outside of an object or an array. Scanning continues
/// where it stopped: a value that arrives byte by byte costs no more than one that arrives whole.
///
/// Encoding writes a line feed behind each value, so that readers of lines can read them as well.
///
/// Source: [RFC 8259](https://www.rfc-editor.org/rfc/rfc8259) §2 for white space and brackets, §7 for strings.
///
/// ```
/// use tidegate::framing::Json;
///
/// let framing = Json::new().with_depth_max(8);
/// assert_eq!(framing.encoded(br#"{"tide":"ebb"}"#)?, &b"{\"tide\":\"ebb\"}\n"[..]);
/// # Ok::<(), tidegate::framing::FramingError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Json {
    /// A bit for each open bracket: set for an object.
    objects: [u64; 2],
    frame_bytes_max: u32,
    /// Bytes from the start of the input that are scanned.
    scanned: u32,
    depth: u8,
    depth_max: u8,
    position: Position,
}

/// The place of the scan within a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Between brackets, or before the value.
    Outside,
    String,
    /// Behind a backslash of a string.
    Escape,
}

impl Json {
    /// The highest value of [`with_depth_max`](Self::with_depth_max).
    pub const DEPTH_MAX: usize = 128;

    /// Values of at most [`FRAME_BYTES_MAX`] bytes, with 64 objects and arrays within each other.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            objects: [0; 2],
            frame_bytes_max: FRAME_BYTES_MAX as u32,
            scanned: 0,
            depth: 0,
            depth_max: 64,
            position: Position::Outside,
        }
    }

    /// Values of at most `bytes`, the white space around them not counted.
    ///
    /// # Panics
    /// If `bytes` is zero or exceeds [`LIMIT_BYTES_MAX`](super::LIMIT_BYTES_MAX).
    #[must_use]
    pub const fn with_frame_bytes_max(mut self, bytes: usize) -> Self {
        self.frame_bytes_max = checked_limit(bytes);
        self
    }

    /// At most `depth` objects and arrays within each other. It stops a short value from using up the stack of a
    /// recursive parser.
    ///
    /// # Panics
    /// If `depth` is zero or exceeds [`DEPTH_MAX`](Self::DEPTH_MAX).
    #[must_use]
    pub const fn with_depth_max(mut self, depth: usize) -> Self {
        assert!(0 < depth && depth <= Self::DEPTH_MAX, "JSON has a depth of 1 to 128");
        self.depth_max = depth as u8;
        self
    }

    /// The wire form of a message, for [`Payload::Encoded`].
    ///
    /// # Errors
    /// As for [`encode`](Codec::encode).
    pub fn encoded(&self, message: &[u8]) -> Result<Bytes, FramingError> {
        Ok(enveloped(message, &self.envelope(message)?))
    }

    fn envelope(&self, message: &[u8]) -> Result<Envelope<'static>, FramingError> {
        let Self { frame_bytes_max, depth_max, .. } = *self;
        let mut scan = Self { frame_bytes_max, depth_max, ..Self::new() };
        match scan.end(message) {
            Ok(Some(end)) if end == message.len() => Ok(Envelope { head: &[], replaced: 0, tail: b"\n" }),
            Ok(end) => Err(FramingError::NotOneFrame { at: end.unwrap_or(message.len()) }),
            Err(FramingError::Unexpected { at }) => Err(FramingError::NotOneFrame { at }),
            Err(error) => Err(error),
        }
    }

    /// Scans on; returns the length of the value once its end is found.
    fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        let bytes_max = self.frame_bytes_max as usize;
        let bytes_seen = &bytes[..bytes.len().min(bytes_max)];
        let mut at = self.scanned as usize;
        let mut is_whole = false;
        while !is_whole && at < bytes_seen.len() {
            match self.position {
                Position::Outside => {
                    is_whole = self.advance(bytes_seen[at], at)?;
                    at += 1;
                }
                Position::String => match memchr2(b'"', b'\\', &bytes_seen[at..]) {
                    None => at = bytes_seen.len(),
                    Some(count) => {
                        at += count + 1;
                        let is_end = bytes_seen[at - 1] == b'"';
                        self.position = if is_end { Position::Outside } else { Position::Escape };
                        is_whole = is_end && self.depth == 0;
                    }
                },
                Position::Escape => {
                    self.position = Position::String;
                    at += 1;
                }
            }
        }
        self.scanned = if is_whole { 0 } else { at as u32 };
        match is_whole {
            true => Ok(Some(at)),
            false if at == bytes_max => Err(FramingError::TooLong { bytes_max }),
            false => Ok(None),
        }
    }

    /// Advances by a byte outside of strings; returns whether the value ends with it.
    fn advance(&mut self, byte: u8, at: usize) -> Result<bool, FramingError> {
        let (bit, word) = (self.depth % 64, usize::from(self.depth / 64));
        match byte {
            b'"' => self.position = Position::String,
            b'{' | b'[' => {
                if self.depth == self.depth_max {
                    return Err(FramingError::TooDeep { depth_max: usize::from(self.depth_max) });
                }
                let mask = 1 << bit;
                self.objects[word] = self.objects[word] & !mask | u64::from(byte == b'{') << bit;
                self.depth += 1;
            }
            _ if self.depth == 0 => return Err(FramingError::Unexpected { at }),
            b'}' | b']' => {
                self.depth -= 1;
                let (bit, word) = (self.depth % 64, usize::from(self.depth / 64));
                if (self.objects[word] >> bit & 1 == 1) != (byte == b'}') {
                    return Err(FramingError::Unexpected { at });
                }
                return Ok(self.depth == 0);
            }
            _ => {}
        }
        Ok(false)
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec for Json {
    type In = Slice;
    type Out = Payload;
    type Error = FramingError;

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        if self.scanned == 0 {
            let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            let count = input.bytes().iter().take_while(|byte| space(byte)).count();
            input.consume(count);
        }
        Ok(match self.end(input.bytes())? {
            Some(length) => Step::Message(input.take(length)),
            None => Step::NeedMore,
        })
    }

    /// # Errors
    /// [`FramingError::NotOneFrame`] unless the message is one object, array or string, without white space around it;
    /// [`FramingError::TooDeep`]; [`FramingError::TooLong`].
    fn encode(&mut self, message: Payload, out: &mut Output<'_>) -> Result<(), FramingError> {
        message.write_framed(out, |message| self.envelope(message))
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        let step = self.decode(input, reply)?;
        truncated_at_eof(step, input)
    }
}

impl Broadcast for Json {}

const _: () = assert!(size_of::<Json>() <= 32);
const _: () = assert!(Json::DEPTH_MAX == 128 && Json::DEPTH_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::super::tests::{encode, run};
    use super::*;

    fn failure(wire: &[u8]) -> FramingError {
        run(Json::new(), wire).1.expect_err("malformed")
    }

    #[test]
    fn values_follow_each_other_with_or_without_white_space() {
        let wire = br#" {"a":1}[2,[3],{}] "four"
            []{}"#;
        let (values, end) = run(Json::new(), wire);
        assert_eq!(values, [r#"{\"a\":1}"#, "[2,[3],{}]", r#"\"four\""#, "[]", "{}"]);
        assert_eq!(end, Ok(()));
    }

    #[test]
    fn brackets_and_quotation_marks_within_strings_do_not_count() {
        let wire = br#"{"]}\"[{":"\\"}["\\\"]"]"#;
        assert_eq!(run(Json::new(), wire).0, [r#"{\"]}\\\"[{\":\"\\\\\"}"#, r#"[\"\\\\\\\"]\"]"#]);
    }

    #[test]
    fn a_number_or_a_literal_has_no_end_outside_of_brackets() {
        assert_eq!(failure(b"1"), FramingError::Unexpected { at: 0 });
        assert_eq!(failure(b"{}true"), FramingError::Unexpected { at: 0 });
        assert_eq!(failure(b"[],{}"), FramingError::Unexpected { at: 0 });
        assert_eq!(run(Json::new(), b"[1,true,null]").0, ["[1,true,null]"]);
    }

    #[test]
    fn brackets_of_two_kinds_do_not_match() {
        assert_eq!(failure(b"[1}"), FramingError::Unexpected { at: 2 });
        assert_eq!(failure(b"{\"a\":[}]"), FramingError::Unexpected { at: 6 });
        assert_eq!(failure(b"]"), FramingError::Unexpected { at: 0 });
        let deep = [&b"[".repeat(63)[..], b"{[", b"}"].concat();
        assert_eq!(run(Json::new().with_depth_max(128), &deep).1, Err(FramingError::Unexpected { at: 65 }));
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
        assert_eq!(run(Json::new(), &nested(64)).1, Ok(()));
        assert_eq!(failure(&nested(65)), FramingError::TooDeep { depth_max: 64 });
        let deepest = Json::new().with_depth_max(Json::DEPTH_MAX);
        assert_eq!(run(deepest.clone(), &nested(128)).1, Ok(()));
        assert_eq!(run(deepest.clone(), &b"[".repeat(129)).1, Err(FramingError::TooDeep { depth_max: 128 }));
        let siblings = [&b"["[..], &b"{},".repeat(200), b"{}]"].concat();
        assert_eq!(run(deepest, &siblings).0.len(), 1, "siblings are not nested");
    }

    #[test]
    fn the_limit_is_the_longest_value() {
        let five = Json::new().with_frame_bytes_max(5);
        assert_eq!(run(five.clone(), b"   [1,2]   [3]").0, ["[1,2]", "[3]"]);
        assert_eq!(run(five.clone(), b"[1,2,").1, Err(FramingError::TooLong { bytes_max: 5 }));
        assert_eq!(run(five.clone(), b"\"12345").1, Err(FramingError::TooLong { bytes_max: 5 }));
        assert_eq!(encode(five, "[1,2,3]"), Err(FramingError::TooLong { bytes_max: 5 }));
    }

    #[test]
    fn the_end_within_a_value_truncates_it() {
        assert_eq!(failure(b"{} [1"), FramingError::Truncated { bytes: 2 });
        assert_eq!(failure(b"\"\\"), FramingError::Truncated { bytes: 2 });
        assert_eq!(run(Json::new(), b"{} \n "), (vec!["{}".to_owned()], Ok(())));
    }

    #[test]
    fn a_message_that_is_not_one_value_is_refused() {
        for (message, at) in [("", 0), ("1", 0), ("[1", 2), ("[] ", 2), (" []", 0), ("[][]", 2), ("[}", 1)] {
            assert_eq!(encode(Json::new(), message), Err(FramingError::NotOneFrame { at }), "{message}");
        }
        assert_eq!(encode(Json::new(), "[".repeat(65)), Err(FramingError::TooDeep { depth_max: 64 }));
    }

    #[test]
    fn whatever_is_encoded_comes_back_the_same() {
        for message in [r#"{"a":[1,2,{"b":"\"}"}]}"#, "[]", r#""\\""#] {
            let wire = encode(Json::new(), message).expect("a value");
            assert_eq!(run(Json::new(), &wire).0, [message.as_bytes().escape_ascii().to_string()]);
            assert_eq!(wire, Json::new().encoded(message.as_bytes()).expect("a value"));
        }
    }

    #[test]
    #[should_panic(expected = "a depth of 1 to 128")]
    fn a_depth_without_room_is_refused() {
        let _ = Json::new().with_depth_max(129);
    }
}
