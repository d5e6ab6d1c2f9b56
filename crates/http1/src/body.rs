//! The inbound body, in either role: of known length, chunked, or up to the end of the connection (RFC 9112 §6, §7.1).

use std::fmt;
use std::time::{Duration, Instant};

use tidegate_codec::{Input, Slice};

use crate::error::{Error, Exceeded, Violation};
use crate::fields::is_forbidden_in_trailers;
use crate::head::Headers;
use crate::parse::field_name;
use crate::runs;

/// The state of the inbound side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// At a head, or before one.
    Head,
    /// In a body of known length.
    Length,
    /// At the line with the size of a chunk.
    ChunkSize,
    /// In a chunk, or at its line end.
    ChunkData,
    /// After the last chunk.
    Trailer,
    /// In a body that ends with the connection.
    UntilClose,
    /// After a request that has no complete response yet.
    Await,
    /// Nothing more is read.
    Closed,
    /// Nothing more is read here: the following bytes belong to another protocol.
    Switched,
}

impl Inbound {
    /// Whether the connection is within a body.
    pub(crate) fn is_body(self) -> bool {
        matches!(self, Self::Length | Self::ChunkSize | Self::ChunkData | Self::Trailer | Self::UntilClose)
    }
}

/// The result of one decoding step within a body.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Slice),
    Trailers(Trailers),
    End,
    More,
}

/// The body in progress on a connection: the codec's state of it, borrowed for one step.
pub(crate) struct BodyReader<'a> {
    pub(crate) inbound: &'a mut Inbound,
    /// The bytes left of the body or of the chunk.
    pub(crate) remaining: &'a mut u64,
    /// How many more bytes of the body the limits allow.
    pub(crate) budget: &'a mut u64,
    /// How many bytes of the input are known to have no line end.
    pub(crate) seen: &'a mut u16,
    pub(crate) chunk_extension_bytes_max: u32,
    pub(crate) trailer_bytes_max: u32,
}

