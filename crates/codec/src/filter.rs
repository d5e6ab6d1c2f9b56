//! `Filter`: bytes to bytes, both ways, free of I/O.

use std::time::Instant;

use tidegate_buffer::{Input, Outbound};

use crate::codec::Step;
use crate::fault::Fault;
use crate::output::Output;

/// A stage below a codec that turns bytes into bytes: TLS, compression, a PROXY header.
///
/// *Wire* is the side of the peer, *plain* the side of the codec above. A filter owns no queues: it is handed both
/// sides, and may keep bytes back until it is flushed. Only [`inbound`](Filter::inbound) and
/// [`outbound`](Filter::outbound) have to be written.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::{Instant, SystemTime};
/// use tidegate_codec::framing::Lines;
/// use tidegate_codec::{Codec, Filter, Input, Outbound, Output, Over, Pool, Step, Time};
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
///         let inverted: Vec<u8> = wire.take_all().iter().map(|byte| !byte).collect();
///         plain.append(reply.pool().copy(&inverted), reply.pool());
///         Ok(Step::Message(()))
///     }
///
///     fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Infallible> {
///         while let Some(front) = plain.front() {
///             let inverted: Vec<u8> = front.iter().map(|byte| !byte).collect();
///             plain.advance(inverted.len() as u64);
///             out.write(&inverted);
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
/// # Ok::<(), tidegate_codec::OverError<Infallible, tidegate_codec::framing::FramingError>>(())
/// ```
pub trait Filter: 'static {
    /// What can go wrong, sorted by blame.
    type Error: Fault;

    /// Takes bytes from `wire` and appends what they mean to `plain`; what the filter answers by itself goes to
    /// `reply`.
    ///
    /// [`Step::Message`] says that something was done and more may be possible, [`Step::NeedMore`] that more bytes are
    /// needed, [`Step::End`] that the peer has ended the plain side in good order.
    ///
    /// # Errors
    /// The connection is closed once what is in `reply` was sent.
    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>)
    -> Result<Step<()>, Self::Error>;

    /// Takes what was flushed in `plain` and writes what it means to `out`, or holds it back until
    /// [`flush`](Filter::flush). It may leave bytes in `plain`, as during a handshake; they count as pending.
    ///
    /// # Errors
    /// The connection is closed once what is in `out` was sent.
    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Self::Error>;

    /// The peer has shut down its sending side, and [`inbound`](Filter::inbound) needs more bytes. An error says
    /// that bytes were cut off.
    ///
    /// # Errors
    /// As for [`inbound`](Filter::inbound).
    fn decode_eof(&mut self, _wire: &mut Input, _reply: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Writes what was held back.
    ///
    /// # Errors
    /// As for [`outbound`](Filter::outbound).
    fn flush(&mut self, _out: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The filter's last word, in good order.
    ///
    /// # Errors
    /// As for [`outbound`](Filter::outbound).
    fn close(&mut self, _out: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Bytes held back; they count against the water marks.
    fn buffered_bytes(&self) -> usize {
        0
    }

    /// Whether the handshake is over.
    fn is_established(&self) -> bool {
        true
    }

    /// Whether pieces of files may pass through unseen, as they do where the outbound side is not changed.
    fn takes_files(&self) -> bool {
        false
    }

    /// When [`handle_timeout`](Filter::handle_timeout) is to be called, if at all.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The time that [`poll_timeout`](Filter::poll_timeout) named has come.
    ///
    /// # Errors
    /// As for [`inbound`](Filter::inbound).
    fn handle_timeout(&mut self, _reply: &mut Output<'_>) -> Result<(), Self::Error> {
        Ok(())
    }
}
