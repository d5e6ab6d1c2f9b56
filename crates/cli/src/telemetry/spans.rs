//! `SpanLayer`: collects the spans of requests, and gives finished ones to an exporter.
//!
//! It sees the spans of the target `tidegate::http` alone, and keeps those that [`link`] has joined with a trace.

use std::borrow::Cow;
use std::fmt::{Debug, Write as _};
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
    pub(super) name: Cow<'static, str>,
    pub(super) kind: SpanKind,
    pub(super) began: SystemTime,
    pub(super) ended: SystemTime,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
    pub(super) is_error: bool,
}

/// The side of an exchange that a span is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal,
    Server,
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AttributeValue {
    Text(String),
    Number(i64),
    Boolean(bool),
}

/// A span that is not over.
struct OpenSpan {
    began: SystemTime,
    name: Cow<'static, str>,
    kind: SpanKind,
    attributes: Vec<(&'static str, AttributeValue)>,
    is_error: bool,
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
        let mut open = OpenSpan {
            began: SystemTime::now(),
            // `otel.name` replaces it.
            name: attributes.metadata().name().into(),
            kind: SpanKind::Internal,
            attributes: Vec::with_capacity(ATTRIBUTES),
            is_error: false,
            link: None,
        };
        attributes.record(&mut open);
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<OpenSpan>()
        {
            values.record(open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let open = context.span(&id).and_then(|span| span.extensions_mut().remove::<OpenSpan>());
        let Some(OpenSpan { began, name, kind, attributes, is_error, link: Some((context, sink)) }) = open else {
            return;
        };
        sink.push(FinishedSpan { context, name, kind, began, ended: SystemTime::now(), attributes, is_error });
    }
}

impl OpenSpan {
    fn set(&mut self, name: &'static str, value: AttributeValue) {
        match self.attributes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.attributes.push((name, value)),
        }
    }
}

impl Visit for OpenSpan {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "otel.name" => self.name = bounded(value.to_owned()).into(),
            "otel.kind" => {
                self.kind = match value {
                    "server" => SpanKind::Server,
                    "client" => SpanKind::Client,
                    _ => SpanKind::Internal,
                }
            }
            "otel.status_code" => self.is_error = value == "ERROR",
            name => self.set(name, AttributeValue::Text(bounded(value.to_owned()))),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // It fails if a part of the value does.
        let _ = write!(text, "{value:?}");
        match field.name() {
            "otel.name" => self.name = bounded(text).into(),
            name if name.starts_with("otel.") => self.record_str(field, &text),
            name => self.set(name, AttributeValue::Text(bounded(text))),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), AttributeValue::Number(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), AttributeValue::Number(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), AttributeValue::Boolean(value));
    }
}

/// The beginning of a text, up to the limit.
fn bounded(mut text: String) -> String {
    if text.len() > ATTRIBUTE_BYTES_MAX {
        let end = (0..=ATTRIBUTE_BYTES_MAX).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
        text.truncate(end);
        text.shrink_to_fit();
    }
    text
}

/// Bytes of one attribute: a peer chooses the path and the user agent, and spans wait in memory.
const ATTRIBUTE_BYTES_MAX: usize = 1024;

/// Attributes of most spans.
const ATTRIBUTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_attribute_is_cut_at_a_character() {
        assert_eq!(bounded("a".repeat(1024)).len(), 1024);
        assert_eq!(bounded("a".repeat(1023) + "ü").len(), 1023);
        assert_eq!(bounded(String::new()), "");
    }
}
