//! `Pipeline`: a codec with the filters below it, as the engine sees it.

use std::time::Instant;

use tidegate_buffer::{Input, Outbound, Pool, ReceiveHint, Slice, WritePosition};

use crate::codec::{Codec, CodecStatus, Lifecycle, Step};
use crate::fault::Fault;
use crate::output::Output;

/// A [`Codec`], alone or over filters: the bound of everything that works with and without TLS. Every codec is a
/// pipeline, and [`Over`](crate::Over) a pipeline is one again; in [`DynOver`](crate::DynOver) the types of the filters
/// are erased. There are no others.
///
/// ```
/// use tidegate::codec::Pipeline;
/// use tidegate::framing::Payload;
/// use tidegate::{Channel, ChannelError, Slice};
///
/// async fn echo<P: Pipeline<In = Slice, Out = Payload>>(mut channel: Channel<P>) -> Result<(), ChannelError> {
///     while let Some(message) = channel.recv().await? {
///         channel.send(message.into())?;
///     }
///     Ok(())
/// }
/// ```
pub trait Pipeline: Stages {}

impl<P: Stages> Pipeline for P {}

/// The stages of a pipeline, as the engine drives them. An application names [`Pipeline`], and needs this trait only to
/// call the stages itself, in a test for example. The methods that [`Codec`] has as well mean the same here, so import
/// one of the two.
pub trait Stages: sealed::Sealed + 'static {
    /// The output of decoding.
    type In;
    /// The input of encoding.
    type Out;
    /// The error of any stage, sorted by blame.
    type Error: Fault;
    /// The uppermost codec.
    type Codec: Codec;

    /// The uppermost codec.
    fn codec(&self) -> &Self::Codec;

    /// The uppermost codec, and the output that it writes to; `out` is the queue below this pipeline.
    fn uppermost<'a>(&'a mut self, out: Output<'a>) -> (&'a mut Self::Codec, Output<'a>);

    /// As [`Codec::decode`].
    ///
    /// # Errors
    /// As [`Codec::decode`].
    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Self::In>, Self::Error>;

    /// As [`Codec::encode`]; below the codec, filters process the bytes when the pipeline is flushed.
    ///
    /// # Errors
    /// As [`Codec::encode`].
    fn encode(&mut self, message: Self::Out, out: &mut Output<'_>) -> Result<(), Self::Error>;

    /// As [`Codec::decode_eof`].
    ///
    /// # Errors
    /// As [`Codec::decode`].
    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Self::In>, Self::Error>;

    /// As [`Codec::on`]. At [`Lifecycle::Close`] every stage writes its closing message, the uppermost first.
    ///
    /// # Errors
    /// As [`Codec::decode`].
    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Self::Error>;

    /// As [`Codec::status`].
    fn status(&self) -> CodecStatus;

    /// As [`Codec::poll_timeout`]: the soonest time of any stage.
    fn poll_timeout(&self) -> Option<Instant>;

    /// As [`Codec::handle_timeout`], for the stages whose time has come.
    ///
    /// # Errors
    /// As [`Codec::decode`].
    fn handle_timeout(&mut self, input: &Input, reply: &mut Output<'_>) -> Result<(), Self::Error>;

    /// As [`Codec::is_between_messages`].
    fn is_between_messages(&self) -> bool;

    /// The urgency that the peer has asked for, as [`Filter::urgency`](crate::Filter::urgency).
    fn urgency(&self) -> Option<u8> {
        None
    }

    /// As [`Filter::receive_hint`](crate::Filter::receive_hint), of the lowest filter; as [`Codec::receive_hint`], of a
    /// codec alone.
    fn receive_hint(&self) -> Option<ReceiveHint> {
        None
    }

    /// The names of the protocols, the uppermost first.
    fn protocols(&self, name: &mut dyn FnMut(&'static str)) {
        name(self.codec().protocol());
    }

    /// Whether messages can be exchanged; false while a filter is in its handshake.
    fn is_established(&self) -> bool {
        true
    }

    /// Makes progress with the handshakes of filters, without a request of the application. Yields no message.
    ///
    /// # Errors
    /// As [`Codec::decode`].
    fn drive_handshake(&mut self, _input: &mut Input, _reply: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Passes the encoded bytes through the filters.
    ///
    /// # Errors
    /// As [`Codec::decode`].
    fn flush(&mut self, _out: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Bytes that filters, or the queues between the stages, buffer; they count against the water marks.
    fn buffered_bytes(&self) -> usize {
        0
    }

    /// Bytes of memory that buffer input between the stages; they count when a loop's memory is used up.
    fn input_memory(&self) -> usize {
        0
    }

    /// As [`Codec::kept_bytes`], of all stages.
    fn kept_bytes(&self) -> usize {
        0
    }

    /// The write position of the uppermost codec; `queue` is the queue below this pipeline.
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

    /// Moves the input between the stages into memory of its own, so that it does not pin the loop's scratch.
    fn compact(&mut self, _pool: &Pool) {}
}

impl<C: Codec> Stages for C {
    type In = C::In;
    type Out = C::Out;
    type Error = C::Error;
    type Codec = C;

    #[inline(always)]
    fn codec(&self) -> &C {
        self
    }

    #[inline(always)]
    fn uppermost<'a>(&'a mut self, out: Output<'a>) -> (&'a mut C, Output<'a>) {
        (self, out)
    }

    #[inline(always)]
    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<C::In>, C::Error> {
        Codec::decode(self, input, reply)
    }

    #[inline(always)]
    fn encode(&mut self, message: C::Out, out: &mut Output<'_>) -> Result<(), C::Error> {
        Codec::encode(self, message, out)
    }

    #[inline(always)]
    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<C::In>, C::Error> {
        Codec::decode_eof(self, input, reply)
    }

    #[inline(always)]
    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), C::Error> {
        Codec::on(self, event, out)
    }

    #[inline(always)]
    fn status(&self) -> CodecStatus {
        Codec::status(self)
    }

    #[inline(always)]
    fn receive_hint(&self) -> Option<ReceiveHint> {
        Codec::receive_hint(self)
    }

    #[inline(always)]
    fn buffered_bytes(&self) -> usize {
        Codec::status(self).buffered_bytes
    }

    fn kept_bytes(&self) -> usize {
        Codec::kept_bytes(self)
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        Codec::poll_timeout(self)
    }

    #[inline(always)]
    fn handle_timeout(&mut self, input: &Input, reply: &mut Output<'_>) -> Result<(), C::Error> {
        Codec::handle_timeout(self, input, reply)
    }

    fn is_between_messages(&self) -> bool {
        Codec::is_between_messages(self)
    }
}

/// A protocol in which a message has the same bytes on every connection at any time, so that a message for many
/// connections is encoded once: a [`Group`](https://docs.rs/tidegate/latest/tidegate/struct.Group.html) sends it.
///
/// A codec whose encoding depends on the connection's earlier messages, as an HTTP codec's does, must not implement it.
/// The defaults suit a codec that writes only the messages of [`encode`](Stages::encode).
///
/// ```
/// use std::convert::Infallible;
/// use tidegate::codec::{Broadcast, Codec, Input, Output, Step};
///
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
///
/// impl Broadcast for Bytewise {}
/// ```
#[diagnostic::on_unimplemented(
    message = "messages of `{Self}` cannot be broadcast",
    label = "this codec does not implement `tidegate::codec::Broadcast`",
    note = "`impl Broadcast for {Self} {{}}` is right for a codec whose messages have the same bytes on every connection"
)]
pub trait Broadcast: Pipeline {
    /// Encodes a message for [`write_encoded`](Broadcast::write_encoded) of other connections;
    /// [`Encoded`](crate::Encoded) calls it. This codec belongs to no connection.
    ///
    /// # Errors
    /// As for [`encode`](Stages::encode).
    fn encode_once(&mut self, message: Self::Out, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.encode(message, out)
    }

    /// Writes a message that a codec of the same kind has already encoded. The bytes are linked whatever their size, so
    /// that all queues share them.
    ///
    /// # Errors
    /// As for [`encode`](Stages::encode).
    fn write_encoded(&mut self, bytes: Slice, out: &mut Output<'_>) -> Result<(), Self::Error> {
        out.link_shared(bytes);
        Ok(())
    }
}

pub(crate) mod sealed {
    use super::Codec;

    pub trait Sealed {}

    impl<C: Codec> Sealed for C {}
}
