//! `DnsError`: why a message, a name or a text is refused, sorted by blame.

use tidegate_codec::Fault;

/// Why a message or a name is refused, or is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Fault)]
#[fault(crate = tidegate_codec)]
#[non_exhaustive]
pub enum DnsError {
    /// A message ends within its header, a question, a record or a field of a record.
    #[fault(peer, "a message ends too early")]
    Truncated,
    /// Bytes follow the last record that the header counts.
    #[fault(peer, "bytes follow the last record")]
    TrailingBytes,
    /// A label has more than 63 bytes, or a type that no RFC defines.
    #[fault(peer, "a label has more than 63 bytes or an unknown type")]
    Label,
    /// A name has more than 255 bytes in wire form.
    #[fault(peer, "a name has more than 255 bytes")]
    NameTooLong,
    /// A compression pointer points forwards, to itself, or through too many others.
    #[fault(peer, "a compression pointer points forwards, to itself, or through too many others")]
    Pointer,
    /// A name is compressed where its record type forbids it.
    #[fault(peer, "a name is compressed where that is forbidden")]
    CompressedName,
    /// The fields of a record do not fill its data exactly.
    #[fault(peer, "the data of a record do not match its type")]
    RecordData,
    /// A message has more than one question (RFC 9619).
    #[fault(peer, "a message has more than one question")]
    QuestionCount,
    /// A message has two OPT records, or one outside the additional section or with a name (RFC 6891 §6.1.1).
    #[fault(peer, "an OPT record is repeated or misplaced")]
    Opt,
    /// A client sends a response, or a server a query.
    #[fault(peer, "a message has the direction of the other role")]
    Direction,
    /// The peer ended the stream within a message.
    #[fault(peer, "the peer ended the stream within a message")]
    TruncatedStream,
    /// A message has more records than [`records_max`](crate::ProtocolLimits::records_max).
    #[fault(limit, "a message has more than {records_max} records")]
    TooManyRecords {
        /// The limit.
        records_max: usize,
    },
    /// An OPT record has more options than [`options_max`](crate::ProtocolLimits::options_max).
    #[fault(limit, "a message has more than {options_max} EDNS options")]
    TooManyOptions {
        /// The limit.
        options_max: usize,
    },
    /// A message on a stream is longer than [`message_bytes_max`](crate::ProtocolLimits::message_bytes_max).
    #[fault(limit, "a message has more than {bytes_max} bytes")]
    MessageTooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// A record does not fit in the message that is written. Nothing of it was written.
    #[fault(caller, "a record does not fit in the message")]
    Full,
    /// A record is written into a section that precedes the section of the record before it.
    #[fault(caller, "a record is written into an earlier section")]
    SectionOrder,
    /// A text is no name in presentation form.
    #[fault(caller, "a text is no domain name")]
    NameText,
    /// A text is no data of the record type in presentation form.
    #[fault(caller, "a text is no data of this record type")]
    DataText,
}