impl BodyReader<'_> {
    /// The next piece. At its end the connection waits at [`Inbound::Await`].
    pub(crate) fn next_piece(&mut self, input: &mut Input) -> Result<Piece, Error> {
        // Every round consumes a line, or returns.
        loop {
            match *self.inbound {
                Inbound::Length | Inbound::ChunkData if *self.remaining > 0 => {
                    let length = usize::try_from(*self.remaining).unwrap_or(usize::MAX).min(input.len());
                    if length == 0 {
                        return Ok(Piece::More);
                    }
                    *self.remaining -= length as u64;
                    return Ok(Piece::Data(input.take(length)));
                }
                Inbound::Length => return Ok(self.end()),
                Inbound::ChunkData => match input.bytes() {
                    [b'\r', b'\n', ..] => {
                        input.consume(2);
                        *self.inbound = Inbound::ChunkSize;
                    }
                    [] | [b'\r'] => return Ok(Piece::More),
                    _ => return Err(Error::Peer(Violation::ChunkEnd)),
                },
                Inbound::ChunkSize => {
                    let Some(end) = self.size_line_end(input.bytes())? else { return Ok(Piece::More) };
                    self.begin_chunk(&input.bytes()[..end])?;
                    input.consume(end + 2);
                }
                Inbound::Trailer => return self.next_of_trailer(input),
                Inbound::UntilClose => {
                    if input.is_empty() {
                        return Ok(Piece::More);
                    }
                    let length = input.len() as u64;
                    *self.budget = self.budget.checked_sub(length).ok_or(Error::Limit(Exceeded::Body))?;
                    return Ok(Piece::Data(input.take_all()));
                }
                Inbound::Head | Inbound::Await | Inbound::Closed | Inbound::Switched => return Ok(Piece::More),
            }
        }
    }

    fn end(&mut self) -> Piece {
        *self.inbound = Inbound::Await;
        Piece::End
    }

    fn begin_chunk(&mut self, line: &[u8]) -> Result<(), Error> {
        let (size, extension_bytes) = chunk_size(line)?;
        if extension_bytes > self.chunk_extension_bytes_max as usize {
            return Err(Error::Limit(Exceeded::ChunkExtension));
        }
        let cost = size.saturating_add(extension_bytes as u64);
        *self.budget = self.budget.checked_sub(cost).ok_or(Error::Limit(Exceeded::Body))?;
        *self.inbound = if size == 0 { Inbound::Trailer } else { Inbound::ChunkData };
        *self.remaining = size;
        Ok(())
    }

    /// The length of the line with the size of a chunk, once it is complete. Each byte is scanned once.
    fn size_line_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        let seen = *self.seen as usize;
        // The longest line and its line end.
        let line_max = CHUNK_DIGITS_MAX + self.chunk_extension_bytes_max as usize + 2;
        let window = &bytes[..bytes.len().min(line_max)];
        let Some(end) = memchr::memchr(b'\n', &window[seen..]).map(|at| seen + at) else {
            *self.seen = clamped(window.len());
            return if bytes.len() >= line_max { Err(Error::Limit(Exceeded::ChunkExtension)) } else { Ok(None) };
        };
        *self.seen = 0;
        match end.checked_sub(1) {
            Some(end) if bytes[end] == b'\r' => Ok(Some(end)),
            _ => Err(Error::Peer(Violation::BareLf)),
        }
    }

    /// The trailer section, if there is one and it is complete; and then the end.
    fn next_of_trailer(&mut self, input: &mut Input) -> Result<Piece, Error> {
        match input.bytes() {
            [b'\r', b'\n', ..] => {
                input.consume(2);
                *self.seen = 0;
                return Ok(self.end());
            }
            [] | [b'\r'] => return Ok(Piece::More),
            _ => {}
        }
        let Some(end) = self.trailer_end(input.bytes())? else { return Ok(Piece::More) };
        Trailers::check(&input.bytes()[..end])?;
        *self.seen = 0;
        // The empty line stays in the input: the next step reads it as the end.
        Ok(Piece::Trailers(Trailers(input.take(end))))
    }

    /// The length of all lines before the empty one, once that has arrived. Each byte is scanned once.
    fn trailer_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        let max = self.trailer_bytes_max as usize + 2;
        let window = &bytes[..bytes.len().min(max)];
        let seen = (*self.seen as usize).min(window.len());
        for at in memchr::memchr_iter(b'\n', &window[seen..]) {
            let line = &window[..seen + at];
            if line.last() != Some(&b'\r') {
                return Err(Error::Peer(Violation::BareLf));
            }
            if line.ends_with(b"\r\n\r") {
                return Ok(Some(line.len() - 1));
            }
        }
        *self.seen = clamped(window.len());
        if bytes.len() >= max { Err(Error::Limit(Exceeded::Trailer)) } else { Ok(None) }
    }
}

/// The number of scanned bytes, clamped to 16 bits: the longest lines are a few bytes longer, and those bytes are
/// scanned again.
fn clamped(seen: usize) -> u16 {
    u16::try_from(seen).unwrap_or(u16::MAX)
}

/// How late a body is, as a share of its time-out: kept while the codec does not wait for the peer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lateness(u16);

impl Lateness {
    /// The lateness since `since`, rounded up, so that rounding never reduces it.
    pub(crate) fn new(since: Option<Instant>, now: Instant, timeout: Duration) -> Self {
        match since.map(|since| now.saturating_duration_since(since)) {
            // The common case.
            None | Some(Duration::ZERO) => Self(0),
            Some(late) => {
                let shares = late.as_nanos().div_ceil(share(timeout).as_nanos().max(1));
                Self(u16::try_from(shares).unwrap_or(u16::MAX))
            }
        }
    }

    /// Since when the peer is late, when the codec begins to wait for it again: the lateness is the same as before.
    pub(crate) fn resumed(self, since: Option<Instant>, now: Instant, timeout: Duration) -> Option<Instant> {
        let resumed = now.checked_sub(share(timeout) * self.0.into());
        // An earlier instant would add lateness by rounding.
        since.max(resumed)
    }
}

/// The unit of lateness.
fn share(timeout: Duration) -> Duration {
    timeout / u16::MAX.into()
}

