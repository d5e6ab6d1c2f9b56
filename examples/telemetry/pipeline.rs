//! From spans of `tracing` to a collector: the SDK samples and batches them, and our client sends them.

use std::fmt;
use std::str::FromStr;

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tidegate::http::client::Handle;
use tidegate::http::{Client, TraceContext};
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::Any;

/// Exports spans to a collector at this URL from now on, until `shutdown` of the value.
pub(crate) fn start(collector: &str) -> Result<SdkTracerProvider, Any> {
    let exporter = SpanExporter::builder()
        .with_http()
        // A loop of its own, so that no loop that serves has the work.
        .with_http_client(LoopClient(Client::spawn(Client::new)?))
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{collector}/v1/traces"))
        .build()?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name("tides").build())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tides")).with_location(false);
    tracing_subscriber::registry().with(layer).with(LevelFilter::INFO).try_init()?;
    Ok(provider)
}

/// Gives the span of a request the parent that the request names, and returns the context with the ids of the span: those
/// that the client, the gateway, the access log and exemplars show.
pub(crate) fn link(span: &Span, context: TraceContext) -> TraceContext {
    if let Some(parent) = context.parent_bytes() {
        let flags = if context.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let state = TraceState::from_str(context.tracestate().unwrap_or_default()).unwrap_or_default();
        let (trace, parent) = (TraceId::from_bytes(context.trace_bytes()), SpanId::from_bytes(parent));
        let remote = SpanContext::new(trace, parent, flags, true, state);
        // It fails where no layer exports.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(remote));
    }
    with_ids_of(span, context)
}

/// The context of a request that is sent in a span of its own.
pub(crate) fn child(span: &Span, trace: &TraceContext) -> TraceContext {
    with_ids_of(span, trace.child())
}

fn with_ids_of(span: &Span, context: TraceContext) -> TraceContext {
    let exported = span.context();
    let exported = exported.span();
    let ids = exported.span_context();
    context.with_ids(ids.trace_id().to_bytes(), ids.span_id().to_bytes(), ids.is_sampled())
}

/// Our client, as the exporter calls it: on a thread of the SDK, which waits for the response.
struct LoopClient(Handle);

impl HttpClient for LoopClient {
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'a: 'f,
    {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let fields = head.headers.iter();
            let sent = fields.fold(self.0.request(head.method, head.uri.to_string()), |sent, (name, value)| {
                sent.header(name.as_str(), value.as_bytes())
            });
            let received = sent.body(body).send().await?;
            let mut response = Response::builder().status(received.status());
            if let Some(fields) = response.headers_mut() {
                fields.clone_from(received.headers());
            }
            Ok(response.body(received.into_body().bytes(RESPONSE_BYTES_MAX).await?)?)
        })
    }
}

impl fmt::Debug for LoopClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoopClient")
    }
}

/// A collector's response is a short message.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
