//! `Compress`: a filter that compresses a connection's output and decompresses its input.

use tidegate_buffer::{Charge, Input, Outbound, Pool};
use tidegate_codec::{Filter, Output, Step};

use crate::algorithm::Algorithm;
use crate::coder::Progress;
use crate::compression::Compression;
use crate::compressor::{Compressor, SPACE_BYTES};
use crate::decompressor::{Decompressor, PastParts};
use crate::error::Error;
use crate::limits::DecompressionLimits;

/// A filter that compresses outbound bytes and decompresses inbound ones, as for `COMPRESS=DEFLATE` of IMAP (RFC 4978) or
/// for protocols that exchange streams of zstd.
///
/// Each flush of the connection is one of the compressor, so the peer never waits for bytes that are written. Inbound
/// bytes are decompressed a buffer of 16 KiB at a time, as the codec above reads them: a codec that is not read stops
/// the peer, however far its bytes expand.
///
/// The peer's side ends when the peer ends its side of the connection, and not with the end of a message: another frame may
/// follow a frame. Nothing may follow the end of a message of deflate or brotli, so a byte behind it is
/// [`Error::TrailingBytes`], in whichever piece it arrives.
///
/// A direction takes a context with its first bytes. By default it keeps it as long as the connection lives, since later
/// bytes refer to earlier ones. With [`frame_per_flush`](Self::frame_per_flush), an idle connection has none.
///
/// ```
/// use tidegate::codec::Over;
/// use tidegate::compress::{Algorithm, Compress};
/// use tidegate::framing::Lines;
/// use tidegate_testkit::CodecHarness;
///
/// let make = || Over::new(Compress::new(Algorithm::Zstd.into()).frame_per_flush(), Lines::new());
/// let (mut sender, mut receiver) = (CodecHarness::new(make()), CodecHarness::new(make()));
/// sender.encode("ebb and flow".into())?;
/// sender.flush()?;
/// let lines = receiver.decode(&sender.take_sent())?;
/// assert_eq!(&*lines[0], b"ebb and flow");
/// assert_eq!(receiver.codec().filter().memory_bytes(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Compress {
    compressor: Option<Compressor>,
    decompressor: Option<Decompressor>,
    compression: Compression,
    inbound: Algorithm,
    budget: Box<Budget>,
    /// Counts the contexts.
    charge: Option<Charge>,
    /// Bytes that wait for the next flush.
    unflushed: u64,
    frame_per_flush: bool,
    accepts_open_end: bool,
    /// Whether the peer's message has ended, in a format in which nothing may follow.
    has_ended: bool,
    is_closed: bool,
}

/// The limits of inbound bytes, and the bytes that count against them.
#[derive(Debug)]
struct Budget {
    limits: DecompressionLimits,
    /// The bytes that earlier decompressors have read.
    past: PastParts,
}

impl Compress {
    /// A filter with the same algorithm in both directions, with [`DecompressionLimits::endless`].
    #[must_use]
    pub fn new(compression: Compression) -> Self {
        Self {
            compressor: None,
            decompressor: None,
            compression,
            inbound: compression.algorithm(),
            budget: Box::new(Budget { limits: DecompressionLimits::endless(), past: PastParts::default() }),
            charge: None,
            unflushed: 0,
            frame_per_flush: false,
            accepts_open_end: false,
            has_ended: false,
            is_closed: false,
        }
    }

    /// The peer compresses with another algorithm.
    #[must_use]
    pub fn inbound_algorithm(mut self, algorithm: Algorithm) -> Self {
        self.inbound = algorithm;
        self
    }

    /// Sets the limits of inbound bytes. They hold for all bytes of the connection together, in one frame or in several.
    #[must_use]
    pub fn limits(mut self, limits: DecompressionLimits) -> Self {
        self.budget.limits = limits;
        self
    }

    /// Each flush ends a frame and gives the context back to the pool; the next bytes begin another frame. Memory is in
    /// use only while bytes are, and they compress less, as no frame refers to another. It has an effect for
    /// [algorithms with frames](Algorithm::has_frames) only. Inbound contexts go back at the end of each frame in any case,
    /// except that frames of snappy have no end.
    #[must_use]
    pub fn frame_per_flush(mut self) -> Self {
        self.frame_per_flush = self.compression.algorithm().has_frames();
        self
    }

    /// The peer may close the connection without ending its message, as peers of IMAP do. By default that is an error,
    /// since bytes may be missing.
    #[must_use]
    pub fn accept_open_end(mut self) -> Self {
        self.accepts_open_end = true;
        self
    }

    /// The size of the contexts in bytes, zero while there are none.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.compressor.as_ref().map_or(0, Compressor::memory_bytes)
            + self.decompressor.as_ref().map_or(0, Decompressor::memory_bytes)
    }

    /// Counts the contexts in the ledger of the loop.
    fn update_charge(&mut self, pool: &Pool) {
        let bytes = self.memory_bytes();
        match &mut self.charge {
            Some(_) if bytes == 0 => self.charge = None,
            Some(charge) => charge.resize(bytes),
            None if bytes == 0 => {}
            None => self.charge = Some(pool.charge(bytes)),
        }
    }

    fn end_frame(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        if let Some(mut compressor) = self.compressor.take() {
            compressor.finish(out)?;
        }
        self.unflushed = 0;
        Ok(())
    }
}

impl Filter for Compress {
    type Error = Error;

    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Error> {
        if self.decompressor.is_none() && wire.is_empty() {
            return Ok(Step::NeedMore);
        }
        if self.has_ended {
            return Err(Error::TrailingBytes);
        }
        let Budget { limits, past } = *self.budget;
        let resume = || Decompressor::resume(self.inbound, limits, past);
        let decompressor = self.decompressor.get_or_insert_with(resume);
        let mut progress = Progress::default();
        let filled = reply.pool().fill(SPACE_BYTES, |space| {
            progress = decompressor.step(wire.bytes(), space)?;
            Ok::<_, Error>(progress.written)
        })?;
        wire.consume(progress.read);
        self.has_ended = decompressor.has_ended();
        if let Some(past) = decompressor.past().filter(|_| self.inbound.marks_ends()) {
            // A next frame refers to none before it.
            self.budget.past = past;
            self.decompressor = None;
        }
        let is_empty = filled.is_empty();
        plain.append(filled, reply.pool());
        self.update_charge(reply.pool());
        Ok(if is_empty && progress.is_complete { Step::NeedMore } else { Step::Message(()) })
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Error> {
        while let Some(front) = plain.front() {
            let compressor = self.compressor.get_or_insert_with(|| Compressor::new(self.compression));
            compressor.write(front, out)?;
            let length = front.len() as u64;
            self.unflushed += length;
            plain.advance(length);
        }
        Ok(())
    }

    fn decode_eof(&mut self, _: &mut Input, _: &mut Output<'_>) -> Result<(), Error> {
        let may_end = self.decompressor.as_ref().is_none_or(Decompressor::may_end);
        if may_end || self.accepts_open_end { Ok(()) } else { Err(Error::Truncated) }
    }

    fn flush(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        if self.frame_per_flush {
            self.end_frame(out)?;
        } else if let Some(compressor) = &mut self.compressor {
            compressor.flush(out)?;
        }
        self.unflushed = 0;
        self.update_charge(out.pool());
        Ok(())
    }

    fn close(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.end_frame(out)?;
        }
        Ok(())
    }

    fn buffered_bytes(&self) -> usize {
        self.unflushed as usize
    }

    fn kept_bytes(&self) -> usize {
        self.memory_bytes()
    }
}
