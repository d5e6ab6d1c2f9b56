//! `Message`: the unit that a connection yields and sends.

use std::fmt;

use tidegate_buffer::Slice;
use tidegate_codec::framing::Payload;

use crate::close::Close;
use crate::error::Misuse;

/// A received or sent message. An echo sends each message back as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// A whole text.
    Text(Text),
    /// Whole binary data.
    Binary(Payload),
    /// A part of a message, in order. Received ones come if [`Config::pieces_after`](crate::Config::pieces_after) is
    /// set; any message can be sent so, a frame a piece, without compression.
    Piece(Piece),
    /// A ping, with at most 125 bytes. The codec answers those of the peer. Control frames of the peer come if
    /// [`Config::yields_control`](crate::Config::yields_control) is set.
    Ping(Payload),
    /// A pong, with at most 125 bytes.
    Pong(Payload),
    /// The closing handshake: the peer's close frame, which the codec has answered, or ours. No message follows it. A
    /// close frame without a code is `None`.
    Close(Option<Close>),
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The kind of the message, the same for each of its pieces.
    pub kind: Kind,
    /// The bytes. Those of a text are UTF-8 together, and a piece may end within a character.
    pub bytes: Payload,
    /// Whether the message ends with it. The last piece may be empty.
    pub is_last: bool,
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

/// Bytes that are UTF-8.
///
/// ```
/// use tidegate::websocket::{Message, Text};
///
/// let text = Text::from("tide");
/// assert_eq!(text.as_str(), "tide");
/// assert!(Text::new(b"\xFF").is_err());
/// assert_eq!(Message::from("tide"), Message::Text(text));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Text(Payload);

impl Text {
    /// Checks that the bytes are UTF-8.
    ///
    /// # Errors
    /// [`Misuse::Utf8`].
    pub fn new(bytes: impl Into<Payload>) -> Result<Self, Misuse> {
        let bytes = bytes.into();
        match simdutf8::basic::from_utf8(bytes.as_ref()) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(Misuse::Utf8),
        }
    }

    /// Bytes that were checked as they arrived.
    pub(crate) fn checked(bytes: Slice) -> Self {
        Self(bytes.into())
    }

    /// The text. It is checked once more, at some gigabytes a second, since this crate has no unsafe code.
    ///
    /// # Panics
    /// Never: each way to make a text checks it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        simdutf8::basic::from_utf8(self.as_bytes()).expect("it was checked when it was made")
    }

    /// The bytes, without a check.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// The bytes, to be sent or kept.
    #[must_use]
    pub fn into_payload(self) -> Payload {
        self.0
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Message {
    /// Text.
    ///
    /// ```
    /// use tidegate::websocket::Message;
    ///
    /// let message = Message::text(format!("{} m", 4));
    /// # drop(message);
    /// ```
    pub fn text(text: impl Into<Text>) -> Self {
        Self::Text(text.into())
    }

    /// Binary data.
    pub fn binary(bytes: impl Into<Payload>) -> Self {
        Self::Binary(bytes.into())
    }
}

impl From<Text> for Message {
    fn from(text: Text) -> Self {
        Self::Text(text)
    }
}

impl From<&'static str> for Message {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<Close> for Message {
    fn from(close: Close) -> Self {
        Self::Close(Some(close))
    }
}

impl From<Piece> for Message {
    fn from(piece: Piece) -> Self {
        Self::Piece(piece)
    }
}
