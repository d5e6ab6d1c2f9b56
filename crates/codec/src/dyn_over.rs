//! `DynOver`: a codec over filters whose types are erased.

use std::any::Any;
use std::fmt;
use std::time::Instant;

use tidegate_buffer::{Input, Outbound, Pool, ReceiveHint, Slice, WritePosition};

use crate::codec::{CodecStatus, Lifecycle, Step};
use crate::fault::{Blame, Fault};
use crate::filter::Filter;
use crate::output::Output;
use crate::over::{Over, OverError};
use crate::pipeline::{Broadcast, Pipeline, Stages, sealed};
use crate::reset_cause::ResetCause;

/// The codec `C`, alone or over the filters of a connection, whatever they are.
///
/// A connection that switches its protocol keeps its filters: TLS, for example. An application of the new protocol that
/// works with and without them has this pipeline, so its type does not depend on them. [`Filters::stack`] makes it.
///
/// Without filters a call costs one branch more than one of `C` does. Each filter is one allocation.
pub struct DynOver<C: Pipeline>(LowerPipeline<C>);

enum LowerPipeline<C: Pipeline> {
    Nothing(C),
    Filter(Box<Over<DynFilter, DynOver<C>>>),
}

/// The filters of a connection without the codec above them: with the bytes that they have converted and the codec has
/// not decoded, and the bytes that they have not converted yet.
///
/// ```
/// use std::convert::Infallible;
/// use tidegate::codec::{DynOver, Filter, Filters, Input, Outbound, Output, Over, Stages, Step};
/// use tidegate::framing::{LengthField, Lines};
///
/// /// Passes everything on.
/// struct Nothing;
///
/// impl Filter for Nothing {
///     type Error = Infallible;
///
///     fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Infallible> {
///         let count = wire.len();
///         wire.move_to(0..count, plain, reply.pool());
///         Ok(if count == 0 { Step::NeedMore } else { Step::Message(()) })
///     }
///
///     fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Infallible> {
///         out.take_flushed(plain);
///         Ok(())
///     }
/// }
///
/// let lines = Over::new(Nothing, Lines::new());
/// let filters = lines.into_filters(|_lines| Filters::default());
/// let frames: DynOver<LengthField> = filters.stack(LengthField::new(2));
/// assert!(frames.is_established());
/// ```
#[derive(Default)]
pub struct Filters {
    /// The uppermost first.
    layers: Vec<Over<DynFilter, ()>>,
}

impl Filters {
    /// Puts a filter on the others, so the lowest one comes first.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use tidegate::codec::{DynOver, Filter, Filters, Input, Outbound, Output, Step};
    /// use tidegate::framing::Lines;
    ///
    /// /// Passes everything on.
    /// struct Numbered(u32);
    ///
    /// impl Filter for Numbered {
    ///     type Error = Infallible;
    ///
    ///     fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Infallible> {
    ///         let count = wire.len();
    ///         wire.move_to(0..count, plain, reply.pool());
    ///         Ok(if count == 0 { Step::NeedMore } else { Step::Message(()) })
    ///     }
    ///
    ///     fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Infallible> {
    ///         out.take_flushed(plain);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut lines: DynOver<Lines> = Filters::default().with(Numbered(1)).with(Numbered(2)).stack(Lines::new());
    /// assert_eq!(lines.filter::<Numbered>().map(|filter| filter.0), Some(1));
    /// lines.filter_mut::<Numbered>().unwrap().0 = 3;
    /// assert_eq!(lines.filter::<Numbered>().map(|filter| filter.0), Some(3));
    /// ```
    #[must_use]
    pub fn with(mut self, filter: impl Filter) -> Self {
        self.layers.insert(0, Over::of_both(DynFilter::new(filter), ()));
        self
    }

    /// Puts a codec on the filters.
    #[must_use]
    pub fn stack<C: Pipeline>(self, codec: C) -> DynOver<C> {
        let bare = DynOver(LowerPipeline::Nothing(codec));
        self.layers.into_iter().fold(bare, |above, layer| {
            DynOver(LowerPipeline::Filter(Box::new(layer.map_both(|filter| filter, |()| above))))
        })
    }
}

