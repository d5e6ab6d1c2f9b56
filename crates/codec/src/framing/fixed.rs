//! `Fixed`: frames of equal length.

use tidegate_buffer::{Input, Slice};

use super::{FramingError, Payload, checked_limit, truncated_at_eof};
use crate::codec::{Codec, Step};
use crate::output::Output;
use crate::pipeline::Broadcast;

/// Frames of one length. There is nothing between them, and nothing to encode around them.
///
/// ```
/// use std::time::{Instant, SystemTime};
/// use tidegate::codec::{Codec, Input, Outbound, Output, Pool, Step, Time};
/// use tidegate::framing::Fixed;
///
/// let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
/// let (mut queue, mut input) = (Outbound::new(&pool), Input::new());
/// input.append(pool.copy(b"0423+0424+04"), &pool);
///
/// let (mut gauge, mut out) = (Fixed::new(5), Output::new(&mut queue, &pool, &time));
/// let Step::Message(level) = gauge.decode(&mut input, &mut out)? else { panic!("a frame is complete") };
/// assert_eq!(&*level, b"0423+");
/// assert!(gauge.encode("short".into(), &mut out).is_ok());
/// assert!(gauge.encode("too long".into(), &mut out).is_err());
/// # Ok::<(), tidegate::framing::FramingError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Fixed {
    length: u32,
}

impl Fixed {
    /// Frames of `length` bytes.
    ///
    /// # Panics
    /// If `length` is zero or exceeds [`LIMIT_BYTES_MAX`](super::LIMIT_BYTES_MAX).
    #[must_use]
    pub const fn new(length: usize) -> Self {
        Self { length: checked_limit(length) }
    }
}

impl Codec for Fixed {
    type In = Slice;
    type Out = Payload;
    type Error = FramingError;

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        let length = self.length as usize;
        Ok(if input.len() < length { Step::NeedMore } else { Step::Message(input.take(length)) })
    }

    /// # Errors
    /// [`FramingError::WrongLength`]. A [`Payload::Encoded`] is checked like any other.
    fn encode(&mut self, frame: Payload, out: &mut Output<'_>) -> Result<(), FramingError> {
        let (bytes, expected) = (frame.as_ref().len(), self.length as usize);
        if bytes != expected {
            return Err(FramingError::WrongLength { bytes, expected });
        }
        frame.write_bare(out);
        Ok(())
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        let step = self.decode(input, reply)?;
        truncated_at_eof(step, input)
    }
}

impl Broadcast for Fixed {}

#[cfg(test)]
mod tests {
    use super::super::tests::{encode, run};
    use super::*;

    #[test]
    fn frames_follow_each_other_without_anything_between() {
        assert_eq!(run(Fixed::new(3), b"abcdef"), (vec!["abc".to_owned(), "def".to_owned()], Ok(())));
        assert_eq!(run(Fixed::new(1), b"ab").0, ["a", "b"]);
    }

    #[test]
    fn a_part_of_a_frame_is_cut_off() {
        assert_eq!(run(Fixed::new(3), b"abcde"), (vec!["abc".to_owned()], Err(FramingError::Truncated { bytes: 2 })));
    }

    #[test]
    fn only_the_one_length_is_written() {
        assert_eq!(encode(Fixed::new(3), "abc").unwrap(), b"abc");
        for other in ["", "ab", "abcd"] {
            assert!(matches!(encode(Fixed::new(3), other), Err(FramingError::WrongLength { expected: 3, .. })));
        }
    }

    #[test]
    #[should_panic(expected = "holds nothing")]
    fn a_length_of_zero_is_refused() {
        let _ = Fixed::new(0);
    }
}
