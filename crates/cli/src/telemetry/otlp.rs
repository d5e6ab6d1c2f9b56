//! Spans as a message of OTLP, in the encoding of protocol buffers: `ExportTraceServiceRequest` of
//! opentelemetry-proto 1.7. The comments name the messages; the numbers are those of their fields.

use std::time::{SystemTime, UNIX_EPOCH};

use super::spans::{AttributeValue, FinishedSpan, SpanKind};

/// The spans of a service.
pub(super) fn encode(service: &str, spans: &[FinishedSpan]) -> Vec<u8> {
    let mut message = ProtobufWriter::with_capacity(spans.len() * SPAN_BYTES + 256);
    // ExportTraceServiceRequest.resource_spans, a ResourceSpans.
    message.nested(1, |resource_spans| {
        // Its `resource`.
        resource_spans.nested(1, |resource| {
            resource.attribute(1, "service.name", AttributeValue::Text(service));
            resource.attribute(1, "telemetry.sdk.name", AttributeValue::Text("tidegate"));
            resource.attribute(1, "telemetry.sdk.language", AttributeValue::Text("rust"));
            resource.attribute(1, "telemetry.sdk.version", AttributeValue::Text(env!("CARGO_PKG_VERSION")));
        });
        // Its `scope_spans`, a ScopeSpans.
        resource_spans.nested(2, |scope_spans| {
            scope_spans.nested(1, |scope| scope.text(1, "tidegate"));
            for span in spans {
                scope_spans.nested(2, |message| message.span(span));
            }
        });
    });
    message.0
}

/// Writes a message of protocol buffers.
#[derive(Default)]
struct ProtobufWriter(Vec<u8>);

impl ProtobufWriter {
    fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// A Span.
    fn span(&mut self, span: &FinishedSpan) {
        let context = &span.context;
        self.bytes(1, &context.trace_bytes());
        self.bytes(2, &context.span_bytes());
        if let Some(state) = context.tracestate() {
            self.text(3, state);
        }
        if let Some(parent) = context.parent_bytes() {
            self.bytes(4, &parent);
        }
        self.text(5, span.fields.name());
        self.number(
            6,
            match span.fields.kind {
                SpanKind::Internal => 1,
                SpanKind::Server => 2,
                SpanKind::Client => 3,
            },
        );
        self.fixed64(7, nanoseconds(span.began));
        // The clock of the system may go back.
        self.fixed64(8, nanoseconds(span.ended.max(span.began)));
        for (name, value) in span.fields.attributes() {
            self.attribute(9, name, value);
        }
        if span.fields.is_error {
            self.nested(15, |status| status.number(3, STATUS_ERROR));
        }
        self.fixed32(16, FLAGS_SAMPLED);
    }

    /// A KeyValue. Its lengths are known before its bytes.
    fn attribute(&mut self, field: u32, name: &str, value: AttributeValue<'_>) {
        let value_bytes = match value {
            AttributeValue::Text(text) => 1 + varint_bytes(text.len() as u64) + text.len(),
            AttributeValue::Boolean(_) => 2,
            AttributeValue::Number(number) => 1 + varint_bytes(number.cast_unsigned()),
        };
        let name_bytes = 1 + varint_bytes(name.len() as u64) + name.len();
        self.key(field, LENGTH);
        self.varint((name_bytes + 1 + varint_bytes(value_bytes as u64) + value_bytes) as u64);
        self.text(1, name);
        // An AnyValue.
        self.key(2, LENGTH);
        self.varint(value_bytes as u64);
        match value {
            AttributeValue::Text(text) => self.text(1, text),
            AttributeValue::Boolean(is) => self.number(2, u64::from(is)),
            // An int64 below zero is its two's complement.
            AttributeValue::Number(number) => self.number(3, number.cast_unsigned()),
        }
    }

    fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn number(&mut self, field: u32, number: u64) {
        self.key(field, VARINT);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u32, number: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u32, number: u32) {
        self.key(field, FIXED32);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// A message within this one. Its length stands before it, so its bytes move by the size of that.
    fn nested(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.key(field, LENGTH);
        let begin = self.0.len();
        write(self);
        let mut length = Self::default();
        length.varint((self.0.len() - begin) as u64);
        self.0.splice(begin..begin, length.0);
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

/// Bytes of a number as a varint: seven bits each.
fn varint_bytes(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The types of the wire.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED32: u32 = 5;

/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u64 = 2;
/// Spans that are not recorded do not come here.
const FLAGS_SAMPLED: u32 = 1;

/// An estimate of the bytes of a span.
const SPAN_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lengths_are_varints() {
        for (number, expected) in [
            (0, &[0][..]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let mut message = ProtobufWriter::default();
            message.varint(number);
            assert_eq!(message.0, expected, "{number}");
            assert_eq!(varint_bytes(number), expected.len(), "{number}");
        }
        let mut message = ProtobufWriter::default();
        message.nested(1, |inner| inner.text(2, &"a".repeat(200)));
        assert_eq!(message.0[..6], [1 << 3 | 2, 0xcb, 1, 2 << 3 | 2, 0xc8, 1]);
        assert_eq!(message.0.len(), 6 + 200);
    }

    #[test]
    fn an_attribute_is_the_message_that_it_says() {
        let values = [
            AttributeValue::Text(""),
            AttributeValue::Text(&"ü".repeat(200)),
            AttributeValue::Boolean(true),
            AttributeValue::Number(-1),
            AttributeValue::Number(300),
        ];
        for value in values {
            let (mut message, mut nested) = (ProtobufWriter::default(), ProtobufWriter::default());
            message.attribute(9, "name", value);
            nested.nested(9, |pair| {
                pair.text(1, "name");
                pair.nested(2, |any| match value {
                    AttributeValue::Text(text) => any.text(1, text),
                    AttributeValue::Boolean(is) => any.number(2, u64::from(is)),
                    AttributeValue::Number(number) => any.number(3, number.cast_unsigned()),
                });
            });
            assert_eq!(message.0, nested.0, "{value:?}");
        }
    }
}
