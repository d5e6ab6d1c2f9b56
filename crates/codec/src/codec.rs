//! `Codec`: one protocol, free of I/O.

use std::time::Instant;

use tidegate_buffer::{Input, Outbound, Pool, Slice, WritePosition};

use crate::fault::Fault;
use crate::output::Output;

/// The result of a decoding step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<T> {
    /// A message; there may be more in the input.
    Message(T),
    /// The next message is not complete.
    NeedMore,
    /// No further message follows, whatever the peer sends.
    End,
}

impl<T> Step<T> {
    /// The same step with another message: a codec over a framing maps each frame with it.
    ///
    /// ```
    /// use tidegate::codec::Step;
    ///
    /// let parse = |text: &str| text.parse::<u32>();
    /// assert_eq!(Step::Message("412").try_map(parse), Ok(Step::Message(412)));
    /// assert_eq!(Step::NeedMore.try_map(parse), Ok(Step::NeedMore));
    /// assert!(Step::Message("high").try_map(parse).is_err());
    /// ```
    ///
    /// # Errors
    /// Those of `map`.
    pub fn try_map<U, E>(self, map: impl FnOnce(T) -> Result<U, E>) -> Result<Step<U>, E> {
        Ok(match self {
            Self::Message(message) => Step::Message(map(message)?),
            Self::NeedMore => Step::NeedMore,
            Self::End => Step::End,
        })
    }
}

