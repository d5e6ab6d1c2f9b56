//! `ProtocolLimits`: how much a peer may make a codec of this crate await.

/// The bounds of one connection, for both roles.
///
/// ```
/// use tidegate::memcached::ProtocolLimits;
///
/// let limits = ProtocolLimits { value_bytes_max: 64 << 20, ..ProtocolLimits::default() };
/// assert_eq!(limits.line_bytes_max, 64 << 10);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolLimits {
    /// Bytes of one value; 1 MiB unless set, as in memcached. It stops a length that no memory holds. A server answers
    /// a longer one with an error, and drops its bytes as they arrive.
    pub value_bytes_max: usize,
    /// Bytes of one line, its end included; 64 KiB unless set. It stops a line that never ends, and bounds the keys of
    /// one command.
    pub line_bytes_max: usize,
}

impl Default for ProtocolLimits {
    fn default() -> Self {
        Self { value_bytes_max: 1 << 20, line_bytes_max: 64 << 10 }
    }
}
