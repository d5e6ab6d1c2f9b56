//! The inbound body: a known length, or chunks (RFC 9112 §6, §7.1).

use tidegate_codec::{Input, Slice};

use crate::error::{Error, Exceeded, Violation};
use crate::parse::is_field_line;
use crate::scan;
use crate::server::{Inbound, Server};

/// What a step through a body came to.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Slice),
    End,
    More,
}

impl Server {
    /// The next piece of the body that is under way.
    pub(crate) fn next_piece(&mut self, input: &mut Input) -> Result<Piece, Error> {
        // Every round consumes a line, or returns.
        loop {
            match self.inbound {
                Inbound::Length | Inbound::ChunkData if self.remaining > 0 => {
                    let length = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(input.len());
                    if length == 0 {
                        return Ok(Piece::More);
                    }
                    self.remaining -= length as u64;
                    return Ok(Piece::Data(input.take(length)));
                }
                Inbound::Length => return Ok(self.end_body()),
                Inbound::ChunkData => match input.bytes() {
                    [b'\r', b'\n', ..] => {
                        input.consume(2);
                        self.inbound = Inbound::ChunkSize;
                    }
                    [] | [b'\r'] => return Ok(Piece::More),
                    _ => return Err(Error::Peer(Violation::ChunkEnd)),
                },
                Inbound::ChunkSize => {
                    let line_max = CHUNK_DIGITS_MAX + self.config.limits().chunk_extension_bytes_max as usize;
                    let Some(end) = self.line_end(input.bytes(), line_max, Exceeded::ChunkExtension)? else {
                        return Ok(Piece::More);
                    };
                    self.begin_chunk(&input.bytes()[..end])?;
                    input.consume(end + 2);
                }
                Inbound::Trailer => {
                    let line_max = self.remaining as usize;
                    let Some(end) = self.line_end(input.bytes(), line_max, Exceeded::Trailer)? else {
                        return Ok(Piece::More);
                    };
                    let is_good = end == 0 || is_field_line(&input.bytes()[..end]);
                    input.consume(end + 2);
                    if end == 0 {
                        return Ok(self.end_body());
                    }
                    if !is_good {
                        return Err(Error::Peer(Violation::Trailer));
                    }
                    self.remaining = self.remaining.saturating_sub(end as u64 + 2);
                }
                Inbound::Head | Inbound::Await | Inbound::Closed | Inbound::Switched => return Ok(Piece::More),
            }
        }
    }

    fn end_body(&mut self) -> Piece {
        self.inbound = Inbound::Await;
        Piece::End
    }

    fn begin_chunk(&mut self, line: &[u8]) -> Result<(), Error> {
        let (size, extension_bytes) = chunk_size(line)?;
        if extension_bytes > self.config.limits().chunk_extension_bytes_max as usize {
            return Err(Error::Limit(Exceeded::ChunkExtension));
        }
        let cost = size.saturating_add(extension_bytes as u64);
        self.budget = self.budget.checked_sub(cost).ok_or(Error::Limit(Exceeded::Body))?;
        self.inbound = if size == 0 { Inbound::Trailer } else { Inbound::ChunkData };
        self.remaining = if size == 0 { u64::from(self.config.limits().trailer_bytes_max) } else { size };
        Ok(())
    }

    /// The length of the line at the start of `bytes`, once it is complete. Each byte is looked at once.
    fn line_end(&mut self, bytes: &[u8], line_max: usize, exceeded: Exceeded) -> Result<Option<usize>, Error> {
        let seen = self.seen as usize;
        // The longest line and its line end.
        let window = &bytes[..bytes.len().min(line_max + 2)];
        let Some(end) = memchr::memchr(b'\n', &window[seen..]).map(|at| seen + at) else {
            self.seen = window.len() as u32;
            return if bytes.len() >= line_max + 2 { Err(Error::Limit(exceeded)) } else { Ok(None) };
        };
        self.seen = 0;
        match end.checked_sub(1) {
            Some(end) if bytes[end] == b'\r' => Ok(Some(end)),
            _ => Err(Error::Peer(Violation::BareLf)),
        }
    }
}

/// The size of a chunk, and how long its extension is.
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

/// Whether this is nothing, or extensions (RFC 9112 §7.1.1): `;name`, `;name=token` or `;name="text"`, without the
/// white space that the grammar tolerates.
fn is_extension(mut rest: &[u8]) -> bool {
    while let [b';', after @ ..] = rest {
        let name_end = scan::token_end(after, 0);
        rest = &after[name_end..];
        if name_end == 0 {
            return false;
        }
        if let [b'=', after @ ..] = rest {
            let value_end = match after {
                [b'"', text @ ..] => quoted_end(text).map_or(0, |end| end + 2),
                _ => scan::token_end(after, 0),
            };
            rest = &after[value_end..];
            if value_end == 0 {
                return false;
            }
        }
    }
    rest.is_empty()
}

/// Where the quotation mark is that ends a text, if there are no control characters.
fn quoted_end(text: &[u8]) -> Option<usize> {
    if scan::value_end(text, 0) < text.len() {
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
