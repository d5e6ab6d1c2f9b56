//! `Lines`: frames that end with LF or CRLF.

use bytes::Bytes;
use memchr::memchr;
use tidegate_buffer::{Input, Slice};

use super::payload::{Envelope, enveloped};
use super::{FramingError, Payload, checked_limit};
use crate::codec::{Codec, Step};
use crate::output::Output;
use crate::pipeline::Broadcast;

/// Lines of bytes. Each ends with LF or with CRLF, which is not part of the message.
///
/// A line is bytes, not text: an application that needs UTF-8 checks it. Written lines end with LF, or with CRLF after
/// [`with_crlf`](Lines::with_crlf).
///
/// Bytes behind the last line end, when the peer ends, are [`FramingError::Truncated`], since they may be half a
/// command; [`with_open_end`](Lines::with_open_end) accepts them as a line.
///
/// ```
/// use std::time::{Instant, SystemTime};
/// use tidegate::codec::{Codec, Input, Outbound, Output, Pool, Step, Time};
/// use tidegate::framing::Lines;
///
/// let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
/// let (mut queue, mut input) = (Outbound::new(&pool), Input::new());
/// let mut out = Output::new(&mut queue, &pool, &time);
/// let mut lines = Lines::new().with_crlf();
///
/// input.append(pool.copy(b"ebb\r\nflo"), &pool);
/// let Step::Message(line) = lines.decode(&mut input, &mut out)? else { panic!("a line is complete") };
/// assert_eq!(&*line, b"ebb");
/// assert_eq!(lines.decode(&mut input, &mut out)?, Step::NeedMore);
///
/// lines.encode(line.into(), &mut out)?;
/// assert!(lines.encode("two\nlines".into(), &mut out).is_err());
/// queue.flush();
/// assert_eq!(queue.front(), Some(&b"ebb\r\n"[..]));
/// # Ok::<(), tidegate::framing::FramingError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Lines {
    line_bytes_max: u32,
    /// Bytes from the start of the input in which there is no LF.
    scanned: u32,
    crlf: bool,
    open_end: bool,
}

impl Lines {
    /// Lines of at most [`LINE_BYTES_MAX`] bytes, written with LF.
    #[must_use]
    pub const fn new() -> Self {
        Self { line_bytes_max: LINE_BYTES_MAX as u32, scanned: 0, crlf: false, open_end: false }
    }

    /// Lines of at most `bytes`, their end not counted.
    ///
    /// # Panics
    /// If `bytes` is zero or exceeds [`LIMIT_BYTES_MAX`](super::LIMIT_BYTES_MAX).
    #[must_use]
    pub const fn with_line_bytes_max(mut self, bytes: usize) -> Self {
        self.line_bytes_max = checked_limit(bytes);
        self
    }

    /// Lines are written with CRLF.
    #[must_use]
    pub const fn with_crlf(mut self) -> Self {
        self.crlf = true;
        self
    }

    /// Accepts bytes behind the last line end, when the peer ends, as a line. For sources that do not end their last
    /// line, and protocols in which half a line is harmless.
    #[must_use]
    pub const fn with_open_end(mut self) -> Self {
        self.open_end = true;
        self
    }

    /// The wire form of a line, for [`Payload::Encoded`].
    ///
    /// # Errors
    /// As for [`encode`](Codec::encode).
    pub fn encoded(&self, line: &[u8]) -> Result<Bytes, FramingError> {
        Ok(enveloped(line, &self.envelope(line)?))
    }

    #[inline]
    fn envelope(&self, line: &[u8]) -> Result<Envelope<'static>, FramingError> {
        self.check_length(line.len())?;
        if let Some(at) = memchr(b'\n', line) {
            return Err(FramingError::EndWithin { at });
        }
        let tail: &[u8] = if self.crlf { b"\r\n" } else { b"\n" };
        // Before an LF alone, the reader would parse it as a part of the line end.
        if !self.crlf && line.ends_with(b"\r") {
            return Err(FramingError::EndWithin { at: line.len() - 1 });
        }
        Ok(Envelope { head: &[], replaced: 0, tail })
    }

    #[inline]
    fn check_length(&self, bytes: usize) -> Result<(), FramingError> {
        let bytes_max = self.line_bytes_max as usize;
        if bytes > bytes_max { Err(FramingError::TooLong { bytes_max }) } else { Ok(()) }
    }

    /// Takes the first `length` bytes, and the end that is `end` bytes long.
    #[inline]
    fn take(&mut self, input: &mut Input, length: usize, end: usize) -> Result<Slice, FramingError> {
        let length = if input.bytes()[..length].ends_with(b"\r") { length - 1 } else { length };
        self.check_length(length)?;
        let with_cr = usize::from(input.bytes().get(length) == Some(&b'\r'));
        let line = input.take(length);
        input.consume(with_cr + end);
        self.scanned = 0;
        Ok(line)
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec for Lines {
    type In = Slice;
    type Out = Payload;
    type Error = FramingError;

    #[inline]
    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        // The longest line with the longest end; a delimiter beyond cannot end this one.
        let window = self.line_bytes_max as usize + 2;
        let bytes = input.bytes();
        let seen = bytes.len().min(window);
        let from = seen.min(self.scanned as usize);
        if let Some(at) = memchr(b'\n', &bytes[from..seen]) {
            return self.take(input, from + at, 1).map(Step::Message);
        }
        if seen == window {
            return Err(FramingError::TooLong { bytes_max: self.line_bytes_max as usize });
        }
        self.scanned = seen as u32;
        Ok(Step::NeedMore)
    }

    /// # Errors
    /// [`FramingError::EndWithin`] if the line contains an LF, or ends with a CR that would be lost;
    /// [`FramingError::TooLong`].
    #[inline]
    fn encode(&mut self, line: Payload, out: &mut Output<'_>) -> Result<(), FramingError> {
        line.write_framed(out, |line| self.envelope(line))
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        match self.decode(input, reply)? {
            Step::NeedMore if input.is_empty() => Ok(Step::End),
            Step::NeedMore if self.open_end => self.take(input, input.len(), 0).map(Step::Message),
            Step::NeedMore => Err(FramingError::Truncated { bytes: input.len() }),
            step => Ok(step),
        }
    }
}

