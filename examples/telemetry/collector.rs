//! A collector for the check: it decodes the requests of the exporter, and keeps the spans.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
pub(crate) use opentelemetry_proto::tonic::trace::v1::Span;
pub(crate) use opentelemetry_proto::tonic::trace::v1::span::SpanKind as Kind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message;
use tidegate::http::{Request, Response, Router, Server, StatusCode};
use tidegate::{Bytes, ServerHandle};

use crate::Any;

/// Takes spans by OTLP over HTTP, as protocol buffers.
pub(crate) struct Collector {
    server: ServerHandle,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    /// A collector at a free port.
    pub(crate) fn start() -> Result<Self, Any> {
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let kept = spans.clone();
        let router = move || {
            let kept = kept.clone();
            Router::new().post("/v1/traces", move |body: Bytes, request: Request| receive(&kept, &body, &request))
        };
        let server = Server::bind("127.0.0.1:0")?.loops(1).start(router)?;
        Ok(Self { server, spans })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The spans that it got.
    pub(crate) fn end(self) -> Vec<Span> {
        self.server.drain(Duration::from_secs(5));
        std::mem::take(&mut self.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn receive(kept: &Mutex<Vec<Span>>, body: &[u8], request: &Request) -> Result<Response, StatusCode> {
    if request.header("content-type") != Some(b"application/x-protobuf") {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let message = ExportTraceServiceRequest::decode(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let scopes = message.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    kept.lock().unwrap_or_else(PoisonError::into_inner).extend(scopes.flat_map(|scope| scope.spans));
    let response = Response::new().body(ExportTraceServiceResponse::default().encode_to_vec());
    response.header("Content-Type", "application/x-protobuf").map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

/// The value of an attribute as text; empty without it.
pub(crate) fn attribute(span: &Span, key: &str) -> String {
    let value = span.attributes.iter().find(|attribute| attribute.key == key);
    match value.and_then(|attribute| attribute.value.as_ref()).and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// The status of a span that has failed.
pub(crate) const ERROR: i32 = SpanStatus::Error as i32;
