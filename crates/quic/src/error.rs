//! `ConnectionError`: why a connection is over, or was not made.

use std::error;
use std::fmt;

use tidegate_tls::ConfigError as TlsError;

/// Why a connection is over.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer has no version in common with this side, which has version 1 (RFC 9000) alone.
    Version,
    /// The peer broke the protocol, or the handshake failed (RFC 9000 §20.1). Codes from 0x100 to 0x1ff are TLS alerts.
    Transport {
        /// The code.
        code: u64,
        /// The reason.
        reason: String,
    },
    /// The peer's side of the protocol has closed the connection, with a code as above.
    AbortedByPeer {
        /// The code.
        code: u64,
        /// The reason that the peer gives.
        reason: String,
    },
    /// The application of the peer has closed the connection.
    ClosedByPeer {
        /// The code, in the application's protocol.
        code: u64,
        /// The reason that the peer gives.
        reason: Vec<u8>,
    },
    /// The peer has lost the connection: it sent a stateless reset (RFC 9000 §10.3).
    Reset,
    /// The server has refused the early data of this client (0-RTT), and has processed none of it.
    EarlyDataRejected,
    /// No packet of the peer came for [`TransportLimits::idle_timeout`](crate::TransportLimits::idle_timeout).
    IdleTimeout,
    /// The handshake was not complete in time.
    HandshakeTimeout,
    /// This side has closed the connection.
    Closed,
    /// There are as many connections as there may be.
    Full,
    /// The network reports that no socket has the server's port, or that its host cannot be reached, before the handshake
    /// was complete.
    Unreachable,
    /// The name of the server is neither a DNS name nor an IP address, or the address cannot be connected to.
    Address,
}

impl ConnectionError {
    /// Whether the peer has closed or aborted the connection.
    pub(crate) fn is_by_peer(&self) -> bool {
        matches!(self, Self::AbortedByPeer { .. } | Self::ClosedByPeer { .. })
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("the peer does not have version 1 of QUIC"),
            Self::Transport { code, reason } => write!(f, "the connection failed with code {code:#x}: {reason}"),
            Self::AbortedByPeer { code, reason } => write!(f, "the peer aborted with code {code:#x}: {reason}"),
            Self::ClosedByPeer { code, reason } => {
                write!(f, "the peer closed with code {code}: {}", String::from_utf8_lossy(reason))
            }
            Self::Reset => f.write_str("the peer has lost the connection"),
            Self::EarlyDataRejected => f.write_str("the server has refused early data"),
            Self::IdleTimeout => f.write_str("no packet of the peer came in time"),
            Self::HandshakeTimeout => f.write_str("the handshake took too long"),
            Self::Closed => f.write_str("this side has closed the connection"),
            Self::Full => f.write_str("there are as many connections as there may be"),
            Self::Unreachable => f.write_str("no server can be reached at the address"),
            Self::Address => f.write_str("the server's name or its address cannot be used"),
        }
    }
}

impl error::Error for ConnectionError {}

/// Why a configuration cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// The TLS configuration has no version 1.3, or no cipher suite for the first packets (RFC 9001 §5.2).
    Tls,
    /// The configuration of TLS itself.
    Certificates(TlsError),
    /// Rates of connections (`Shaping`) hold over TCP alone. Leave them unset, or serve HTTP/3 by a listener without them.
    Shaping,
    /// A limit is out of its range.
    Limit(&'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls => f.write_str("QUIC needs TLS 1.3 with TLS_AES_128_GCM_SHA256"),
            Self::Certificates(error) => error.fmt(f),
            Self::Shaping => f.write_str(
                "rates of connections and of loops hold over TCP alone: leave them unset, or serve HTTP/3 by a listener of \
                 its own",
            ),
            Self::Limit(name) => write!(f, "the limit {name} is out of its range"),
        }
    }
}

impl error::Error for ConfigError {}

impl From<TlsError> for ConfigError {
    fn from(error: TlsError) -> Self {
        Self::Certificates(error)
    }
}