impl<F: Filter, C: Pipeline> Over<F, C> {
    /// Takes the filters out of a pipeline, for another codec on them. `above` does the same with the codec above this
    /// filter: a plain one has none, so it returns [`Filters::default`].
    #[must_use]
    pub fn into_filters(self, above: impl FnOnce(C) -> Filters) -> Filters {
        let mut layers = None;
        let layer = self.map_both(DynFilter::new, |codec| layers = Some(above(codec).layers));
        let mut layers = layers.unwrap_or_default();
        layers.push(layer);
        Filters { layers }
    }
}

impl<C: Pipeline> DynOver<C> {
    /// Takes the filters out of a pipeline, for another codec on them, as [`Over::into_filters`] does.
    #[must_use]
    pub fn into_filters(self, above: impl FnOnce(C) -> Filters) -> Filters {
        match self.0 {
            LowerPipeline::Nothing(codec) => above(codec),
            LowerPipeline::Filter(over) => {
                let mut filters = Filters::default();
                let layer = over.map_both(|filter| filter, |codec| filters = codec.into_filters(above));
                filters.layers.push(layer);
                filters
            }
        }
    }

    /// The filter of a type, if there is one; the lowest of several.
    #[must_use]
    pub fn filter<F: Filter>(&self) -> Option<&F> {
        let LowerPipeline::Filter(over) = &self.0 else { return None };
        let filter: &dyn Any = &*over.filter().0;
        filter.downcast_ref().or_else(|| over.codec().filter())
    }

    /// The filter of a type, mutable.
    #[must_use]
    pub fn filter_mut<F: Filter>(&mut self) -> Option<&mut F> {
        let LowerPipeline::Filter(over) = &mut self.0 else { return None };
        let (filter, above) = over.both_mut();
        let filter: &mut dyn Any = &mut *filter.0;
        filter.downcast_mut().or_else(|| above.filter_mut())
    }

    /// The codec above the filters.
    #[must_use]
    pub fn above(&self) -> &C {
        match &self.0 {
            LowerPipeline::Nothing(codec) => codec,
            LowerPipeline::Filter(over) => over.codec().above(),
        }
    }

    /// The codec above the filters, mutable.
    pub fn above_mut(&mut self) -> &mut C {
        match &mut self.0 {
            LowerPipeline::Nothing(codec) => codec,
            LowerPipeline::Filter(over) => over.codec_mut().above_mut(),
        }
    }
}

/// A filter whose type is erased.
pub(crate) struct DynFilter(Box<dyn ErasedFilter>);

impl DynFilter {
    pub(crate) fn new(filter: impl Filter) -> Self {
        Self(Box::new(filter))
    }
}

/// An error of a filter whose type is erased.
#[derive(Debug)]
pub struct DynFault(Box<dyn Fault>);

