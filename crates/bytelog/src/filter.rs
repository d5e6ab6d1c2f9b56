//! `ByteLog`: a filter that changes nothing and shows the bytes to a sink.

use std::convert::Infallible;

use tidegate_codec::{Filter, Input, Outbound, Output, Step, Time};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the peer.
    Inbound,
    /// To the peer.
    Outbound,
}

/// Receives one connection's bytes. A sink must not block: it runs on the connection's loop.
pub trait ByteSink: 'static {
    /// Whether it wants bytes now. While it does not, they pass without a look at them.
    fn is_active(&self) -> bool;

    /// These bytes pass, the next of their direction.
    fn record(&mut self, direction: Direction, bytes: &[u8], time: &Time);

    /// So many bytes pass that it did not want.
    fn skip(&mut self, _direction: Direction, _bytes: u64) {}

    /// A direction ends in good order. Called once at most for each.
    fn end(&mut self, direction: Direction, time: &Time);
}

/// A log that may be off.
impl<S: ByteSink> ByteSink for Option<S> {
    fn is_active(&self) -> bool {
        self.as_ref().is_some_and(S::is_active)
    }

    fn record(&mut self, direction: Direction, bytes: &[u8], time: &Time) {
        if let Some(sink) = self {
            sink.record(direction, bytes, time);
        }
    }

    fn skip(&mut self, direction: Direction, bytes: u64) {
        if let Some(sink) = self {
            sink.skip(direction, bytes);
        }
    }

    fn end(&mut self, direction: Direction, time: &Time) {
        if let Some(sink) = self {
            sink.end(direction, time);
        }
    }
}

/// Two logs of the same bytes.
impl<A: ByteSink, B: ByteSink> ByteSink for (A, B) {
    fn is_active(&self) -> bool {
        self.0.is_active() || self.1.is_active()
    }

    fn record(&mut self, direction: Direction, bytes: &[u8], time: &Time) {
        record_or_skip(&mut self.0, direction, bytes, time);
        record_or_skip(&mut self.1, direction, bytes, time);
    }

    fn skip(&mut self, direction: Direction, bytes: u64) {
        self.0.skip(direction, bytes);
        self.1.skip(direction, bytes);
    }

    fn end(&mut self, direction: Direction, time: &Time) {
        self.0.end(direction, time);
        self.1.end(direction, time);
    }
}

fn record_or_skip(sink: &mut impl ByteSink, direction: Direction, bytes: &[u8], time: &Time) {
    if sink.is_active() {
        sink.record(direction, bytes, time);
    } else {
        sink.skip(direction, bytes.len() as u64);
    }
}

/// A filter that passes all bytes unchanged, and shows them to a sink.
///
/// Inbound bytes are shown when the codec above needs them, outbound bytes when the pipeline is flushed. Neither is
/// copied. An end of the peer that the stages above no longer wait for, as after a TLS `close_notify`, is not shown.
/// Pieces of files are read into memory only while the sink is active; else the kernel sends them, and they are
/// skipped.
///
/// ```
/// use tidegate::bytelog::{ByteLog, ByteSink, Direction};
/// use tidegate::codec::{Over, Time};
/// use tidegate::framing::Lines;
/// use tidegate_testkit::CodecHarness;
///
/// /// Counts the bytes of each direction.
/// #[derive(Default)]
/// struct Count([u64; 2]);
///
/// impl ByteSink for Count {
///     fn is_active(&self) -> bool {
///         true
///     }
///
///     fn record(&mut self, direction: Direction, bytes: &[u8], _: &Time) {
///         self.0[direction as usize] += bytes.len() as u64;
///     }
///
///     fn end(&mut self, _: Direction, _: &Time) {}
/// }
///
/// let mut lines = CodecHarness::new(Over::new(ByteLog::new(Count::default()), Lines::new()));
/// lines.decode(b"ebb\nflow\n")?;
/// lines.encode("slack".into())?;
/// lines.flush()?;
/// assert_eq!(lines.codec().filter().sink().0, [9, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ByteLog<S> {
    sink: S,
    has_ended: [bool; 2],
}

impl<S: ByteSink> ByteLog<S> {
    /// A log into `sink`.
    #[must_use]
    pub fn new(sink: S) -> Self {
        Self { sink, has_ended: [false; 2] }
    }

    /// The sink.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// The sink, mutable: to set fields that were unknown when it was made.
    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    fn end(&mut self, direction: Direction, time: &Time) {
        if !std::mem::replace(&mut self.has_ended[direction as usize], true) {
            self.sink.end(direction, time);
        }
    }
}

impl<S: ByteSink> Filter for ByteLog<S> {
    type Error = Infallible;

    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Infallible> {
        if wire.is_empty() {
            return Ok(Step::NeedMore);
        }
        record_or_skip(&mut self.sink, Direction::Inbound, wire.bytes(), reply.time());
        plain.append(wire.take_all(), reply.pool());
        Ok(Step::Message(()))
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Infallible> {
        while self.sink.is_active()
            && let Some(front) = plain.front()
        {
            let length = front.len() as u64;
            self.sink.record(Direction::Outbound, front, out.time());
            out.take_flushed_up_to(plain, length);
        }
        // A file that has to be read first stays.
        if !self.sink.is_active() {
            let before = out.written().0;
            out.take_flushed(plain);
            self.sink.skip(Direction::Outbound, out.written().0 - before);
        }
        Ok(())
    }

    fn decode_eof(&mut self, _: &mut Input, reply: &mut Output<'_>) -> Result<(), Infallible> {
        self.end(Direction::Inbound, reply.time());
        Ok(())
    }

    fn close(&mut self, out: &mut Output<'_>) -> Result<(), Infallible> {
        self.end(Direction::Outbound, out.time());
        Ok(())
    }

    fn allows_file_bypass(&self) -> bool {
        !self.sink.is_active()
    }
}
