//! `Raw`: no framing at all.

use std::convert::Infallible;

use tidegate_buffer::{Input, Slice};

use super::Payload;
use crate::codec::{Codec, CodecStatus, Step};
use crate::output::Output;
use crate::pipeline::Broadcast;

/// Every piece of received bytes is a message of at least one byte: for relays, and for the bytes between two
/// protocols.
///
/// Message boundaries have no meaning; they depend on how the bytes arrived. Large messages are not copied, nothing is
/// buffered, and there are no errors.
///
/// ```
/// use std::time::{Instant, SystemTime};
/// use tidegate::codec::{Codec, Input, Outbound, Output, Pool, Step, Time};
/// use tidegate::framing::Raw;
///
/// let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
/// let (mut queue, mut input) = (Outbound::new(&pool), Input::new());
/// input.append(pool.copy(b"ebb and fl"), &pool);
///
/// let mut out = Output::new(&mut queue, &pool, &time);
/// let Step::Message(bytes) = Raw.decode(&mut input, &mut out)? else { panic!("something has arrived") };
/// assert_eq!(&*bytes, b"ebb and fl");
/// assert_eq!(Raw.decode(&mut input, &mut out)?, Step::NeedMore);
/// Raw.encode(bytes.into(), &mut out)?;
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw;

impl Codec for Raw {
    type In = Slice;
    type Out = Payload;
    type Error = Infallible;

    fn protocol(&self) -> &'static str {
        "bytes"
    }

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Slice>, Infallible> {
        Ok(if input.is_empty() { Step::NeedMore } else { Step::Message(input.take_all()) })
    }

    fn encode(&mut self, bytes: Payload, out: &mut Output<'_>) -> Result<(), Infallible> {
        bytes.write_bare(out);
        Ok(())
    }

    /// Always close-delimited: only the end of the stream shows the receiver that the bytes are complete.
    fn status(&self) -> CodecStatus {
        CodecStatus { is_close_delimited: true, ..CodecStatus::default() }
    }
}

impl Broadcast for Raw {}

#[cfg(test)]
mod tests {
    use std::time::{Instant, SystemTime};

    use tidegate_buffer::{LINK_BYTES_MIN, Outbound, Pool};

    use super::super::tests::encode;
    use super::*;
    use crate::output::Time;

    #[test]
    fn arrived_bytes_are_one_message_and_no_bytes_are_none() {
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let (mut queue, mut input) = (Outbound::new(&pool), Input::new());
        let mut reply = Output::new(&mut queue, &pool, &time);
        assert_eq!(Raw.decode(&mut input, &mut reply), Ok(Step::NeedMore));
        for piece in [&b"e"[..], b"bb and", b" flow"] {
            input.append(pool.copy(piece), &pool);
            assert_eq!(Raw.decode(&mut input, &mut reply), Ok(Step::Message(pool.copy(piece))));
            assert_eq!(Raw.decode(&mut input, &mut reply), Ok(Step::NeedMore));
        }
        input.append(pool.copy(b"slack"), &pool);
        assert_eq!(Raw.decode_eof(&mut input, &mut reply), Ok(Step::Message(pool.copy(b"slack"))));
        assert_eq!(Raw.decode_eof(&mut input, &mut reply), Ok(Step::End));
    }

    #[test]
    fn bytes_are_written_as_they_are_and_none_are_nothing() {
        for message in ["", "e", "ebb\r\n\0flow"] {
            assert_eq!(encode(Raw, message).unwrap(), message.as_bytes());
        }
    }

    #[test]
    fn large_messages_are_received_and_sent_without_copying() {
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let (mut queue, mut input) = (Outbound::new(&pool), Input::new());
        let received = pool.copy(&[7; LINK_BYTES_MIN]);
        let at = received.as_ptr();
        input.append(received, &pool);
        let mut out = Output::new(&mut queue, &pool, &time);
        let Ok(Step::Message(bytes)) = Raw.decode(&mut input, &mut out) else { unreachable!("it has arrived") };
        assert_eq!(Raw.encode(bytes.into(), &mut out), Ok(()));
        queue.flush();
        assert_eq!(queue.front().map(<[u8]>::as_ptr), Some(at));
    }
}