/// One protocol: bytes in, messages out; messages in, bytes out.
///
/// The loop calls [`decode`](Codec::decode) until it returns [`NeedMore`](Step::NeedMore). Every call either yields a
/// message or needs more input, so a codec that yields without consuming must end on its own. A codec never blocks,
/// never panics on a peer's input, and refuses oversized input *before* it allocates for it.
///
/// Only [`decode`](Codec::decode) and [`encode`](Codec::encode) are required. A stack of stages is a codec as well,
/// [`Over`](crate::Over); most of the other methods exist for it.
///
/// ```
/// use std::convert::Infallible;
/// use tidegate::codec::{Codec, Input, Output, Slice, Step};
///
/// /// Every byte is a message.
/// struct Bytewise;
///
/// impl Codec for Bytewise {
///     type In = u8;
///     type Out = u8;
///     type Error = Infallible;
///
///     fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<u8>, Infallible> {
///         let Some(&byte) = input.bytes().first() else { return Ok(Step::NeedMore) };
///         input.consume(1);
///         Ok(Step::Message(byte))
///     }
///
///     fn encode(&mut self, byte: u8, out: &mut Output<'_>) -> Result<(), Infallible> {
///         out.write(&[byte]);
///         Ok(())
///     }
/// }
/// ```
pub trait Codec: 'static {
    /// What decoding yields; owned, though it may hold [`Slice`](tidegate_buffer::Slice)s.
    type In;
    /// What encoding takes.
    type Out;
    /// The error, sorted by blame.
    type Error: Fault;

    /// Decodes the next message. The protocol's own replies go to `reply`.
    ///
    /// # Errors
    /// The connection is closed after the content of `reply`, which includes the final reply to the peer, is sent.
    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Self::In>, Self::Error>;

    /// Encodes a message.
    ///
    /// # Errors
    /// The protocol cannot express the message, at least not now. Nothing was written, and the connection stays open.
    fn encode(&mut self, message: Self::Out, out: &mut Output<'_>) -> Result<(), Self::Error>;

    /// Writes a message that a codec of the same kind has already encoded with [`encode_once`](Codec::encode_once), so
    /// that a broadcast encodes once. The bytes are linked whatever their size, so that all queues share them.
    ///
    /// A codec whose encoding depends on the connection's earlier messages must refuse it.
    ///
    /// # Errors
    /// As for [`encode`](Codec::encode).
    fn write_encoded(&mut self, bytes: Slice, out: &mut Output<'_>) -> Result<(), Self::Error> {
        out.link_shared(bytes);
        Ok(())
    }

    /// Encodes a message for [`encoded`](Codec::write_encoded) of other connections; [`Encoded`](crate::Encoded) calls it.
    /// This codec belongs to no connection, and its buffered bytes are written at once.
    ///
    /// # Errors
    /// As for [`encode`](Codec::encode).
    fn encode_once(&mut self, message: Self::Out, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.encode(message, out)?;
        self.flush(out)
    }

    /// Decodes after the peer has shut down its sending side, until this returns [`Step::End`].
    ///
    /// [`Step::NeedMore`] means that the next message must wait until a message is encoded.
    ///
    /// The default decodes complete messages and then ends; an incomplete rest is discarded. A protocol for which a
    /// truncated message matters returns an error.
    ///
    /// # Errors
    /// As for [`decode`](Codec::decode).
    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Self::In>, Self::Error> {
        Ok(match self.decode(input, reply)? {
            Step::Message(message) => Step::Message(message),
            Step::NeedMore | Step::End => Step::End,
        })
    }

    /// Makes progress without a request of the application: handshakes, acknowledgements. Yields no message.
    ///
    /// # Errors
    /// As for [`decode`](Codec::decode).
    fn drive_handshake(&mut self, _input: &mut Input, _reply: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Whether the loop must read bytes even if the application wants no message: during a handshake.
    fn wants_input(&self) -> bool {
        false
    }

    /// Whether messages can be exchanged; false during a handshake.
    fn is_established(&self) -> bool {
        true
    }

    /// Whether the protocol is complete on this connection, in both directions. The loop then closes it after
    /// everything was sent.
    fn is_finished(&self) -> bool {
        false
    }

    /// Whether [`is_finished`](Codec::is_finished) reports the end of a connection. Then a handler does not close it at
    /// the end of the peer's stream.
    fn reports_finish(&self) -> bool {
        false
    }

    /// Whether decoding must wait until a message is encoded. Bytes that arrive meanwhile stay in the kernel, so that a
    /// peer cannot fill our memory while it waits for a response.
    fn is_blocked(&self) -> bool {
        false
    }

    /// Whether the end of the connection would now look like the end of a message, although it is not. A connection
    /// that fails is then reset instead of closed.
    fn is_close_delimited(&self) -> bool {
        false
    }

    /// Called when decoding resumes: re-arm the deadline, or continue it. The application had suspended decoding
    /// because no task requests a message, or the loop had because the peer did not read; the codec could not see the
    /// peer's bytes meanwhile. One suspension may cause several calls.
    fn restart_timeouts(&mut self, _now: Instant) {}

    /// The application failed in the middle of a message: writes the protocol's reply for that case, before the
    /// connection is closed.
    fn fail(&mut self, _out: &mut Output<'_>) {}

    /// The application shuts down: the protocol announces it to the peer, or accepts no further message. Accepted bytes
    /// are still sent.
    ///
    /// # Errors
    /// As for [`decode`](Codec::decode).
    fn drain(&mut self, _reply: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The connection is about to be closed without an error: writes the protocol's closing message, if it has one.
    ///
    /// # Errors
    /// As for [`decode`](Codec::decode).
    fn close(&mut self, _out: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Writes bytes that were buffered to be sent together.
    ///
    /// # Errors
    /// As for [`decode`](Codec::decode).
    fn flush(&mut self, _out: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Buffered bytes; they count against the water marks.
    fn buffered_bytes(&self) -> usize {
        0
    }

    /// Bytes of memory that buffer input which the codec has taken and not decoded; they count when a loop's memory is
    /// used up. Only a codec with an [`Input`] of its own has some.
    fn input_memory(&self) -> usize {
        0
    }

    /// The write position of the uppermost codec of the pipeline; `queue` is the one below this codec.
    fn write_position(&self, queue: &Outbound) -> WritePosition {
        queue.written()
    }

    /// The offset in the queue below at which everything up to `position` is written, as soon as that is known.
    fn wire_offset(&self, position: WritePosition) -> Option<u64> {
        Some(position.0)
    }

    /// A queue whose next piece is in a file that must be read, because a filter must process its bytes. The engine
    /// reads the file piece by piece, and flushes again.
    fn file_to_load(&mut self) -> Option<&mut Outbound> {
        None
    }

    /// Moves the remaining input into memory of its own, so that it does not pin the loop's scratch. Only a codec with
    /// an [`Input`] of its own has to implement it.
    fn compact(&mut self, _pool: &Pool) {}

    /// The time of the next call of [`handle_timeout`](Codec::handle_timeout), if any.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The time that [`poll_timeout`](Codec::poll_timeout) returned has come.
    ///
    /// # Errors
    /// The connection is closed, as for [`decode`](Codec::decode).
    fn handle_timeout(&mut self, _reply: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }
}
