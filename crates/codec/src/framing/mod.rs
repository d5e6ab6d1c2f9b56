//! Framings: the codecs on which most protocols build.
//!
//! | framing | a frame is | its limit unless set |
//! |---|---|---|
//! | [`Lines`] | ended by LF or CRLF | 8 KiB |
//! | [`Delimiter`] | ended by any byte string | 64 KiB |
//! | [`Fixed`] | always as long | its length |
//! | [`LengthField`] | preceded by its length | 1 MiB |
//! | [`VarintLength`] | preceded by its length as a varint, as protocol buffers are | 1 MiB |
//! | [`Json`] | a JSON object, array or string | 1 MiB, 64 within each other |
//! | [`Raw`] | whatever has arrived | none, and needs none |
//!
//! All yield [`Slice`]s, views of the received bytes, and take [`Payload`]s. A framing refuses a message that it would
//! not decode to the same again; only [`Raw`] has no frames to keep apart. A framing refuses an oversized frame before
//! it allocates memory for it and before its end has arrived. A frame that the peer truncates is
//! [`FramingError::Truncated`].
//!
//! A broadcast frames a message once, with `encoded`, and sends a [`Payload::Encoded`] to every connection.
//!
//! Read next: `lines.rs`; the others are built alike.

mod delimiter;
mod error;
mod fixed;
mod json;
mod length_field;
mod lines;
mod payload;
mod raw;
mod varint;

pub use delimiter::{DELIMITED_BYTES_MAX, Delimiter};
pub use error::FramingError;
pub use fixed::Fixed;
pub use json::Json;
pub use length_field::{FRAME_BYTES_MAX, HEADER_BYTES_MAX, LengthField, LengthFieldBuilder};
pub use lines::{LINE_BYTES_MAX, Lines};
pub use payload::Payload;
pub use raw::Raw;
use tidegate_buffer::{Input, Slice};
pub use varint::VarintLength;

use crate::codec::Step;

/// The highest limit of any framing: an input stores a frame contiguously, and grows by doubling.
pub const LIMIT_BYTES_MAX: usize = 1 << 30;

/// Maps a step after the peer's end: a rest is truncated.
fn truncated_at_eof(step: Step<Slice>, input: &Input) -> Result<Step<Slice>, FramingError> {
    match step {
        Step::NeedMore if input.is_empty() => Ok(Step::End),
        Step::NeedMore => Err(FramingError::Truncated { bytes: input.len() }),
        step => Ok(step),
    }
}

/// Checks a limit when a framing is built.
const fn checked_limit(bytes: usize) -> u32 {
    assert!(bytes > 0, "a frame of no bytes at most holds nothing");
    assert!(bytes <= LIMIT_BYTES_MAX, "the limit of a frame is at most 1 GiB");
    bytes as u32
}

#[cfg(test)]
mod tests {
    //! Shared code of the unit tests of all framings.

    use std::time::{Instant, SystemTime};

    use tidegate_buffer::{Input, Outbound, Pool, Slice};

    use super::{FramingError, Payload};
    use crate::codec::{Codec, Step};
    use crate::output::{Output, Time};

    /// Decodes `wire` whole and byte by byte, with the same result, then ends: returns the messages and the final
    /// result.
    #[track_caller]
    pub(super) fn run<C>(codec: C, wire: &[u8]) -> (Vec<String>, Result<(), FramingError>)
    where
        C: Codec<In = Slice, Error = FramingError> + Clone,
    {
        let whole = run_in_pieces(codec.clone(), &[wire]);
        let bytes: Vec<&[u8]> = wire.chunks(1).collect();
        assert_eq!(whole, run_in_pieces(codec, &bytes), "whole and byte by byte");
        whole
    }

    fn run_in_pieces<C>(mut codec: C, pieces: &[&[u8]]) -> (Vec<String>, Result<(), FramingError>)
    where
        C: Codec<In = Slice, Error = FramingError>,
    {
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let (mut queue, mut input, mut messages) = (Outbound::new(&pool), Input::new(), Vec::new());
        let mut reply = Output::new(&mut queue, &pool, &time);
        for piece in pieces {
            input.append(pool.copy(piece), &pool);
            loop {
                match codec.decode(&mut input, &mut reply) {
                    Ok(Step::Message(message)) => messages.push(message.escape_ascii().to_string()),
                    Ok(Step::NeedMore) => break,
                    Ok(Step::End) => unreachable!("a framing does not end by itself"),
                    Err(error) => return (messages, Err(error)),
                }
            }
        }
        loop {
            match codec.decode_eof(&mut input, &mut reply) {
                Ok(Step::Message(message)) => messages.push(message.escape_ascii().to_string()),
                Ok(Step::NeedMore) => unreachable!("more will not come"),
                Ok(Step::End) => return (messages, Ok(())),
                Err(error) => return (messages, Err(error)),
            }
        }
    }

    /// Encodes one message; a refused one must leave the queue unchanged.
    #[track_caller]
    pub(super) fn encode<C>(mut codec: C, message: impl Into<Payload>) -> Result<Vec<u8>, C::Error>
    where
        C: Codec<Out = Payload>,
    {
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let mut queue = Outbound::new(&pool);
        let done = codec.encode(message.into(), &mut Output::new(&mut queue, &pool, &time));
        assert!(done.is_ok() || queue.written().0 == 0, "a refused message was written");
        queue.flush();
        let mut bytes = Vec::new();
        while let Some(front) = queue.front() {
            let length = front.len() as u64;
            bytes.extend_from_slice(front);
            queue.advance(length);
        }
        done.map(|()| bytes)
    }
}
