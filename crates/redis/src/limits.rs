//! `ProtocolLimits`: how much a peer may make a codec of this crate await.

/// The bounds of one connection, for both roles. The codec compares each length with its bound as soon as the length is
/// there, before memory is taken for the announced bytes.
///
/// ```
/// use tidegate::redis::ProtocolLimits;
///
/// let limits = ProtocolLimits { bulk_bytes_max: 1 << 20, ..ProtocolLimits::default() };
/// assert_eq!(limits.depth_max, 32);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolLimits {
    /// Bytes of one bulk string, bulk error or verbatim string, and of all chunks of a streamed string together; 512 MiB
    /// unless set, as in Redis. It stops a length that no memory holds.
    pub bulk_bytes_max: u64,
    /// Arguments of a command, or elements of a reply, nested ones and those of attributes included; 1,048,576 unless
    /// set, as in Redis. It stops a short message of millions of empty elements.
    pub elements_max: u64,
    /// Aggregates within each other in a reply; 32 unless set, and never more than [`DEPTH_MAX`](Self::DEPTH_MAX). It
    /// stops an application that follows the nesting from using up its stack.
    pub depth_max: u32,
    /// Bytes of one line: an inline command, a simple string, an error, a number; 64 KiB unless set, as in Redis. It
    /// stops a line that never ends.
    pub line_bytes_max: usize,
    /// Bytes of a command or reply that arrives whole, as one view; a longer one arrives in pieces. 1 MiB unless set, and
    /// never more than [`WHOLE_BYTES_MAX`](Self::WHOLE_BYTES_MAX). It stops one message from filling the memory of a
    /// loop. A line is always whole.
    pub whole_bytes_max: usize,
}

impl ProtocolLimits {
    /// The deepest nesting that [`depth_max`](Self::depth_max) may allow.
    pub const DEPTH_MAX: u32 = 128;

    /// The longest message that [`whole_bytes_max`](Self::whole_bytes_max) may allow.
    pub const WHOLE_BYTES_MAX: usize = 768 << 20;

    /// The same bounds, with the last two of them below their own bounds.
    pub(crate) fn effective(mut self) -> Self {
        self.depth_max = self.depth_max.min(Self::DEPTH_MAX);
        self.whole_bytes_max = self.whole_bytes_max.min(Self::WHOLE_BYTES_MAX);
        self.line_bytes_max = self.line_bytes_max.min(Self::WHOLE_BYTES_MAX);
        self
    }
}

impl Default for ProtocolLimits {
    fn default() -> Self {
        Self {
            bulk_bytes_max: 512 << 20,
            elements_max: 1 << 20,
            depth_max: 32,
            line_bytes_max: 64 << 10,
            whole_bytes_max: 1 << 20,
        }
    }
}
