//! `Filter`: bytes to bytes, both ways, free of I/O.

use std::time::Instant;

use tidegate_buffer::{Input, Outbound, ReceiveHint};

use crate::codec::Step;
use crate::codec::type_name;
use crate::fault::Fault;
use crate::output::Output;

/// A stage below a codec that turns bytes into bytes: TLS, compression, a PROXY header.
///
/// *Wire* is the side of the peer, *plain* the side of the codec above. A filter owns no queues: each call receives
/// both sides, and the filter may buffer bytes until it is flushed. Only [`inbound`](Filter::inbound) and
/// [`outbound`](Filter::outbound) are required.
///
/// A filter needs no copy of the bytes:
///
/// - It decodes a frame where it was received, in [`Input::make_mut`], and [`Input::move_to`] hands on the part of the
///   frame that holds plain bytes, as a view.
/// - It encodes from [`Outbound::front`] into [`Output::write_with`], where the bytes are sent from. One such space per
///   frame of up to 16 KiB is best; larger fronts are divided, and small writes lie behind each other already.
/// - [`receive_hint`](Filter::receive_hint) makes receives end where frames end, so that the loop need not keep a part of
///   one.
///
/// `examples/tls` is such a filter, over rustls. A small one:
///
/// ```
/// use std::convert::Infallible;
/// use std::time::{Instant, SystemTime};
/// use tidegate::codec::{Filter, Input, Outbound, Output, Over, Pool, Stages, Step, Time};
/// use tidegate::framing::Lines;
///
/// /// Turns every bit around, both ways.
/// struct Invert;
///
/// impl Filter for Invert {
///     type Error = Infallible;
///
///     fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Infallible> {
///         if wire.is_empty() {
///             return Ok(Step::NeedMore);
///         }
///         wire.make_mut(reply.pool()).iter_mut().for_each(|byte| *byte = !*byte);
///         wire.move_to(0..wire.len(), plain, reply.pool());
///         Ok(Step::Message(()))
///     }
///
///     fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Infallible> {
///         while let Some(front) = plain.front() {
///             let piece = &front[..front.len().min(16 * 1024)];
///             let count = out.write_with(piece.len(), |space| {
///                 space.iter_mut().zip(piece).for_each(|(to, from)| *to = !from);
///                 Ok::<_, Infallible>(piece.len())
///             })?;
///             plain.advance(count as u64);
///         }
///         Ok(())
///     }
/// }
///
/// let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
/// let (mut queue, mut lines) = (Outbound::new(&pool), Over::new(Invert, Lines::new()));
/// let mut out = Output::new(&mut queue, &pool, &time);
/// lines.encode("ebb".into(), &mut out)?;
/// lines.flush(&mut out)?;
/// queue.flush();
/// assert_eq!(queue.front(), Some(&b"ebb\n".map(|byte| !byte)[..]));
/// # Ok::<(), tidegate::codec::OverError<Infallible, tidegate::framing::FramingError>>(())
/// ```
pub trait Filter: 'static {
    /// The error, sorted by blame.
    type Error: Fault;

    /// Takes bytes from `wire` and appends their plain form to `plain`; the filter's own replies go to `reply`. One frame
    /// a call is best: if the codec above reads all plain bytes in between, each is handed on without a copy.
    ///
    /// [`Step::Message`] means that it made progress and that more may be possible, [`Step::NeedMore`] that it needs
    /// more bytes, [`Step::End`] that the peer has ended the plain side without an error.
    ///
    /// # Errors
    /// The connection is closed after the content of `reply` is sent.
    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>)
    -> Result<Step<()>, Self::Error>;

    /// Takes the flushed bytes of `plain` and writes their wire form to `out`, or buffers it until
    /// [`flush`](Filter::flush). It may leave bytes in `plain`, as during a handshake; they count as pending.
    ///
    /// # Errors
    /// The connection is closed after the content of `out` is sent.
    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Self::Error>;

    /// The peer has shut down its sending side, and [`inbound`](Filter::inbound) needs more bytes. An error means that
    /// bytes are missing.
    ///
    /// # Errors
    /// As for [`inbound`](Filter::inbound).
    fn decode_eof(&mut self, _wire: &mut Input, _reply: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Writes the buffered bytes.
    ///
    /// # Errors
    /// As for [`outbound`](Filter::outbound).
    fn flush(&mut self, _out: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Writes the filter's closing message, at the end of a connection without an error.
    ///
    /// # Errors
    /// As for [`outbound`](Filter::outbound).
    fn close(&mut self, _out: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Buffered bytes; they count against the water marks.
    fn buffered_bytes(&self) -> usize {
        0
    }

    /// Bytes of memory that the filter keeps beside its input and its [`buffered_bytes`](Filter::buffered_bytes), as
    /// [`Codec::kept_bytes`](crate::Codec::kept_bytes).
    fn kept_bytes(&self) -> usize {
        0
    }

    /// The name of the protocol, for lists of connections: that of the type, unless the filter has a better one.
    fn protocol(&self) -> &'static str {
        type_name::<Self>()
    }

    /// Whether the handshake is complete.
    fn is_established(&self) -> bool {
        true
    }

    /// Whether pieces of files may bypass the filter, as they may where it does not change the outbound side.
    fn allows_file_bypass(&self) -> bool {
        false
    }

    /// How the next receive is best sized, if the filter knows the lengths of the frames on the wire. The engine
    /// requests it at the end of each dispatch, and the driver may ignore it. Without it, a bulk transfer copies a part
    /// of a frame with each receive.
    fn receive_hint(&self) -> Option<ReceiveHint> {
        None
    }

    /// The urgency that the peer has asked for, from 0, the first, to 7, the last (RFC 9218 §4.1). For a filter on a stream of
    /// a [`StreamEndpoint`](crate::StreamEndpoint).
    fn urgency(&self) -> Option<u8> {
        None
    }

    /// The time of the next call of [`handle_timeout`](Filter::handle_timeout), if any.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The time that [`poll_timeout`](Filter::poll_timeout) returned has come.
    ///
    /// # Errors
    /// As for [`inbound`](Filter::inbound).
    fn handle_timeout(&mut self, _reply: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }
}
