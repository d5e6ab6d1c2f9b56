//! The errors of the codecs, sorted by blame.

use tidegate_codec::Fault;

/// Why a connection ends, or an operation is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Fault)]
#[fault(crate = tidegate_codec)]
#[non_exhaustive]
pub enum NatsError {
    /// A line begins with no operation that the other role sends.
    #[fault(peer, "a line begins with no known operation")]
    Operation,
    /// An operation has too few or too many arguments.
    #[fault(peer, "an operation has too few or too many arguments")]
    Arguments,
    /// A length or a count is no decimal number, or is too large.
    #[fault(peer, "a number is malformed")]
    Number,
    /// The headers of a message are longer than the message.
    #[fault(peer, "the headers of a message are longer than the message")]
    HeadersBeyondMessage,
    /// A payload is not followed by CR LF.
    #[fault(peer, "a payload is not followed by CR LF")]
    PayloadEnd,
    /// The peer ended the stream within an operation.
    #[fault(peer, "the peer ended the stream within an operation")]
    Truncated,
    /// A line is longer than [`control_line_bytes_max`](crate::ProtocolLimits::control_line_bytes_max), or
    /// [`json_bytes_max`](crate::ProtocolLimits::json_bytes_max).
    #[fault(limit, "a line has more than {bytes_max} bytes")]
    LineTooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// The headers of a message are longer than [`headers_bytes_max`](crate::ProtocolLimits::headers_bytes_max).
    #[fault(limit, "the headers of a message have more than {bytes_max} bytes")]
    HeadersTooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// A message is longer than [`payload_bytes_max`](crate::ProtocolLimits::payload_bytes_max).
    #[fault(limit, "a message has more than {bytes_max} bytes")]
    PayloadTooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// A subject, queue group or subscription ID to send is empty, or has a space or a control character. Nothing was
    /// written.
    #[fault(caller, "a subject, queue group or subscription ID is empty, or has a space or a control character")]
    Token,
    /// The JSON or the error to send has a line break. Nothing was written.
    #[fault(caller, "a line to send has a CR or LF")]
    LineBreak,
    /// The name of a header is empty or has a colon, a space or a control character, or its value has a line break.
    #[fault(caller, "the name or the value of a header has a character that ends it")]
    Header,
    /// The operation to send is longer than the limits allow. Nothing was written.
    #[fault(caller, "the operation to send is longer than the limits allow")]
    Unsendable,
}
