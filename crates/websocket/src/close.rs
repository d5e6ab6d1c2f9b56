//! `Close`: why a side closes the connection (RFC 6455 §7.4).

use std::fmt;

/// A status code of the closing handshake. Those that may be on the wire are 1000 to 1003, 1007 to 1014, and 3000 to
/// 4999.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CloseCode(pub u16);

impl CloseCode {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server shuts down, or the page is left.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// The peer sent a type of data that this side does not accept.
    pub const UNSUPPORTED_DATA: Self = Self(1003);
    /// The data does not match its type: text that is not UTF-8.
    pub const INVALID_DATA: Self = Self(1007);
    /// The peer violates a policy.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// A message is too big.
    pub const TOO_BIG: Self = Self(1009);
    /// The client expected an extension that the server did not negotiate.
    pub const EXTENSION_REQUIRED: Self = Self(1010);
    /// The server failed.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// The server restarts.
    pub const RESTART: Self = Self(1012);
    /// The server is overloaded.
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// Whether the code may be on the wire.
    #[must_use]
    pub const fn is_sendable(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

impl fmt::Debug for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a side closes the connection: a code, and a text for a log.
///
/// ```
/// use tidegate::websocket::{Close, CloseCode};
///
/// let close = Close::new(CloseCode::GOING_AWAY, "the tide turns");
/// assert_eq!((close.code().0, close.reason()), (1001, "the tide turns"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    code: CloseCode,
    reason: Box<str>,
}

impl Close {
    /// A code and a reason of at most 123 bytes. A codec refuses one that cannot be sent.
    #[must_use]
    pub fn new(code: CloseCode, reason: impl Into<Box<str>>) -> Self {
        Self { code, reason: reason.into() }
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> CloseCode {
        self.code
    }

    /// The text, which may be empty.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl From<CloseCode> for Close {
    fn from(code: CloseCode) -> Self {
        Self::new(code, "")
    }
}
