//! `Codec`: one protocol, free of I/O.

use std::time::Instant;

use tidegate_buffer::{BULK_RECEIVE_BYTES, Input, ReceiveHint};

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

/// The name of a type, without its path and its parameters.
pub(crate) fn type_name<T: ?Sized>() -> &'static str {
    let name = std::any::type_name::<T>();
    let name = name.split('<').next().unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name)
}

/// An event of a connection, for [`Codec::on`].
///
/// ```text
///           ┌────────────────────────────┐
///           ▼                            │ Resumed, Drain
///  Opened ─────▶ decode, encode, timeouts ─┬─▶ Close ──▶ the pending bytes are sent; our side is shut down
///                                          ├─▶ Fail ───▶ Close, and so on
///                                          └─▶ a reset: the codec gets no event
/// ```
///
/// The connection closes when the application closes it (`Close`), when the protocol is complete
/// ([`CodecStatus::is_finished`], then `Close`), when the application fails (`Fail`, then `Close`), and when a method of the
/// codec returns an error (`Close`). It is reset, and the codec gets no event, when the peer or the application resets
/// it, and when the application fails while the codec is [`close_delimited`](CodecStatus::is_close_delimited).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lifecycle {
    /// The connection is open, and this codec gets its bytes from now on. It comes once, before every other call. A
    /// protocol in which this side speaks first writes its greeting now; below it, a filter may still be in its
    /// handshake.
    Opened,
    /// Decoding resumes: re-arm the deadline, or continue it. The application had suspended decoding because no task
    /// requests a message, or the loop had because the peer did not read; the codec could not see the peer's bytes
    /// meanwhile. One suspension may cause several of these.
    Resumed,
    /// The application shuts down: the protocol announces it to the peer, or accepts no further message. Accepted bytes
    /// are still sent.
    Drain,
    /// The application failed in the middle of a message: the codec writes the protocol's reply for that case.
    Fail,
    /// The connection is about to be closed: the codec writes the protocol's closing message, if it has one.
    Close,
}

/// The codec's state that the engine needs, for [`Codec::status`]. By default all is false and zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CodecStatus {
    /// The protocol is complete on this connection, in both directions. The loop closes it after everything was sent.
    pub is_finished: bool,
    /// The codec always reports the end of the connection by [`is_finished`](Self::is_finished), as in HTTP. Then
    /// neither the end of the peer's stream nor a drain closes the connection of a handler by default. This value does
    /// not change.
    pub reports_finish: bool,
    /// Decoding must wait until a message is encoded. Bytes that arrive meanwhile stay in the kernel, so that a peer
    /// cannot fill our memory while it waits for a response.
    pub is_blocked: bool,
    /// The end of the connection would now look like the end of a message, although it is not. A connection that fails
    /// is then reset instead of closed.
    pub is_close_delimited: bool,
    /// Bytes that the codec buffers until it may send them; they count against the water marks.
    pub buffered_bytes: usize,
}

/// One protocol: bytes in, messages out; messages in, bytes out.
///
/// The loop calls [`decode`](Codec::decode) until it returns [`NeedMore`](Step::NeedMore). Every call either yields a
/// message or needs more input, so a codec that yields without consuming must end on its own. A codec never blocks,
/// never panics on a peer's input, and refuses oversized input *before* it allocates for it.
///
/// Only [`decode`](Codec::decode) and [`encode`](Codec::encode) are required. A codec whose messages may be encoded
/// once for many connections is a [`Broadcast`](crate::Broadcast) as well. A codec, alone or [over](crate::Over) a
/// filter, is a [`Pipeline`](crate::Pipeline).
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
    /// The output of decoding; owned, though it may hold [`Slice`](tidegate_buffer::Slice)s.
    type In;
    /// The input of encoding.
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

    /// Something happens to the connection.
    ///
    /// # Errors
    /// As for [`decode`](Codec::decode).
    fn on(&mut self, _event: Lifecycle, _out: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The codec's state, as far as the engine has to know it. It is read after every dispatch, so it must be cheap.
    fn status(&self) -> CodecStatus {
        CodecStatus::default()
    }

    /// Bytes of memory that the codec keeps beside its input and its [`buffered_bytes`](CodecStatus::buffered_bytes):
    /// parts of a message that is not complete, contexts of compression. When the memory of a loop is used up, the loop
    /// closes the connections that keep the most. Report memory that comes from the [pool](tidegate_buffer::Pool), or
    /// has a [charge](tidegate_buffer::Charge), and nothing else: closing a connection for other memory would not help
    /// the loop.
    fn kept_bytes(&self) -> usize {
        0
    }

    /// How many bytes follow of which the codec makes messages as they come, however many come at a time: the rest of a
    /// body. If they are many, and the peer sends fast, the loop receives more of them at once. It is read after every
    /// dispatch, so it must be cheap.
    fn bulk_bytes(&self) -> u64 {
        0
    }

    /// How the next receive is best sized. A codec whose messages are long and decoded where they are whole returns
    /// [`whole_bytes`](ReceiveHint::whole_bytes). It is read after every dispatch, so it must be cheap; `None` for
    /// messages that a usual receive brings whole. By default a hint follows from [`bulk_bytes`](Codec::bulk_bytes).
    #[inline]
    fn receive_hint(&self) -> Option<ReceiveHint> {
        let missing = self.bulk_bytes();
        let hint =
            || ReceiveHint { missing_bytes: u32::try_from(missing).unwrap_or(u32::MAX), ..ReceiveHint::default() };
        (missing >= BULK_RECEIVE_BYTES as u64).then(hint)
    }

    /// Whether no message is in progress in either direction: the end of the connection would now cut off nothing. Then it
    /// is no error that the peer ends its stream without the closing message of a [filter](crate::Filter) below, as
    /// many TLS clients do between two requests (RFC 9112 §9.8).
    fn is_between_messages(&self) -> bool {
        false
    }

    /// The name of the protocol, for lists of connections: that of the type, unless the codec has a better one.
    fn protocol(&self) -> &'static str {
        type_name::<Self>()
    }

    /// The time of the next call of [`handle_timeout`](Codec::handle_timeout), if any.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The time that [`poll_timeout`](Codec::poll_timeout) returned has come. `input` has the bytes that have arrived and
    /// are not decoded, such as the begin of a message that is late, for a reply or a log; none of them is taken.
    ///
    /// # Errors
    /// The connection is closed, as for [`decode`](Codec::decode).
    fn handle_timeout(&mut self, _input: &Input, _reply: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }
}
