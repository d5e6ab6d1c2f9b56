//! The errors of the codecs, sorted by blame.

use tidegate_codec::Fault;

/// Why a connection ends, or a message is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Fault)]
#[fault(crate = tidegate_codec)]
#[non_exhaustive]
pub enum RedisError {
    /// A value begins with a byte that is no type of RESP2 or RESP3.
    #[fault(peer, "no value begins with the byte {0}")]
    Type(u8),
    /// A length is no decimal number from zero on, has leading zeros or a sign, or does not fit into 63 bits.
    #[fault(peer, "a length is malformed")]
    Length,
    /// The number of a command's arguments is malformed.
    #[fault(peer, "the number of arguments is malformed")]
    Arguments,
    /// An argument of a command begins with this byte and not with `$`.
    #[fault(peer, "an argument begins with the byte {0} and not with a dollar sign")]
    ExpectedBulk(u8),
    /// A line ends with CR or LF alone.
    #[fault(peer, "a line does not end with CR LF")]
    LineEnd,
    /// The bytes of a bulk string are not followed by CR LF.
    #[fault(peer, "a bulk string is not followed by CR LF")]
    BulkEnd,
    /// An integer, double, boolean, null or big number is malformed.
    #[fault(peer, "a number, boolean or null is malformed")]
    Scalar,
    /// A verbatim string is shorter than its format.
    #[fault(peer, "a verbatim string has no format")]
    Verbatim,
    /// A push is within another value.
    #[fault(peer, "a push is within another value")]
    PushWithin,
    /// A chunk, or the end of a streamed value, is at the wrong place.
    #[fault(peer, "a part of a streamed value is at the wrong place")]
    Stream,
    /// An attribute is followed by no value.
    #[fault(peer, "an attribute is followed by no value")]
    Attribute,
    /// An inline command has a quote that does not end.
    #[fault(peer, "the quotes of an inline command are not balanced")]
    Quotes,
    /// The peer ended the stream within a message.
    #[fault(peer, "the peer ended the stream within a message")]
    Truncated,
    /// A bulk string has more bytes than [`bulk_bytes_max`](crate::ProtocolLimits::bulk_bytes_max).
    #[fault(limit, "a bulk string has more than {bytes_max} bytes")]
    BulkTooLong {
        /// The limit.
        bytes_max: u64,
    },
    /// A line has more bytes than [`line_bytes_max`](crate::ProtocolLimits::line_bytes_max).
    #[fault(limit, "a line has more than {bytes_max} bytes")]
    LineTooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// A message has more elements than [`elements_max`](crate::ProtocolLimits::elements_max).
    #[fault(limit, "a message has more than {max} elements")]
    TooManyElements {
        /// The limit.
        max: u64,
    },
    /// Values are nested deeper than [`depth_max`](crate::ProtocolLimits::depth_max).
    #[fault(limit, "values are nested more than {max} deep")]
    TooDeep {
        /// The limit.
        max: u32,
    },
    /// A simple string or an error to send has CR or LF. Nothing was written.
    #[fault(caller, "a line to send has a CR or LF")]
    LineBreak,
    /// A big number to send has other bytes than digits behind its sign. Nothing was written.
    #[fault(caller, "a big number to send is no number")]
    BigNumber,
    /// The value to send exists in RESP3 only, and the connection has RESP2. Nothing was written.
    #[fault(caller, "the value exists in RESP3 only")]
    Resp3Only,
    /// The message to send is not due: more data than announced, an end of nothing, a push within a reply. Nothing was
    /// written.
    #[fault(caller, "the message is not due here")]
    NotDue,
    /// A reply or command that must be whole is not. Nothing was written.
    #[fault(caller, "the reply or command is not complete")]
    Incomplete,
}
