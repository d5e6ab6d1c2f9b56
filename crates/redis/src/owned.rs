//! `OwnedValue`: a copy of a value as a tree, for applications that keep it.

use bytes::Bytes;

use crate::outgoing_reply::OutgoingReply;
use crate::token::AggregateKind;
use crate::value::{Elements, Value};

/// A value as a tree. Strings in chunks are joined, and attributes are dropped.
///
/// ```
/// use tidegate::redis::{AggregateKind, OwnedValue};
///
/// let pair = OwnedValue::Aggregate(AggregateKind::Array, vec![OwnedValue::Integer(1), OwnedValue::Null]);
/// assert_eq!(pair.to_messages().len(), 3);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum OwnedValue {
    /// No value.
    Null,
    /// A text of one line.
    Simple(Bytes),
    /// An error of one line.
    Error(Bytes),
    /// An integer.
    Integer(i64),
    /// A double.
    Double(f64),
    /// A boolean.
    Boolean(bool),
    /// A whole number of any length.
    BigNumber(Bytes),
    /// Bytes.
    Bulk(Bytes),
    /// An error that may have line breaks.
    BulkError(Bytes),
    /// A format of three bytes and a text.
    Verbatim([u8; 3], Bytes),
    /// Values; those of a map are keys and values in turn.
    Aggregate(AggregateKind, Vec<OwnedValue>),
}

impl OwnedValue {
    /// The messages that send it.
    #[must_use]
    pub fn to_messages(&self) -> Vec<OutgoingReply> {
        let mut messages = Vec::new();
        self.add_to(&mut messages);
        messages
    }

    fn add_to(&self, messages: &mut Vec<OutgoingReply>) {
        messages.push(match self {
            Self::Null => OutgoingReply::Null,
            Self::Simple(text) => OutgoingReply::Simple(text.clone().into()),
            Self::Error(text) => OutgoingReply::Error(text.clone().into()),
            Self::Integer(number) => OutgoingReply::Integer(*number),
            Self::Double(number) => OutgoingReply::Double(*number),
            Self::Boolean(value) => OutgoingReply::Boolean(*value),
            Self::BigNumber(digits) => OutgoingReply::BigNumber(digits.clone().into()),
            Self::Bulk(bytes) => OutgoingReply::Bulk(bytes.clone().into()),
            Self::BulkError(text) => OutgoingReply::BulkError(text.clone().into()),
            Self::Verbatim(format, text) => OutgoingReply::Verbatim(*format, text.clone().into()),
            Self::Aggregate(kind, values) => OutgoingReply::Aggregate(*kind, values.len() as u64 / kind.values()),
        });
        if let Self::Aggregate(_, values) = self {
            values.iter().for_each(|value| value.add_to(messages));
        }
    }
}

impl From<Value<'_>> for OwnedValue {
    /// It copies. The nesting is at most [`DEPTH_MAX`](crate::ProtocolLimits::DEPTH_MAX) deep.
    fn from(value: Value<'_>) -> Self {
        let copy = Bytes::copy_from_slice;
        match value {
            Value::Null => Self::Null,
            Value::Simple(text) => Self::Simple(copy(text)),
            Value::Error(text) => Self::Error(copy(text)),
            Value::Integer(number) => Self::Integer(number),
            Value::Double(number) => Self::Double(number),
            Value::Boolean(value) => Self::Boolean(value),
            Value::BigNumber(digits) => Self::BigNumber(copy(digits)),
            Value::Bulk(bytes) => Self::Bulk(copy(bytes)),
            Value::BulkError(text) => Self::BulkError(copy(text)),
            Value::Verbatim { format, text } => Self::Verbatim(format.try_into().unwrap_or(*b"txt"), copy(text)),
            Value::Streamed(chunks) => Self::Bulk(chunks.collect::<Vec<_>>().concat().into()),
            Value::Aggregate(kind, elements) => Self::Aggregate(kind, owned(elements)),
        }
    }
}

fn owned(elements: Elements<'_>) -> Vec<OwnedValue> {
    elements.map(OwnedValue::from).collect()
}
