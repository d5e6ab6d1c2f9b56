//! `ProtocolLimits`: bounds of received messages, and the sizes of datagrams.

/// The payload that this crate announces and sends in a datagram: 1,232 bytes, which every IPv6 path carries whole
/// (RFC 9715 §3).
pub const UDP_PAYLOAD_BYTES: u16 = 1_232;

/// The most that a datagram of this crate carries, whatever the peer announces: 1,400 bytes (RFC 9715 §3.2).
pub const UDP_PAYLOAD_BYTES_MAX: u16 = 1_400;

/// The payload that a peer without EDNS accepts: 512 bytes (RFC 1035 §4.2.1).
pub const UDP_PAYLOAD_BYTES_MIN: u16 = 512;

/// Bounds of a received message.
///
/// ```
/// use tidegate::dns::ProtocolLimits;
///
/// let limits = ProtocolLimits { records_max: 16, ..ProtocolLimits::default() };
/// assert_eq!(limits.message_bytes_max, 65_535);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolLimits {
    /// Bytes of a message on a stream; 65,535.
    pub message_bytes_max: usize,
    /// Records of a message in all sections; 4,096.
    pub records_max: usize,
    /// EDNS options of a message; 64.
    pub options_max: usize,
}

impl Default for ProtocolLimits {
    fn default() -> Self {
        Self { message_bytes_max: MESSAGE_BYTES_MAX, records_max: 4_096, options_max: 64 }
    }
}

/// The most that the length field of a stream can declare.
pub(crate) const MESSAGE_BYTES_MAX: usize = u16::MAX as usize;

const _: () = assert!(UDP_PAYLOAD_BYTES <= UDP_PAYLOAD_BYTES_MAX && UDP_PAYLOAD_BYTES_MIN < UDP_PAYLOAD_BYTES);
