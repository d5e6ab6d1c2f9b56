//! `Headers`: the header block of a message, as the wire has it.
//!
//! ```text
//! NATS/1.0[ status[ description]] CRLF  *(name ":" value CRLF)  CRLF
//! ```
//!
//! A block of a peer may have any bytes: a line without a colon is skipped, and a status that is no number is none. Source:
//! NATS ADR-4.

use bytes::Bytes;

use crate::error::NatsError;

/// The headers of a message. Clones share memory.
///
/// Names are compared byte by byte, upper and lower case apart, as NATS does.
///
/// ```
/// use tidegate::nats::Headers;
///
/// let headers = Headers::new().with("Nats-Msg-Id", "tide-412")?;
/// assert_eq!(headers.value("Nats-Msg-Id"), Some(&b"tide-412"[..]));
/// assert_eq!(headers.as_bytes(), b"NATS/1.0\r\nNats-Msg-Id: tide-412\r\n\r\n");
/// assert_eq!(Headers::from_block(&b"NATS/1.0 503\r\n\r\n"[..]).status(), Some(503));
/// # Ok::<(), tidegate::nats::NatsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headers {
    block: Bytes,
}

impl Headers {
    /// No header.
    #[must_use]
    pub const fn new() -> Self {
        Self { block: Bytes::from_static(EMPTY) }
    }

    /// The headers of a block that was received.
    #[must_use]
    pub fn from_block(block: impl Into<Bytes>) -> Self {
        Self { block: block.into() }
    }

    /// The same headers and one more.
    ///
    /// # Errors
    /// [`NatsError::Header`] if the name is empty or has a colon, a space or a control character, or if the value has a CR
    /// or LF.
    pub fn with(self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Self, NatsError> {
        let (name, value) = (name.as_ref(), value.as_ref());
        let ends_name = |byte: &u8| *byte <= b' ' || *byte == b':' || *byte == 0x7f;
        if name.is_empty() || name.iter().any(ends_name) || value.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
            return Err(NatsError::Header);
        }
        let kept = self.block.strip_suffix(b"\r\n").unwrap_or(&self.block);
        let mut block = Vec::with_capacity(kept.len() + name.len() + value.len() + 6);
        for part in [kept, name, b": ", value, b"\r\n\r\n"] {
            block.extend_from_slice(part);
        }
        Ok(Self { block: block.into() })
    }

    /// The block, with its version line and its empty line.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.block
    }

    /// The view of the block.
    #[must_use]
    pub fn view(&self) -> HeadersView<'_> {
        HeadersView { block: &self.block }
    }

    /// As [`HeadersView::last_value`].
    #[must_use]
    pub fn last_value(&self, name: &str) -> Option<&[u8]> {
        self.view().last_value(name)
    }

    /// As [`HeadersView::value`].
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.view().value(name)
    }

    /// As [`HeadersView::status`].
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.view().status()
    }
}

impl Default for Headers {
    fn default() -> Self {
        Self::new()
    }
}

/// A header block, read in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadersView<'a> {
    block: &'a [u8],
}

impl<'a> HeadersView<'a> {
    /// The view of this block.
    #[must_use]
    pub const fn new(block: &'a [u8]) -> Self {
        Self { block }
    }

    /// Whether the block begins as a header block does.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.block.starts_with(VERSION) && self.block.ends_with(b"\r\n\r\n")
    }

    /// The status of the version line, such as 503 for *no responders*.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        let digits = self.status_line().split(|byte| *byte == b' ').next()?;
        if digits.len() != 3 || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        Some(digits.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')))
    }

    /// The text behind the status; empty if there is none.
    #[must_use]
    pub fn description(&self) -> &'a [u8] {
        let line = self.status_line();
        line.iter().position(|byte| *byte == b' ').map_or(&[], |at| line[at + 1..].trim_ascii())
    }

    /// The last value of this name. A server appends its headers to those of the publisher, which may have the same
    /// names: so the value is the server's, if it has set one.
    #[must_use]
    pub fn last_value(&self, name: &str) -> Option<&'a [u8]> {
        self.iter().filter(|(other, _)| *other == name.as_bytes()).last().map(|(_, value)| value)
    }

    /// The first value of this name, without the spaces around it.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.iter().find(|(other, _)| *other == name.as_bytes()).map(|(_, value)| value)
    }

    /// The names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.lines().skip(1).filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((line[..colon].trim_ascii(), line[colon + 1..].trim_ascii()))
        })
    }

    /// The version line behind the version.
    fn status_line(&self) -> &'a [u8] {
        self.lines().next().and_then(|line| line.strip_prefix(VERSION)).unwrap_or_default().trim_ascii()
    }

    fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.block.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
    }
}

const VERSION: &[u8] = b"NATS/1.0";
const EMPTY: &[u8] = b"NATS/1.0\r\n\r\n";
