//! `ProtocolLimits`: how much a peer may make a codec of this crate await.

/// The bounds of one connection, for both roles. The codec compares each length with its bound as soon as the length is
/// there, before memory is taken for the announced bytes.
///
/// ```
/// use tidegate::nats::ProtocolLimits;
///
/// let limits = ProtocolLimits { payload_bytes_max: 64 << 10, ..ProtocolLimits::default() };
/// assert_eq!(limits.control_line_bytes_max, 4096);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolLimits {
    /// Bytes of one control line, without its end; 4 KiB unless set, as in nats-server. It stops a line that never ends.
    pub control_line_bytes_max: usize,
    /// Bytes of the line of INFO or CONNECT, whose JSON may have a token, or the addresses of a cluster; 64 KiB unless set.
    /// It stops a line that never ends.
    pub json_bytes_max: usize,
    /// Bytes of the headers of a message; 64 KiB unless set. It stops a peer whose messages are nothing but headers.
    pub headers_bytes_max: usize,
    /// Bytes of a message, headers and payload together, received or sent; 1 MiB unless set, as in nats-server. A message
    /// arrives whole. It stops one message from filling the memory of a loop.
    pub payload_bytes_max: usize,
}

impl ProtocolLimits {
    /// The longest message that [`payload_bytes_max`](Self::payload_bytes_max) may allow, as in nats-server.
    pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

    /// The longest line that may be allowed.
    pub const LINE_BYTES_MAX: usize = 1 << 20;

    /// The same bounds, each of them below its own bound.
    pub(crate) fn effective(mut self) -> Self {
        self.control_line_bytes_max = self.control_line_bytes_max.min(Self::LINE_BYTES_MAX);
        self.json_bytes_max = self.json_bytes_max.min(Self::LINE_BYTES_MAX);
        self.payload_bytes_max = self.payload_bytes_max.min(Self::PAYLOAD_BYTES_MAX);
        self.headers_bytes_max = self.headers_bytes_max.min(self.payload_bytes_max);
        self
    }
}

impl Default for ProtocolLimits {
    fn default() -> Self {
        Self {
            control_line_bytes_max: 4096,
            json_bytes_max: 64 << 10,
            headers_bytes_max: 64 << 10,
            payload_bytes_max: 1 << 20,
        }
    }
}
