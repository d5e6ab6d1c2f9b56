//! Traces for a collector of OpenTelemetry: spans of requests, of functions and of the client, by OTLP over HTTP.
//!
//! ```text
//! cargo run --example telemetry                                            # checks itself against a collector of its own
//! cargo run --example telemetry -- 127.0.0.1:8080 http://127.0.0.1:4318    # serves, and exports to a collector
//! ```
//!
//! A request goes through a gateway to a service, which asks another service. One trace has all of it: each request has
//! a span at each server and each client, by the conventions for HTTP, and the parent of each is the span that has sent it.
//!
//! `pipeline.rs` joins `tracing` with the SDK, and sends by our client. `collector.rs` is the collector of the check.

#![forbid(unsafe_code)]

mod collector;
mod pipeline;

use std::error::Error;

use tidegate::http::client::ClientError;
use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{Client, Extension, Path, RequestSpans, Router, Server, StatusCode, TraceContext};
use tidegate::metrics::{Exemplar, HttpMetrics, HttpSnapshot};
use tidegate::{Backend, EventLoop, ServerHandle};
use tracing::Instrument;
use tracing::field::Empty;

type Any = Box<dyn Error>;

/// The service that measures: it knows one harbour.
fn gauges() -> Router {
    Router::new()
        .get("/levels/{harbour}", |Path(harbour): Path<String>| {
            tracing::info!(harbour, "a gauge is read");
            if harbour == "brest" { Ok("4.2") } else { Err(StatusCode::INTERNAL_SERVER_ERROR) }
        })
        .with(RequestSpans::new().link(pipeline::link))
        .wrap(RequestSpans::enter)
}

/// The service that asks for the level: the trace of its request goes on with the client's.
fn tides(gauges: &str) -> Router {
    let (client, gauges) = (Client::new(), gauges.to_owned());
    let tide = async move |Path(harbour): Path<String>, Extension(trace): Extension<TraceContext>| {
        let level = level(&client, &format!("{gauges}/levels/{harbour}"), &trace).await;
        level.map(|level| format!("The tide at {harbour} is {level} m.\n")).map_err(|_| StatusCode::BAD_GATEWAY)
    };
    Router::new().get("/tides/{harbour}", tide).with(RequestSpans::new().link(pipeline::link)).wrap(RequestSpans::enter)
}

/// Asks another server, in a span of its own, by the conventions for HTTP clients.
async fn level(client: &Client, url: &str, trace: &TraceContext) -> Result<String, ClientError> {
    let span = tracing::info_span!(
        "client",
        otel.name = "GET",
        otel.kind = "client",
        otel.status_code = Empty,
        http.request.method = "GET",
        http.response.status_code = Empty,
        error.type = Empty,
        url.full = url,
    );
    let context = pipeline::child(&span, trace);
    let fail = |error: &str| {
        span.record("error.type", error);
        span.record("otel.status_code", "ERROR");
    };
    let sent = client.get(url).trace(&context).send().instrument(span.clone());
    let response = sent.await.inspect_err(|_| fail("request"))?;
    span.record("http.response.status_code", response.status().as_u16());
    if response.status().is_client_error() || response.status().is_server_error() {
        fail(response.status().as_str());
    }
    response.error_for_status()?.text().await
}

/// The gateway in front: the upstream's parent is the span of the gateway's attempt, below that of the request.
fn gateway(upstreams: &Upstreams) -> Router {
    Router::new().any("/tides/{harbour}", Proxy::new(upstreams)).with(RequestSpans::new().link(pipeline::link))
}

/// The three servers, each on a loop of its own, and the requests of the service as metrics.
fn start(address: &str) -> Result<([ServerHandle; 3], HttpMetrics), Any> {
    let metrics = HttpMetrics::new();
    let measuring = Server::bind("127.0.0.1:0")?.loops(1).start(gauges)?;
    let url = format!("http://{}", measuring.address());
    let serving = Server::bind("127.0.0.1:0")?.loops(1).metrics(&metrics).start(move || tides(&url))?;
    let upstreams = Upstreams::new([&*format!("http://{}", serving.address())])?;
    let gate = Server::bind(address)?.loops(1).start(move || gateway(&upstreams))?;
    Ok(([gate, serving, measuring], metrics))
}

fn main() -> Result<(), Any> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [address, collector] = &arguments[..] else { return demonstrate() };
    let provider = pipeline::start(collector)?;
    let (servers, _) = start(address)?;
    println!("http://{}/tides/brest", servers[0].address());
    servers[0].wait();
    provider.shutdown()?;
    Ok(())
}

