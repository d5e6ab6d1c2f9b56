//! `SpanLayer`: collects the spans of requests, and gives finished ones to an exporter.
//!
//! It sees the spans of the target `tidegate::http` alone, and keeps those that [`link`] has joined with a trace.

use std::fmt::{self, Debug, Write as _};
use std::ops::Range;
use std::time::SystemTime;

use tidegate::http::TraceContext;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Span, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Registry};

use super::queue::SpanSink;

/// The layer. It has no state: a span has the exporter that it goes to.
pub(crate) struct SpanLayer;

/// Whether a span is one of a request or of an attempt.
pub(crate) fn is_request_span(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == "tidegate::http"
}

/// A span that is over.
#[derive(Debug)]
pub(super) struct FinishedSpan {
    pub(super) context: TraceContext,
    pub(super) fields: SpanFields,
    pub(super) began: SystemTime,
    pub(super) ended: SystemTime,
}

/// The fields of a span. One buffer has all texts, since the thread that frees them is not the one that allocates them.
#[derive(Debug)]
pub(super) struct SpanFields {
    pub(super) kind: SpanKind,
    pub(super) is_error: bool,
    /// `otel.name` replaces it.
    name: &'static str,
    replaced_name: Option<TextRange>,
    attributes: Vec<(&'static str, RecordedValue)>,
    texts: String,
}

/// Bytes of [`SpanFields::texts`].
type TextRange = Range<u32>;

#[derive(Debug)]
enum RecordedValue {
    Text(TextRange),
    Number(i64),
    Boolean(bool),
}

/// The side of an exchange that a span is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal,
    Server,
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttributeValue<'a> {
    Text(&'a str),
    Number(i64),
    Boolean(bool),
}

/// A span that is not over.
struct OpenSpan {
    began: SystemTime,
    fields: SpanFields,
    /// Its trace, and where it goes.
    link: Option<(TraceContext, SpanSink)>,
}

/// Joins a span with its trace, under the ids of the context.
pub(super) fn link(span: &Span, context: TraceContext, sink: &SpanSink) -> TraceContext {
    span.with_subscriber(|(id, dispatch)| {
        let found = dispatch.downcast_ref::<Registry>().and_then(|registry| registry.span(id));
        if let Some(found) = found
            && let Some(open) = found.extensions_mut().get_mut::<OpenSpan>()
        {
            open.link = Some((context.clone(), sink.clone()));
        }
    });
    context
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = SpanFields::new(attributes.metadata().name());
        attributes.record(&mut fields);
        span.extensions_mut().insert(OpenSpan { began: SystemTime::now(), fields, link: None });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<OpenSpan>()
        {
            values.record(&mut open.fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let open = context.span(&id).and_then(|span| span.extensions_mut().remove::<OpenSpan>());
        let Some(OpenSpan { began, fields, link: Some((context, sink)) }) = open else { return };
        sink.push(FinishedSpan { context, fields, began, ended: SystemTime::now() });
    }
}

impl SpanFields {
    fn new(name: &'static str) -> Self {
        Self {
            kind: SpanKind::Internal,
            is_error: false,
            name,
            replaced_name: None,
            attributes: Vec::with_capacity(ATTRIBUTES),
            texts: String::with_capacity(TEXT_BYTES),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.replaced_name.as_ref().map_or(self.name, |range| self.text(range))
    }

    pub(super) fn attributes(&self) -> impl Iterator<Item = (&'static str, AttributeValue<'_>)> {
        self.attributes.iter().map(|(name, value)| {
            let value = match value {
                RecordedValue::Text(range) => AttributeValue::Text(self.text(range)),
                RecordedValue::Number(number) => AttributeValue::Number(*number),
                RecordedValue::Boolean(is) => AttributeValue::Boolean(*is),
            };
            (*name, value)
        })
    }

    fn text(&self, range: &TextRange) -> &str {
        &self.texts[range.start as usize..range.end as usize]
    }

    fn set(&mut self, name: &'static str, value: RecordedValue) {
        match self.attributes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.attributes.push((name, value)),
        }
    }

    /// Writes a text behind the others, up to the limit.
    fn push_text(&mut self, write: impl FnOnce(&mut BoundedText<'_>) -> fmt::Result) -> TextRange {
        let begin = self.texts.len();
        // It fails at the limit, or if a part of the value does.
        let _ = write(&mut BoundedText { texts: &mut self.texts, left: ATTRIBUTE_BYTES_MAX });
        begin as u32..self.texts.len() as u32
    }

    fn set_text(&mut self, name: &'static str, write: impl FnOnce(&mut BoundedText<'_>) -> fmt::Result) {
        let range = self.push_text(write);
        match name {
            "otel.name" => self.replaced_name = Some(range),
            "otel.kind" => {
                self.kind = match self.text(&range) {
                    "server" => SpanKind::Server,
                    "client" => SpanKind::Client,
                    _ => SpanKind::Internal,
                }
            }
            "otel.status_code" => self.is_error = self.text(&range) == "ERROR",
            name => self.set(name, RecordedValue::Text(range)),
        }
    }
}

impl Visit for SpanFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set_text(field.name(), |text| text.write_str(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set_text(field.name(), |text| write!(text, "{value:?}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), RecordedValue::Number(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), RecordedValue::Number(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), RecordedValue::Boolean(value));
    }
}

/// Appends the beginning of a text, up to the limit.
struct BoundedText<'a> {
    texts: &'a mut String,
    left: usize,
}

impl fmt::Write for BoundedText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let longest = self.left.min(text.len());
        let end = (0..=longest).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
        self.texts.push_str(&text[..end]);
        if end < text.len() {
            self.left = 0;
            return Err(fmt::Error);
        }
        self.left -= end;
        Ok(())
    }
}

/// Bytes of one attribute: a peer chooses the path and the user agent, and spans wait in memory.
const ATTRIBUTE_BYTES_MAX: usize = 1024;

/// Attributes of most spans.
const ATTRIBUTES: usize = 16;

/// Bytes of the texts of most spans.
const TEXT_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_attribute_is_cut_at_a_character() {
        let length = |text: &str| {
            let mut fields = SpanFields::new("request");
            fields.set_text("before", |text| text.write_str("a"));
            fields.set_text("url.path", |cut| cut.write_str(text));
            fields.set_text("after", |text| text.write_str("b"));
            let texts: Vec<_> = fields.attributes().map(|(_, value)| value).collect();
            assert_eq!((texts[0], texts[2]), (AttributeValue::Text("a"), AttributeValue::Text("b")));
            assert!(matches!(texts[1], AttributeValue::Text(cut) if text.starts_with(cut)));
            fields.texts.len() - 2
        };
        assert_eq!(length(&"a".repeat(1024)), 1024);
        assert_eq!(length(&"a".repeat(2000)), 1024);
        assert_eq!(length(&("a".repeat(1023) + "ü")), 1023);
        assert_eq!(length(""), 0);
    }

    #[test]
    fn a_value_in_pieces_is_cut_as_a_whole() {
        let mut fields = SpanFields::new("request");
        fields.set_text("url.full", |text| write!(text, "{}{}b", "a".repeat(1020), "ü".repeat(10)));
        assert_eq!(fields.texts, "a".repeat(1020) + "üü");
    }

    #[test]
    fn a_later_value_replaces_an_earlier_one() {
        let mut fields = SpanFields::new("request");
        assert_eq!(fields.name(), "request");
        fields.set_text("otel.name", |text| text.write_str("GET /tides"));
        fields.set_text("otel.kind", |text| text.write_str("server"));
        fields.set_text("error.type", |text| text.write_str("500"));
        fields.set("http.response.status_code", RecordedValue::Number(500));
        fields.set_text("error.type", |text| text.write_str("body"));
        fields.set_text("otel.status_code", |text| text.write_str("ERROR"));
        assert_eq!((fields.name(), fields.kind, fields.is_error), ("GET /tides", SpanKind::Server, true));
        let attributes: Vec<_> = fields.attributes().collect();
        let expected =
            [("error.type", AttributeValue::Text("body")), ("http.response.status_code", AttributeValue::Number(500))];
        assert_eq!(attributes, expected);
    }
}
