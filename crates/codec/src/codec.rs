//! `Codec`: one protocol, free of I/O.

use std::time::Instant;

use tidegate_buffer::{Input, Outbound, Pool, Slice, WritePosition};

use crate::fault::Fault;
use crate::output::Output;

/// What decoding came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<T> {
    /// A message; there may be more in the input.
    Message(T),
    /// The next message is not complete.
    NeedMore,
    /// There will be no further message, whatever the peer sends.
    End,
}

impl<T> Step<T> {
    /// The same step with another message: what a codec over a framing does with each frame.
    ///
    /// ```
    /// use tidegate_codec::Step;
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
/// The loop calls [`decode`](Codec::decode) until it says [`More`](Step::NeedMore); every call either yields a message or
/// needs more input, so a codec that yields without consuming has to come to an end by itself. A codec never
/// blocks, never panics on what a peer sent, and refuses what is too large *before* it allocates for it.
///
/// Only [`decode`](Codec::decode) and [`encode`](Codec::encode) have to be written. A stack of stages is a codec as
/// well, [`Over`](crate::Over), and most of the other methods are there for it.
///
/// ```
/// use std::convert::Infallible;
/// use tidegate_codec::{Codec, Input, Output, Slice, Step};
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
    /// What can go wrong, sorted by blame.
    type Error: Fault;

    /// Decodes the next message. What the protocol answers by itself goes to `reply`.
    ///
    /// # Errors
    /// The connection is closed once what is in `reply`, the last word to the peer included, was sent.
    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Self::In>, Self::Error>;

    /// Encodes a message.
    ///
    /// # Errors
    /// The message cannot be said in this protocol, at least not now. Nothing was written, and the connection lives.
    fn encode(&mut self, message: Self::Out, out: &mut Output<'_>) -> Result<(), Self::Error>;

    /// Writes a message that a codec of the same kind has encoded already, with [`encode_once`](Codec::encode_once): how
    /// a broadcast encodes once. The bytes are linked whatever their size, so that all queues share them.
    ///
    /// A codec whose encoding depends on what was said on the connection before has to refuse it.
    ///
    /// # Errors
    /// As for [`encode`](Codec::encode).
    fn encoded(&mut self, bytes: Slice, out: &mut Output<'_>) -> Result<(), Self::Error> {
        out.link_shared(bytes);
        Ok(())
    }

    /// Encodes a message for [`encoded`](Codec::encoded) of other connections; [`Encoded`](crate::Encoded) is what calls
    /// it. This codec is on no connection of its own, and what it holds back is written at once.
    ///
    /// # Errors
    /// As for [`encode`](Codec::encode).
    fn encode_once(&mut self, message: Self::Out, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.encode(message, out)?;
        self.flush(out)
    }

    /// Decodes after the peer has shut down its sending side, until this says [`Step::End`].
    ///
    /// [`Step::NeedMore`] says that the next message has to wait until something was encoded.
    ///
    /// The default decodes what is complete and ends; what is left is cut off. A protocol to which that matters
    /// says so with an error.
    ///
    /// # Errors
    /// As for [`decode`](Codec::decode).
    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Self::In>, Self::Error> {
        Ok(match self.decode(input, reply)? {
            Step::Message(message) => Step::Message(message),
            Step::NeedMore | Step::End => Step::End,
        })
    }

    /// Makes progress that nobody asked for: handshakes, acknowledgements. Yields no message.
    ///
    /// # Errors
    /// As for [`decode`](Codec::decode).
    fn drive_handshake(&mut self, _input: &mut Input, _reply: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Whether bytes have to be read even if the application wants no message: during a handshake.
    fn wants_input(&self) -> bool {
        false
    }

    /// Whether messages can be exchanged; false during a handshake.
    fn is_established(&self) -> bool {
        true
    }

    /// Whether all that this protocol will ever say on the connection has been said, both ways. The loop then
    /// closes it, once everything was sent.
    fn is_finished(&self) -> bool {
        false
    }

    /// Whether [`is_finished`](Codec::is_finished) tells when a connection is over. Then a handler does not close it
    /// when the peer has ended its stream.
    fn knows_its_end(&self) -> bool {
        false
    }

    /// Whether decoding cannot go on until something is encoded. Bytes that arrive meanwhile are left with the kernel,
    /// so that a peer cannot fill our memory while it waits for an answer.
    fn is_blocked(&self) -> bool {
        false
    }

    /// Whether the end of the connection would now look like the end of a message, though it is not. A connection that
    /// fails is then cut off instead of ended.
    fn ends_with_connection(&self) -> bool {
        false
    }

    /// Decoding was suspended by the application, since no task asks for a message, or because the peer did not read, and
    /// goes on: the peer could not be heard meanwhile, so its time starts anew, or goes on where it was. This may be said
    /// several times for one suspension.
    fn restart_timeouts(&mut self, _now: Instant) {}

    /// The application failed in the middle of a message: what the protocol says to the peer in that case, before
    /// the connection is closed.
    fn fail(&mut self, _out: &mut Output<'_>) {}

    /// The application wants to end: the protocol lets the peer know, or takes no further message. Bytes that were
    /// accepted are still sent.
    ///
    /// # Errors
    /// As for [`decode`](Codec::decode).
    fn drain(&mut self, _reply: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The connection is about to be closed in good order: the last word of the protocol, if it has one.
    ///
    /// # Errors
    /// As for [`decode`](Codec::decode).
    fn close(&mut self, _out: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Writes what was held back in order to be sent together.
    ///
    /// # Errors
    /// As for [`decode`](Codec::decode).
    fn flush(&mut self, _out: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Bytes held back; they count against the water marks.
    fn buffered_bytes(&self) -> usize {
        0
    }

    /// Bytes of memory in which it keeps input that it has taken and not decoded: they count when a loop's memory is
    /// used up. Only a codec with an [`Input`] of its own has some.
    fn input_memory(&self) -> usize {
        0
    }

    /// The bytes that the uppermost codec of the pipeline has produced so far; `queue` is the one below this codec.
    fn mark(&self, queue: &Outbound) -> WritePosition {
        queue.written()
    }

    /// The offset in the queue below at which everything up to `mark` has been written, once that is known.
    fn wire_offset(&self, mark: WritePosition) -> Option<u64> {
        Some(mark.0)
    }

    /// A queue whose next piece is in a file that has to be read, because a filter must see its bytes. The engine
    /// reads it, piece by piece, and flushes again.
    fn file_to_load(&mut self) -> Option<&mut Outbound> {
        None
    }

    /// Moves what is left of the input into memory of its own, so that nothing keeps the loop's scratch. Only a
    /// codec with an [`Input`] of its own has to do something.
    fn compact(&mut self, _pool: &Pool) {}

    /// When [`handle_timeout`](Codec::handle_timeout) is to be called, if at all.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The time that [`poll_timeout`](Codec::poll_timeout) named has come.
    ///
    /// # Errors
    /// The connection is closed, as for [`decode`](Codec::decode).
    fn handle_timeout(&mut self, _reply: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }
}