/// Sends requests, and checks the spans that the collector gets.
fn demonstrate() -> Result<(), Any> {
    let collector = collector::Collector::start()?;
    let provider = pipeline::start(&collector.url())?;
    let (servers, metrics) = start("127.0.0.1:0")?;
    let gate = format!("http://{}", servers[0].address());
    let caller =
        TraceContext::received([&b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"[..]], [&b"sea=north"[..]]);
    let context = caller.clone();
    let texts = EventLoop::on(Backend::Auto)?.block_on(async move {
        let client = Client::new();
        let found = client.get(format!("{gate}/tides/brest")).trace(&context).send().await?;
        let found = (found.status(), found.text().await?);
        // It is malformed: a new trace begins.
        let broken = client
            .get(format!("{gate}/tides/atlantis"))
            .header("traceparent", "00-1")
            .header("tracestate", "sea=south");
        let missing = broken.send().await?;
        Ok::<_, ClientError>((found, missing.status()))
    })??;
    assert_eq!(texts.0, (StatusCode::OK, "The tide at brest is 4.2 m.\n".to_owned()));
    assert_eq!(texts.1, StatusCode::BAD_GATEWAY);
    for server in &servers {
        server.begin_drain(std::time::Duration::from_secs(5));
        server.wait();
    }
    provider.shutdown()?;
    let spans = collector.end();
    check_trace(&spans, &caller);
    check_failure(&spans);
    check_exemplars(&metrics, &spans);
    println!("{} spans were exported", spans.len());
    Ok(())
}

/// The spans of the request that brought a trace: each has its sender as its parent.
fn check_trace(spans: &[collector::Span], caller: &TraceContext) {
    let of_trace: Vec<_> = spans.iter().filter(|span| span.trace_id == caller.trace_bytes()).collect();
    let of_parent = |parent: &[u8], kind: collector::Kind| {
        let found: Vec<_> =
            of_trace.iter().filter(|span| span.parent_span_id == parent && span.kind == kind as i32).collect();
        assert_eq!(found.len(), 1, "one span of the kind {kind:?} in {of_trace:#?}");
        *found[0]
    };
    assert_eq!(of_trace.len(), 5, "{of_trace:#?}");
    let gate = of_parent(&caller.span_bytes(), collector::Kind::Server);
    let attempt = of_parent(&gate.span_id, collector::Kind::Client);
    let service = of_parent(&attempt.span_id, collector::Kind::Server);
    let client = of_parent(&service.span_id, collector::Kind::Client);
    let gauge = of_parent(&client.span_id, collector::Kind::Server);
    for (span, name) in [
        (gate, "GET /tides/{harbour}"),
        (attempt, "GET"),
        (service, "GET /tides/{harbour}"),
        (client, "GET"),
        (gauge, "GET /levels/{harbour}"),
    ] {
        assert_eq!(span.name, name);
        assert_eq!(collector::attribute(span, "http.request.method"), "GET");
        assert_eq!(collector::attribute(span, "http.response.status_code"), "200");
        assert_eq!(span.trace_state, "sea=north");
    }
    for (key, value) in [
        ("http.route", "/levels/{harbour}"),
        ("url.path", "/levels/brest"),
        ("url.scheme", "http"),
        ("server.address", "127.0.0.1"),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("error.type", ""),
    ] {
        assert_eq!(collector::attribute(gauge, key), value, "{key}");
    }
    // `enter` has made the span the current one of the function.
    assert_eq!(gauge.events.iter().map(|event| &*event.name).collect::<Vec<_>>(), ["a gauge is read"]);
}

/// The request whose `traceparent` was malformed has a trace of its own, and its spans have failed.
fn check_failure(spans: &[collector::Span]) {
    let failed: Vec<_> =
        spans.iter().filter(|span| collector::attribute(span, "url.path").ends_with("/atlantis")).collect();
    assert_eq!(failed.len(), 3, "{failed:#?}");
    assert!(failed.iter().all(|span| span.trace_id == failed[0].trace_id && span.trace_state.is_empty()));
    let statuses = |key| failed.iter().map(|span| collector::attribute(span, key)).collect::<Vec<_>>();
    let mut types = statuses("error.type");
    types.sort();
    assert_eq!(types, ["500", "502", "502"]);
    assert!(failed.iter().all(|span| span.status.as_ref().is_some_and(|status| status.code == collector::ERROR)));
    assert_eq!(failed.iter().filter(|span| span.parent_span_id.is_empty()).count(), 1, "the gateway's has no parent");
}

/// Each exemplar of the service's histogram names a span that the collector has.
fn check_exemplars(metrics: &HttpMetrics, spans: &[collector::Span]) {
    let all = metrics.snapshot();
    let exemplars: Vec<_> = all.iter().flat_map(HttpSnapshot::exemplars).map(Exemplar::ids).collect();
    assert!(!exemplars.is_empty(), "both requests were recorded");
    for ids in exemplars {
        let found = spans.iter().find(|span| span.trace_id == ids.trace && span.span_id == ids.span);
        assert_eq!(found.map(|span| &*span.name), Some("GET /tides/{harbour}"), "{ids:?}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_collector_gets_the_spans_of_a_trace_with_their_parents() -> Result<(), super::Any> {
        super::demonstrate()
    }
}
