//! The errors of this crate, sorted by blame.

use tidegate_codec::Fault;

/// Why a connection ends, or a message is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Fault)]
#[fault(crate = tidegate_codec)]
#[non_exhaustive]
pub enum MemcachedError {
    /// The bytes behind a value are not CR LF: its length is wrong.
    #[fault(peer, "a memcached value does not end where its length says")]
    ValueEnd,
    /// A command that stores has no length, so the end of its value is unknown.
    #[fault(peer, "a memcached command has no valid length of its value")]
    ValueLength,
    /// A line of a response has no known form.
    #[fault(peer, "a line of a memcached response has an unknown form")]
    ResponseLine,
    /// A response arrived that no command awaits.
    #[fault(peer, "a memcached response arrived that no command awaits")]
    Unsolicited,
    /// The peer ended the stream within a message.
    #[fault(peer, "the peer ended the stream within a memcached message")]
    Truncated,
    /// A line is longer than [`ProtocolLimits::line_bytes_max`](crate::ProtocolLimits::line_bytes_max).
    #[fault(limit, "a memcached line is longer than {bytes_max} bytes")]
    LineTooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// A value of a response is longer than [`ProtocolLimits::value_bytes_max`](crate::ProtocolLimits::value_bytes_max).
    #[fault(limit, "a memcached value is longer than {bytes_max} bytes")]
    ValueTooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// A key to send is empty, longer than 250 bytes, or has a space or a control character.
    #[fault(caller, "a memcached key has 1 to 250 bytes, without spaces and control characters")]
    Key,
    /// A text to send has a line end, or flags of a meta command are not words.
    #[fault(caller, "a memcached text must be one line, and a flag one word")]
    Text,
    /// The application sent a response while no command awaited one. Nothing was written.
    #[fault(caller, "no memcached command awaits a response")]
    NothingAwaits,
}
