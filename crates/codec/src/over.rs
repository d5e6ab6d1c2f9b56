//! `Over`: a codec over a filter.

use std::fmt;
use std::time::Instant;

use tidegate_buffer::{Input, Outbound, Pool, ReceiveHint, Slice, WritePosition};

use crate::codec::{CodecStatus, Lifecycle, Step};
use crate::fault::{Blame, Fault};
use crate::filter::Filter;
use crate::output::Output;
use crate::pipeline::{Broadcast, Pipeline, Stages, sealed};
use crate::reset_cause::ResetCause;

/// The codec `C` over the filter `F`: `Over<Tls, http1::Server>` speaks HTTP over TLS.
///
/// Between the two it keeps the plain bytes: an [`Input`] that the codec reads, and a gather buffer, an [`Outbound`],
/// in which the codec's writes wait for the filter. On an idle connection both are empty and without memory.
#[derive(Debug)]
pub struct Over<F, C> {
    filter: F,
    codec: C,
    plain: Input,
    gather: Outbound,
    /// The offset in the queue below when the filter last had no buffered bytes.
    wire: u64,
    /// The peer's side of the filter has ended.
    ended: bool,
    /// The filter has written its closing bytes.
    closed: bool,
}

impl<F: Filter, C: Pipeline> Over<F, C> {
    /// Stacks `codec` on `filter`.
    #[must_use]
    pub fn new(filter: F, codec: C) -> Self {
        Self::of_both(filter, codec)
    }

    /// The filter below.
    pub fn filter(&self) -> &F {
        &self.filter
    }

    /// The filter below, mutable.
    pub fn filter_mut(&mut self) -> &mut F {
        &mut self.filter
    }

    /// The codec above.
    pub fn codec(&self) -> &C {
        &self.codec
    }

    /// The codec above, mutable: to change its settings, for example.
    pub fn codec_mut(&mut self) -> &mut C {
        &mut self.codec
    }

    /// Replaces the codec. Bytes that were already read, and bytes that wait, are kept.
    #[must_use]
    pub fn map<D: Pipeline>(self, to: impl FnOnce(C) -> D) -> Over<F, D> {
        let Self { filter, codec, plain, gather, wire, ended, closed } = self;
        Over { filter, codec: to(codec), plain, gather, wire, ended, closed }
    }

    /// Takes the stack apart after the filter has ended, while the connection continues without it. Returns the filter,
    /// the codec, and the plain bytes that the codec has not decoded; they precede the bytes still on the wire.
    ///
    /// Decode until [`Step::End`] first: bytes that the filter has not converted stay in the connection's input and
    /// would be read as plain bytes. Also [flush](Stages::flush) first: encoded bytes that have
    /// not passed through the filter are lost.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::time::{Instant, SystemTime};
    /// use tidegate::codec::{Filter, Input, Outbound, Output, Over, Pool, Stages, Step, Time};
    /// use tidegate::framing::Lines;
    ///
    /// /// Upper case up to the first full stop.
    /// struct Shout;
    ///
    /// impl Filter for Shout {
    ///     type Error = Infallible;
    ///
    ///     fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Infallible> {
    ///         let Some(&byte) = wire.bytes().first() else { return Ok(Step::NeedMore) };
    ///         wire.consume(1);
    ///         if byte == b'.' {
    ///             return Ok(Step::End);
    ///         }
    ///         plain.append(reply.pool().copy(&[byte.to_ascii_uppercase()]), reply.pool());
    ///         Ok(Step::Message(()))
    ///     }
    ///
    ///     fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Infallible> {
    ///         out.take_flushed(plain);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
    /// let (mut queue, mut input) = (Outbound::new(&pool), Input::new());
    /// let mut out = Output::new(&mut queue, &pool, &time);
    /// input.append(pool.copy(b"ebb\n.flow\n"), &pool);
    ///
    /// let mut shouted = Over::new(Shout, Lines::new());
    /// let Step::Message(line) = shouted.decode(&mut input, &mut out)? else { panic!("a line is complete") };
    /// assert_eq!(&*line, b"EBB");
    /// assert_eq!(shouted.decode(&mut input, &mut out)?, Step::End);
    ///
    /// let (_, mut lines, rest) = shouted.into_parts();
    /// assert!(rest.is_empty());
    /// let Step::Message(line) = lines.decode(&mut input, &mut out)? else { panic!("a line is complete") };
    /// assert_eq!(&*line, b"flow");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_parts(self) -> (F, C, Input) {
        (self.filter, self.codec, self.plain)
    }

    fn decode_plain(&mut self, reply: &Output<'_>) -> Result<Step<C::In>, <Self as Stages>::Error> {
        let mut reply = reply.with_queue(&mut self.gather);
        let step = if self.ended {
            self.codec.decode_eof(&mut self.plain, &mut reply)
        } else {
            self.codec.decode(&mut self.plain, &mut reply)
        };
        step.map_err(OverError::Codec)
    }

    /// Decodes until there is a message or the filter needs more bytes.
    fn advance(&mut self, wire: &mut Input, reply: &mut Output<'_>) -> Result<Step<C::In>, <Self as Stages>::Error> {
        self.plain.set_escaping(wire.is_escaping());
        loop {
            match self.decode_plain(reply) {
                Ok(Step::NeedMore) if !self.ended => {}
                Ok(step) => return Ok(step),
                Err(error) => {
                    // The codec's final message must pass through the filter.
                    self.flush(reply)?;
                    return Err(error);
                }
            }
            match self.filter.inbound(wire, &mut self.plain, reply).map_err(OverError::Filter)? {
                Step::Message(()) => {}
                Step::NeedMore => return Ok(Step::NeedMore),
                Step::End => self.ended = true,
            }
        }
    }

    fn flush_codec(&mut self, out: &mut Output<'_>) -> Result<(), OverError<F::Error, C::Error>> {
        if self.closed {
            // Bytes behind the closing bytes can never be sent. They must not keep the connection open.
            self.gather.clear();
        }
        self.gather.flush();
        self.filter.outbound(&mut self.gather, out).map_err(OverError::Filter)?;
        self.filter.flush(out).map_err(OverError::Filter)?;
        if self.filter.buffered_bytes() == 0 {
            self.wire = out.written().0;
        }
        Ok(())
    }
}