impl DynFault {
    fn new(error: impl Fault) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for DynFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for DynFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl Fault for DynFault {
    fn blame(&self) -> Blame {
        self.0.blame()
    }

    fn reset_cause(&self) -> Option<ResetCause> {
        self.0.reset_cause()
    }
}

/// [`Filter`] with an error whose type is erased.
trait ErasedFilter: Any {
    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, DynFault>;
    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), DynFault>;
    fn decode_eof(&mut self, wire: &mut Input, reply: &mut Output<'_>) -> Result<(), DynFault>;
    fn flush(&mut self, out: &mut Output<'_>) -> Result<(), DynFault>;
    fn close(&mut self, out: &mut Output<'_>) -> Result<(), DynFault>;
    fn buffered_bytes(&self) -> usize;
    fn kept_bytes(&self) -> usize;
    fn is_established(&self) -> bool;
    fn allows_file_bypass(&self) -> bool;
    fn protocol(&self) -> &'static str;
    fn receive_hint(&self) -> Option<ReceiveHint>;
    fn poll_timeout(&self) -> Option<Instant>;
    fn handle_timeout(&mut self, reply: &mut Output<'_>) -> Result<(), DynFault>;
}

impl<F: Filter> ErasedFilter for F {
    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, DynFault> {
        Filter::inbound(self, wire, plain, reply).map_err(DynFault::new)
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), DynFault> {
        Filter::outbound(self, plain, out).map_err(DynFault::new)
    }

    fn decode_eof(&mut self, wire: &mut Input, reply: &mut Output<'_>) -> Result<(), DynFault> {
        Filter::decode_eof(self, wire, reply).map_err(DynFault::new)
    }

    fn flush(&mut self, out: &mut Output<'_>) -> Result<(), DynFault> {
        Filter::flush(self, out).map_err(DynFault::new)
    }

    fn close(&mut self, out: &mut Output<'_>) -> Result<(), DynFault> {
        Filter::close(self, out).map_err(DynFault::new)
    }

    fn buffered_bytes(&self) -> usize {
        Filter::buffered_bytes(self)
    }

    fn kept_bytes(&self) -> usize {
        Filter::kept_bytes(self)
    }

    fn is_established(&self) -> bool {
        Filter::is_established(self)
    }

    fn allows_file_bypass(&self) -> bool {
        Filter::allows_file_bypass(self)
    }

    fn protocol(&self) -> &'static str {
        Filter::protocol(self)
    }

    fn receive_hint(&self) -> Option<ReceiveHint> {
        Filter::receive_hint(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Filter::poll_timeout(self)
    }

    fn handle_timeout(&mut self, reply: &mut Output<'_>) -> Result<(), DynFault> {
        Filter::handle_timeout(self, reply).map_err(DynFault::new)
    }
}

impl Filter for DynFilter {
    type Error = DynFault;

    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, DynFault> {
        self.0.inbound(wire, plain, reply)
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), DynFault> {
        self.0.outbound(plain, out)
    }

    fn decode_eof(&mut self, wire: &mut Input, reply: &mut Output<'_>) -> Result<(), DynFault> {
        self.0.decode_eof(wire, reply)
    }

    fn flush(&mut self, out: &mut Output<'_>) -> Result<(), DynFault> {
        self.0.flush(out)
    }

    fn close(&mut self, out: &mut Output<'_>) -> Result<(), DynFault> {
        self.0.close(out)
    }

    fn buffered_bytes(&self) -> usize {
        self.0.buffered_bytes()
    }

    fn kept_bytes(&self) -> usize {
        self.0.kept_bytes()
    }

    fn is_established(&self) -> bool {
        self.0.is_established()
    }

    fn allows_file_bypass(&self) -> bool {
        self.0.allows_file_bypass()
    }

    fn protocol(&self) -> &'static str {
        self.0.protocol()
    }

    fn receive_hint(&self) -> Option<ReceiveHint> {
        self.0.receive_hint()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn handle_timeout(&mut self, reply: &mut Output<'_>) -> Result<(), DynFault> {
        self.0.handle_timeout(reply)
    }
}

/// The error of the codec, or of a filter, however many there are below it.
fn flatten<E>(error: OverError<DynFault, OverError<DynFault, E>>) -> OverError<DynFault, E> {
    match error {
        OverError::Filter(error) | OverError::Codec(OverError::Filter(error)) => OverError::Filter(error),
        OverError::Codec(OverError::Codec(error)) => OverError::Codec(error),
    }
}

/// Calls the codec, or the filter with everything above it.
macro_rules! either {
    ($self:ident, $below:ident => $call:expr) => {
        match &mut $self.0 {
            LowerPipeline::Nothing($below) => $call.map_err(OverError::Codec),
            LowerPipeline::Filter(filter) => {
                let $below = &mut **filter;
                $call.map_err(flatten)
            }
        }
    };
}

/// The same for a question that cannot fail.
macro_rules! ask {
    ($self:ident, $below:ident => $call:expr) => {
        match &$self.0 {
            LowerPipeline::Nothing($below) => $call,
            LowerPipeline::Filter(filter) => {
                let $below = &**filter;
                $call
            }
        }
    };
}

impl<C: Pipeline> Stages for DynOver<C> {
    type In = C::In;
    type Out = C::Out;
    type Error = OverError<DynFault, C::Error>;
    type Codec = C::Codec;

    #[inline]
    fn codec(&self) -> &C::Codec {
        ask!(self, below => Stages::codec(below))
    }

    #[inline]
    fn uppermost<'a>(&'a mut self, out: Output<'a>) -> (&'a mut C::Codec, Output<'a>) {
        match &mut self.0 {
            LowerPipeline::Nothing(codec) => codec.uppermost(out),
            LowerPipeline::Filter(over) => over.uppermost(out),
        }
    }

    #[inline]
    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<C::In>, Self::Error> {
        either!(self, below => Stages::decode(below, input, reply))
    }

    #[inline]
    fn encode(&mut self, message: C::Out, out: &mut Output<'_>) -> Result<(), Self::Error> {
        either!(self, below => Stages::encode(below, message, out))
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<C::In>, Self::Error> {
        either!(self, below => Stages::decode_eof(below, input, reply))
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Self::Error> {
        either!(self, below => Stages::on(below, event, out))
    }

    #[inline]
    fn status(&self) -> CodecStatus {
        ask!(self, below => Stages::status(below))
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        ask!(self, below => Stages::poll_timeout(below))
    }

    fn handle_timeout(&mut self, input: &Input, reply: &mut Output<'_>) -> Result<(), Self::Error> {
        either!(self, below => Stages::handle_timeout(below, input, reply))
    }

    fn is_between_messages(&self) -> bool {
        ask!(self, below => Stages::is_between_messages(below))
    }

    fn protocols(&self, name: &mut dyn FnMut(&'static str)) {
        ask!(self, below => Stages::protocols(below, name));
    }

    fn receive_hint(&self) -> Option<ReceiveHint> {
        ask!(self, below => Stages::receive_hint(below))
    }

    fn is_established(&self) -> bool {
        ask!(self, below => Stages::is_established(below))
    }

    fn drive_handshake(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<(), Self::Error> {
        either!(self, below => Stages::drive_handshake(below, input, reply))
    }

    #[inline]
    fn flush(&mut self, out: &mut Output<'_>) -> Result<(), Self::Error> {
        either!(self, below => Stages::flush(below, out))
    }

    fn buffered_bytes(&self) -> usize {
        ask!(self, below => Stages::buffered_bytes(below))
    }

    fn input_memory(&self) -> usize {
        ask!(self, below => Stages::input_memory(below))
    }

    fn kept_bytes(&self) -> usize {
        ask!(self, below => Stages::kept_bytes(below))
    }

    fn write_position(&self, queue: &Outbound) -> WritePosition {
        ask!(self, below => Stages::write_position(below, queue))
    }

    fn wire_offset(&self, position: WritePosition) -> Option<u64> {
        ask!(self, below => Stages::wire_offset(below, position))
    }

    fn file_to_load(&mut self) -> Option<&mut Outbound> {
        match &mut self.0 {
            LowerPipeline::Nothing(codec) => Stages::file_to_load(codec),
            LowerPipeline::Filter(filter) => filter.file_to_load(),
        }
    }

    fn compact(&mut self, pool: &Pool) {
        match &mut self.0 {
            LowerPipeline::Nothing(codec) => Stages::compact(codec, pool),
            LowerPipeline::Filter(filter) => filter.compact(pool),
        }
    }
}

impl<C: Pipeline> sealed::Sealed for DynOver<C> {}

impl<C: Broadcast> Broadcast for DynOver<C> {
    fn encode_once(&mut self, message: Self::Out, out: &mut Output<'_>) -> Result<(), Self::Error> {
        either!(self, below => Broadcast::encode_once(below, message, out))
    }

    fn write_encoded(&mut self, bytes: Slice, out: &mut Output<'_>) -> Result<(), Self::Error> {
        either!(self, below => Broadcast::write_encoded(below, bytes, out))
    }
}

impl<C: Pipeline> fmt::Debug for DynOver<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynOver")
            .field("has_filters", &matches!(self.0, LowerPipeline::Filter(_)))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filters").field("count", &self.layers.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for DynFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DynFilter")
    }
}