impl Broadcast for Lines {}

/// The default for the longest line, in bytes, its end not counted.
pub const LINE_BYTES_MAX: usize = 8 * 1024;

const _: () = assert!(size_of::<Lines>() <= 12);

#[cfg(test)]
mod tests {
    use super::super::tests::{encode, run};
    use super::*;

    #[test]
    fn lf_and_crlf_end_a_line_and_a_lone_cr_does_not() {
        let (lines, end) = run(Lines::new(), b"a\n\nb\r\n\r\nc\rd\n\r\r\n");
        assert_eq!(lines, ["a", "", "b", "", "c\\rd", "\\r"]);
        assert_eq!(end, Ok(()));
    }

    #[test]
    fn a_line_as_long_as_the_limit_passes_with_either_end() {
        for wire in [&b"abcd\n"[..], b"abcd\r\n"] {
            assert_eq!(run(Lines::new().with_line_bytes_max(4), wire), (vec!["abcd".to_owned()], Ok(())));
        }
    }

    #[test]
    fn a_line_longer_than_the_limit_is_refused_before_its_end_has_come() {
        let too_long = Err(FramingError::TooLong { bytes_max: 4 });
        for wire in [&b"abcde\n"[..], b"abcde\r\n", b"abcdef", b"abcd\rx"] {
            let (lines, end) = run(Lines::new().with_line_bytes_max(4), wire);
            assert_eq!((lines.len(), end), (0, too_long), "{}", wire.escape_ascii());
        }
        let (_, end) = run(Lines::new().with_line_bytes_max(4).with_open_end(), b"abcde");
        assert_eq!(end, too_long);
    }

    #[test]
    fn bytes_after_the_last_line_end_are_truncated_unless_configured() {
        assert_eq!(run(Lines::new(), b"a\nbc").1, Err(FramingError::Truncated { bytes: 2 }));
        assert_eq!(run(Lines::new(), b"a\n").1, Ok(()));
        let open = Lines::new().with_open_end();
        assert_eq!(run(open.clone(), b"a\nbc").0, ["a", "bc"]);
        assert_eq!(run(open.clone(), b"a\nbc\r").0, ["a", "bc"]);
        assert_eq!(run(open.clone(), b"a\n").0, ["a"]);
        assert_eq!(run(open.clone(), b"").0, [""; 0]);
    }

    #[test]
    fn written_lines_end_as_configured() {
        assert_eq!(encode(Lines::new(), "ebb").unwrap(), b"ebb\n");
        assert_eq!(encode(Lines::new().with_crlf(), "ebb").unwrap(), b"ebb\r\n");
        assert_eq!(encode(Lines::new(), "").unwrap(), b"\n");
    }

    #[test]
    fn a_line_that_would_not_come_back_the_same_is_refused() {
        let lines = Lines::new().with_line_bytes_max(4);
        assert_eq!(encode(lines.clone(), "a\nb"), Err(FramingError::EndWithin { at: 1 }));
        assert_eq!(encode(lines.clone(), "ab\r"), Err(FramingError::EndWithin { at: 2 }));
        assert_eq!(encode(lines.clone().with_crlf(), "ab\r").unwrap(), b"ab\r\r\n");
        assert_eq!(encode(lines.clone(), "a\rb").unwrap(), b"a\rb\n");
        assert_eq!(encode(lines.clone(), "abcde"), Err(FramingError::TooLong { bytes_max: 4 }));
        assert_eq!(encode(lines, "abcd").unwrap(), b"abcd\n");
    }

    #[test]
    fn an_encoded_line_is_written_as_it_is() {
        let lines = Lines::new();
        let once = lines.encoded(b"ebb").unwrap();
        assert_eq!(once, &b"ebb\n"[..]);
        assert_eq!(encode(lines.clone(), Payload::Encoded(once)).unwrap(), b"ebb\n");
        assert!(lines.encoded(b"\n").is_err());
    }

    #[test]
    #[should_panic(expected = "holds nothing")]
    fn a_limit_of_zero_is_refused() {
        let _ = Lines::new().with_line_bytes_max(0);
    }
}
