//! `HexLog`: hex dump lines through `tracing`.
//!
//! A line has sixteen bytes: their offset in the stream of their direction, their values, and their characters. While
//! nothing listens to [`HexLog::TARGET`] at the level `TRACE`, no line is formatted.

use std::fmt::{self, Write};

use tidegate_codec::Time;
use tracing::{Level, enabled, trace};

use crate::filter::{ByteSink, Direction};

/// Logs the bytes of one connection as hex dump lines: events of [`TARGET`](Self::TARGET) at the level `TRACE`, each
/// with the fields `connection` and `direction` (`in` or `out`), and a line as its message:
///
/// ```text
/// 00000010  2e 31 0d 0a 48 6f 73 74  3a 20 73 65 61 0d 0a     |.1..Host: sea..|
/// ```
///
/// Of the bytes that pass together, the first [`piece_bytes_max`](Self::piece_bytes_max) are logged, and of a connection
/// at most [`connection_bytes_max`](Self::connection_bytes_max). A line says how many bytes are left out.
#[derive(Debug)]
pub struct HexLog {
    connection: Box<str>,
    offsets: [u64; 2],
    piece_bytes_max: usize,
    /// Bytes of the connection that may still be logged.
    left: u64,
}

/// Bytes of a line.
const LINE_BYTES: usize = 16;

impl HexLog {
    /// The target of the events.
    pub const TARGET: &'static str = "tidegate::bytes";

    /// How many of the bytes that pass together are logged by default: 16 lines.
    pub const PIECE_BYTES_MAX: usize = 256;

    /// How many bytes of a connection are logged by default.
    pub const CONNECTION_BYTES_MAX: u64 = 64 * 1024;

    /// A log whose events have this name of the connection: the peer's address, or a number.
    #[must_use]
    pub fn new(connection: impl fmt::Display) -> Self {
        Self {
            connection: connection.to_string().into(),
            offsets: [0; 2],
            piece_bytes_max: Self::PIECE_BYTES_MAX,
            left: Self::CONNECTION_BYTES_MAX,
        }
    }

    /// How many of the bytes that pass together are logged, by default
    /// [`PIECE_BYTES_MAX`](Self::PIECE_BYTES_MAX).
    #[must_use]
    pub fn piece_bytes_max(mut self, bytes: usize) -> Self {
        self.piece_bytes_max = bytes;
        self
    }

    /// How many bytes of the connection are logged, both directions together, by default
    /// [`CONNECTION_BYTES_MAX`](Self::CONNECTION_BYTES_MAX).
    #[must_use]
    pub fn connection_bytes_max(mut self, bytes: u64) -> Self {
        self.left = bytes;
        self
    }

    fn log(&self, direction: Direction, line: fmt::Arguments<'_>) {
        let direction = match direction {
            Direction::Inbound => "in",
            Direction::Outbound => "out",
        };
        trace!(target: HexLog::TARGET, connection = %self.connection, direction, "{line}");
    }
}

impl ByteSink for HexLog {
    fn is_active(&self) -> bool {
        self.left > 0 && enabled!(target: HexLog::TARGET, Level::TRACE)
    }

    fn record(&mut self, direction: Direction, bytes: &[u8], _: &Time) {
        let wanted = bytes.len().min(self.piece_bytes_max);
        let logged = wanted.min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= logged as u64;
        let mut offset = self.offsets[direction as usize];
        for line in bytes[..logged].chunks(LINE_BYTES) {
            self.log(direction, format_args!("{}", Line { offset, bytes: line }));
            offset += line.len() as u64;
        }
        if self.left == 0 {
            self.log(direction, format_args!("the limit of the connection is reached, no further byte is logged"));
        } else if logged < bytes.len() {
            self.log(direction, format_args!("{} bytes more are not logged", bytes.len() - logged));
        }
        self.offsets[direction as usize] += bytes.len() as u64;
    }

    fn skip(&mut self, direction: Direction, bytes: u64) {
        self.offsets[direction as usize] += bytes;
    }

    fn end(&mut self, direction: Direction, _: &Time) {
        if self.is_active() {
            self.log(direction, format_args!("end after {} bytes", self.offsets[direction as usize]));
        }
    }
}

/// A line of a hex dump, as `hexdump -C` prints it.
struct Line<'a> {
    offset: u64,
    bytes: &'a [u8],
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x} ", self.offset)?;
        for index in 0..LINE_BYTES {
            if index % 8 == 0 {
                f.write_char(' ')?;
            }
            match self.bytes.get(index) {
                Some(byte) => write!(f, "{byte:02x} ")?,
                None => f.write_str("   ")?,
            }
        }
        f.write_str(" |")?;
        for &byte in self.bytes {
            f.write_char(if byte == b' ' || byte.is_ascii_graphic() { byte.into() } else { '.' })?;
        }
        f.write_char('|')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_looks_like_that_of_hexdump() {
        let line = |offset, bytes: &[u8]| Line { offset, bytes }.to_string();
        assert_eq!(
            line(0, b"GET / HTTP/1.1\r\n"),
            "00000000  47 45 54 20 2f 20 48 54  54 50 2f 31 2e 31 0d 0a  |GET / HTTP/1.1..|"
        );
        assert_eq!(
            line(0x10, b"\x00~\x7f\xff|a b c"),
            "00000010  00 7e 7f ff 7c 61 20 62  20 63                    |.~..|a b c|"
        );
        assert_eq!(line(1 << 32, b"e").split(' ').next(), Some("100000000"));
    }
}