/// Since when the peer is late, after a piece of `bytes`: each byte earns the time that it takes at the minimum rate.
/// So a peer that sends at that rate stays as late as it was, and a peer that sends single bytes now and then gets
/// later each time.
pub(crate) fn late_since(since: Option<Instant>, now: Instant, bytes: usize, rate_min: u32) -> Option<Instant> {
    let micros = (bytes as u64).saturating_mul(1_000_000).checked_div(rate_min.into());
    let earned = since.zip(micros).and_then(|(since, micros)| since.checked_add(Duration::from_micros(micros)));
    Some(earned.map_or(now, |earned| earned.min(now)))
}

/// The fields after a chunked body (RFC 9112 §7.1.2), read in place.
///
/// Fields that frame, route or authorise a message, or describe its content, cannot be trailers (RFC 9110 §6.5.1): a
/// message with one is refused.
#[derive(Clone)]
pub struct Trailers(Slice);

impl Trailers {
    /// Trailers that came by HTTP/2, as HTTP/1.1 field lines. They are checked like any others.
    ///
    /// # Errors
    /// [`Violation::Trailer`], [`Violation::TrailerForbidden`].
    pub fn of_http2(lines: Slice) -> Result<Self, Error> {
        Self::check(&lines)?;
        Ok(Self(lines))
    }

    fn check(mut lines: &[u8]) -> Result<(), Error> {
        while let Some(end) = memchr::memchr(b'\n', lines) {
            let line = lines.get(..end.saturating_sub(1)).unwrap_or_default();
            match field_name(line) {
                Some(name) if !is_forbidden_in_trailers(name) => {}
                Some(_) => return Err(Error::Peer(Violation::TrailerForbidden)),
                None => return Err(Error::Peer(Violation::Trailer)),
            }
            lines = &lines[end + 1..];
        }
        Ok(())
    }

    /// The value of the first field of this name, without the white space around it. Case does not matter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// All fields in their order, as pairs of name and value.
    #[must_use]
    pub fn iter(&self) -> Headers<'_> {
        Headers::new(&self.0)
    }

    /// Trailers that may be kept: see [`Slice::detach`].
    #[must_use]
    pub fn detach(self) -> Self {
        Self(self.0.detach())
    }
}

impl<'a> IntoIterator for &'a Trailers {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = Headers<'a>;

    fn into_iter(self) -> Headers<'a> {
        self.iter()
    }
}

impl fmt::Debug for Trailers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trailers(\"{}\")", self.0.escape_ascii())
    }
}

/// The size of a chunk, and the length of its extension.
fn chunk_size(line: &[u8]) -> Result<(u64, usize), Error> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let extension = &line[digits..];
    let is_good = (1..=CHUNK_DIGITS_MAX).contains(&digits) && is_extension(extension);
    if !is_good {
        return Err(Error::Peer(Violation::ChunkSize));
    }
    let value = |byte: u8| (byte as char).to_digit(16).map_or(0, u64::from);
    Ok((line[..digits].iter().fold(0, |size, &byte| size << 4 | value(byte)), extension.len()))
}

/// Whether `rest` is empty, or only extensions (RFC 9112 §7.1.1): `;name`, `;name=token` or `;name="text"`, without the
/// white space that the grammar tolerates.
fn is_extension(mut rest: &[u8]) -> bool {
    while let [b';', after @ ..] = rest {
        let name_end = runs::token_end(after, 0);
        rest = &after[name_end..];
        if name_end == 0 {
            return false;
        }
        if let [b'=', after @ ..] = rest {
            let value_end = match after {
                [b'"', text @ ..] => quoted_end(text).map_or(0, |end| end + 2),
                _ => runs::token_end(after, 0),
            };
            rest = &after[value_end..];
            if value_end == 0 {
                return false;
            }
        }
    }
    rest.is_empty()
}

/// The position of the quotation mark that ends a text, if the text has no control characters.
fn quoted_end(text: &[u8]) -> Option<usize> {
    if runs::value_end(text, 0) < text.len() {
        return None;
    }
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    None
}

/// Sixteen digits cannot overflow 64 bits.
const CHUNK_DIGITS_MAX: usize = 16;