impl<F, C> Over<F, C> {
    /// A filter and the stages above it.
    pub(crate) fn of_both(filter: F, codec: C) -> Self {
        Self { filter, codec, plain: Input::new(), gather: Outbound::default(), wire: 0, ended: false, closed: false }
    }

    /// The filter and the stages above it, mutable.
    pub(crate) fn both_mut(&mut self) -> (&mut F, &mut C) {
        (&mut self.filter, &mut self.codec)
    }

    /// Replaces the filter and the codec by the results of the functions. Bytes that were already read, and bytes that
    /// wait, are kept.
    pub(crate) fn map_both<G, D>(self, filter: impl FnOnce(F) -> G, codec: impl FnOnce(C) -> D) -> Over<G, D> {
        let Self { filter: old, codec: above, plain, gather, wire, ended, closed } = self;
        Over { filter: filter(old), codec: codec(above), plain, gather, wire, ended, closed }
    }
}

impl<F: Filter, C: Pipeline> Stages for Over<F, C> {
    type In = C::In;
    type Out = C::Out;
    type Error = OverError<F::Error, C::Error>;
    type Codec = C::Codec;

    fn codec(&self) -> &C::Codec {
        self.codec.codec()
    }

    fn uppermost<'a>(&'a mut self, out: Output<'a>) -> (&'a mut C::Codec, Output<'a>) {
        self.codec.uppermost(out.with_queue(&mut self.gather))
    }

    #[inline]
    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<C::In>, Self::Error> {
        self.advance(input, reply)
    }

    #[inline]
    fn encode(&mut self, message: C::Out, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.codec.encode(message, &mut out.with_queue(&mut self.gather)).map_err(OverError::Codec)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<C::In>, Self::Error> {
        match self.advance(input, reply)? {
            Step::NeedMore => {
                if let Err(error) = self.filter.decode_eof(input, reply) {
                    // A stream that is cut off between two messages has lost none of them.
                    if !(input.is_empty() && self.is_between_messages()) {
                        return Err(OverError::Filter(error));
                    }
                }
                self.ended = true;
                self.advance(input, reply)
            }
            step => Ok(step),
        }
    }

    fn drive_handshake(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<(), Self::Error> {
        self.plain.set_escaping(input.is_escaping());
        loop {
            let mut moved = false;
            if !self.ended && !self.is_established() {
                match self.filter.inbound(input, &mut self.plain, reply).map_err(OverError::Filter)? {
                    Step::Message(()) => moved = true,
                    Step::NeedMore => {}
                    Step::End => self.ended = true,
                }
            }
            let mut inner = reply.with_queue(&mut self.gather);
            self.codec.drive_handshake(&mut self.plain, &mut inner).map_err(OverError::Codec)?;
            if !moved {
                return Ok(());
            }
        }
    }

    fn urgency(&self) -> Option<u8> {
        self.filter.urgency().or_else(|| self.codec.urgency())
    }

    fn receive_hint(&self) -> Option<ReceiveHint> {
        self.filter.receive_hint()
    }

    fn protocols(&self, name: &mut dyn FnMut(&'static str)) {
        self.codec.protocols(name);
        name(self.filter.protocol());
    }

    fn is_established(&self) -> bool {
        self.filter.is_established() && self.codec.is_established()
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.codec.on(event, &mut out.with_queue(&mut self.gather)).map_err(OverError::Codec)?;
        if event == Lifecycle::Close {
            self.flush(out)?;
            self.filter.close(out).map_err(OverError::Filter)?;
            self.closed = true;
        }
        Ok(())
    }

    fn status(&self) -> CodecStatus {
        self.codec.status()
    }

    #[inline]
    fn flush(&mut self, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.codec.flush(&mut out.with_queue(&mut self.gather)).map_err(OverError::Codec)?;
        self.flush_codec(out)
    }

    fn buffered_bytes(&self) -> usize {
        self.gather.cost() as usize + self.filter.buffered_bytes() + self.codec.buffered_bytes()
    }

    fn input_memory(&self) -> usize {
        self.plain.memory_bytes() + self.codec.input_memory()
    }

    fn kept_bytes(&self) -> usize {
        self.filter.kept_bytes() + self.codec.kept_bytes()
    }

    fn write_position(&self, _: &Outbound) -> WritePosition {
        self.codec.write_position(&self.gather)
    }

    fn wire_offset(&self, position: WritePosition) -> Option<u64> {
        let plain = self.codec.wire_offset(position)?;
        (self.gather.sent().0 >= plain && self.filter.buffered_bytes() == 0).then_some(self.wire)
    }

    fn file_to_load(&mut self) -> Option<&mut Outbound> {
        if self.codec.file_to_load().is_some() {
            return self.codec.file_to_load();
        }
        (!self.filter.allows_file_bypass() && self.gather.starts_with_file()).then_some(&mut self.gather)
    }

    fn compact(&mut self, pool: &Pool) {
        self.plain.compact(pool);
        self.codec.compact(pool);
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        match (self.filter.poll_timeout(), self.codec.poll_timeout()) {
            (Some(below), Some(above)) => Some(below.min(above)),
            (below, above) => below.or(above),
        }
    }

    fn handle_timeout(&mut self, _: &Input, reply: &mut Output<'_>) -> Result<(), Self::Error> {
        let now = reply.now();
        if self.filter.poll_timeout().is_some_and(|at| at <= now) {
            self.filter.handle_timeout(reply).map_err(OverError::Filter)?;
        }
        if self.codec.poll_timeout().is_some_and(|at| at <= now) {
            let done = self.codec.handle_timeout(&self.plain, &mut reply.with_queue(&mut self.gather));
            self.flush(reply)?;
            done.map_err(OverError::Codec)?;
        }
        Ok(())
    }

    fn is_between_messages(&self) -> bool {
        self.plain.is_empty() && self.filter.is_established() && self.codec.is_between_messages()
    }
}

impl<F: Filter, C: Pipeline> sealed::Sealed for Over<F, C> {}

impl<F: Filter, C: Broadcast> Broadcast for Over<F, C> {
    /// Bypasses the filter: the peer of another connection could not read this filter's output.
    fn encode_once(&mut self, message: C::Out, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.codec.encode_once(message, out).map_err(OverError::Codec)
    }

    fn write_encoded(&mut self, bytes: Slice, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.codec.write_encoded(bytes, &mut out.with_queue(&mut self.gather)).map_err(OverError::Codec)
    }
}

/// An error of a filter, or of the codec above it.
#[derive(Debug)]
pub enum OverError<F, C> {
    /// The filter failed.
    Filter(F),
    /// The codec failed.
    Codec(C),
}

impl<F: Fault, C: Fault> Fault for OverError<F, C> {
    fn blame(&self) -> Blame {
        match self {
            Self::Filter(error) => error.blame(),
            Self::Codec(error) => error.blame(),
        }
    }

    fn reset_cause(&self) -> Option<ResetCause> {
        match self {
            Self::Filter(error) => error.reset_cause(),
            Self::Codec(error) => error.reset_cause(),
        }
    }
}

impl<F: fmt::Display, C: fmt::Display> fmt::Display for OverError<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filter(error) => error.fmt(f),
            Self::Codec(error) => error.fmt(f),
        }
    }
}

impl<F: std::error::Error + 'static, C: std::error::Error + 'static> std::error::Error for OverError<F, C> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Filter(error) => error.source(),
            Self::Codec(error) => error.source(),
        }
    }
}
