//! Traces: spans of requests by OpenTelemetry's conventions, the W3C context, and both in logs and metrics.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::http::{
    AccessLog, Body, Config, Extension, LineLog, LogFormat, Request, RequestSpan, RequestSpans, Response, Router,
    StatusCode, Template, TemplateValues, TraceContext, TraceContexts, TrustedProxies, with_middleware,
};
use tidegate::task;
use tidegate_testkit::Embedded;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Metadata, Span, Subscriber};

/// The spans of a thread, with their fields in the order of their names.
#[derive(Clone, Default)]
struct Spans(Arc<SpanTable>);

#[derive(Default)]
struct SpanTable {
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, OpenSpan>>,
    closed: Mutex<Vec<Fields>>,
    entered: Mutex<Vec<u64>>,
}

type Fields = BTreeMap<&'static str, String>;

struct OpenSpan {
    fields: Fields,
    handles: usize,
}

impl Subscriber for Spans {
    /// Each thread is asked: those of other tests have no subscriber.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "tidegate::http"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields = Fields::new();
        attributes.record(&mut Values(&mut fields));
        self.0.open.lock().unwrap().insert(id, OpenSpan { fields, handles: 1 });
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut open = self.0.open.lock().unwrap();
        values.record(&mut Values(&mut open.get_mut(&span.into_u64()).expect("it is open").fields));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        self.0.entered.lock().unwrap().push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.entered.lock().unwrap().pop();
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.0.open.lock().unwrap().get_mut(&id.into_u64()).expect("it is open").handles += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut open = self.0.open.lock().unwrap();
        let span = open.get_mut(&id.into_u64()).expect("it is open");
        span.handles -= 1;
        if span.handles > 0 {
            return false;
        }
        let span = open.remove(&id.into_u64()).expect("it is open");
        self.0.closed.lock().unwrap().push(span.fields);
        true
    }
}

struct Values<'a>(&'a mut Fields);

impl Visit for Values<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Spans {
    /// The spans that have ended since the last call.
    fn take(&self) -> Vec<Fields> {
        std::mem::take(&mut self.0.closed.lock().unwrap())
    }

    /// The only one.
    fn take_one(&self) -> Fields {
        let mut all = self.take();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }
}

/// Runs with a subscriber for spans, on this thread alone.
fn with_spans(run: impl FnOnce(&Spans)) {
    // With one subscriber in the process, tracing asks the first thread that comes to a call site for all.
    let _second = Dispatch::new(Spans::default());
    let spans = Spans::default();
    tracing::subscriber::with_default(spans.clone(), || run(&spans));
}

fn pipe(router: Router) -> Embedded<()> {
    let (codec, handler) = Config::new().connections(router)();
    Embedded::new(codec, handler)
}

fn get(path: &str, lines: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: sea:81\r\n{lines}\r\n").into_bytes()
}

fn text(pipe: &mut Embedded<()>) -> String {
    String::from_utf8(pipe.take_written()).expect("text")
}

const PARENT: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";

#[test]
fn a_span_has_the_attributes_of_the_conventions() {
    with_spans(|spans| {
        let mut pipe = pipe(Router::new().get("/tides/{harbour}", || "high").with(RequestSpans::new()));
        pipe.receive(&get("/tides/brest?key=secret", "User-Agent: gauge\r\n"));
        let span = spans.take_one();
        for (name, value) in [
            ("otel.name", "GET /tides/{harbour}"),
            ("otel.kind", "server"),
            ("http.request.method", "GET"),
            ("http.route", "/tides/{harbour}"),
            ("http.response.status_code", "200"),
            ("url.scheme", "http"),
            ("url.path", "/tides/brest"),
            ("server.address", "sea"),
            ("server.port", "81"),
            ("network.protocol.version", "1.1"),
            ("user_agent.original", "gauge"),
        ] {
            assert_eq!(span.get(name).map(String::as_str), Some(value), "{name} of {span:?}");
        }
        for absent in ["error.type", "otel.status_code", "http.request.method_original"] {
            assert_eq!(span.get(absent), None, "{span:?}");
        }
        assert!(!format!("{span:?}").contains("secret"), "{span:?}");
    });
}

#[test]
fn names_of_spans_have_no_text_of_a_peer() {
    with_spans(|spans| {
        let mut pipe = pipe(Router::new().any("/", || "").with(RequestSpans::new()));
        pipe.receive(b"TIDE / HTTP/1.1\r\nHost: sea\r\n\r\nGET /other HTTP/1.1\r\nHost: sea\r\n\r\n");
        let names: Vec<_> = spans
            .take()
            .into_iter()
            .map(|span| {
                (
                    span["otel.name"].clone(),
                    span["http.request.method"].clone(),
                    span["http.response.status_code"].clone(),
                )
            })
            .collect();
        let expected = [("HTTP /", "_OTHER", "200"), ("GET", "GET", "404")];
        assert_eq!(names, expected.map(|(name, method, status)| (name.into(), method.into(), status.into())));
    });
}

#[test]
fn a_server_error_a_panic_and_a_late_function_are_errors_of_the_span() {
    with_spans(|spans| {
        let router = || {
            Router::new()
                .get("/fails", || StatusCode::SERVICE_UNAVAILABLE)
                .get("/refuses", || StatusCode::CONFLICT)
                .get("/panics", || -> &'static str { panic!("as planned") })
                .get("/late", async || task::sleep(Duration::from_secs(86_400)).await)
                .timeout(Duration::from_secs(1))
                .with(RequestSpans::new())
                .wrap(RequestSpans::enter)
        };
        for (path, status, error) in [
            ("/fails", "503", Some("503")),
            ("/refuses", "409", None),
            ("/late", "503", Some("503")),
            ("/panics", "500", Some("500")),
        ] {
            let mut pipe = pipe(router());
            pipe.receive(&get(path, ""));
            pipe.advance(Duration::from_secs(2));
            let span = spans.take_one();
            assert_eq!(span["http.response.status_code"], status, "{path}");
            assert_eq!(span.get("error.type").map(String::as_str), error, "{path}");
            assert_eq!(span.get("otel.status_code").map(String::as_str), error.map(|_| "ERROR"), "{path}");
        }
    });
}

#[test]
fn a_span_has_the_client_that_trusted_proxies_name_and_the_peer() {
    with_spans(|spans| {
        let any = || TrustedProxies::new("0.0.0.0/0, ::/0, unix".parse().unwrap());
        let before = Router::new().get("/", || "").with(any()).with(RequestSpans::new());
        // A route that trusts proxies corrects the span that its router has made.
        let after = Router::new().get("/", with_middleware(|| "").with(any())).with(RequestSpans::new());
        let none = Router::new().get("/", || "").with(RequestSpans::new());
        for (router, is_named) in [(before, true), (after, true), (none, false)] {
            let mut pipe = pipe(router);
            pipe.receive(&get("/", "X-Forwarded-For: 198.51.100.7\r\n"));
            let span = spans.take_one();
            let client = span.get("client.address").map(String::as_str);
            let peer = span.get("network.peer.address").map(String::as_str);
            assert_eq!(client == Some("198.51.100.7"), is_named, "{span:?}");
            assert!(is_named || client == peer, "{span:?}");
        }
    });
}

#[test]
fn a_client_that_leaves_ends_the_span_with_an_error() {
    with_spans(|spans| {
        let waits = async || task::sleep(Duration::from_secs(5)).await;
        let mut pipe = pipe(Router::new().get("/", waits).with(RequestSpans::new()).wrap(RequestSpans::enter));
        pipe.receive(&get("/", ""));
        assert_eq!(spans.take(), []);
        pipe.reset();
        pipe.run();
        let span = spans.take_one();
        assert_eq!((span["error.type"].as_str(), span.get("http.response.status_code")), ("client_left", None));
    });
}

#[test]
fn a_span_lasts_until_its_body_is_produced() {
    with_spans(|spans| {
        let entered = spans.clone();
        let produced = move |fails: bool| {
            let entered = entered.clone();
            Body::produce(async move |writer| {
                task::sleep(Duration::from_secs(1)).await;
                assert_eq!(entered.0.entered.lock().unwrap().len(), 1, "the body is produced within the span");
                writer.write("ebb").await?;
                if fails { Err("no more".into()) } else { Ok(()) }
            })
        };
        let fails = produced.clone();
        let router = Router::new().get("/whole", move || produced(false)).get("/broken", move || fails(true));
        let mut pipe = pipe(router.with(RequestSpans::new()));
        for (path, error) in [("/whole", None), ("/broken", Some("body"))] {
            pipe.receive(&get(path, ""));
            assert_eq!(spans.take(), [], "{path}");
            pipe.advance(Duration::from_secs(2));
            let span = spans.take_one();
            assert_eq!(span.get("error.type").map(String::as_str), error, "{path}");
            assert_eq!(span["http.response.status_code"], "200");
        }
    });
}

#[test]
fn functions_run_within_their_span_where_it_is_entered() {
    with_spans(|spans| {
        let entered = spans.clone();
        let current = move || entered.0.entered.lock().unwrap().last().copied().unwrap_or_default().to_string();
        let later = current.clone();
        let router = Router::new()
            .get("/now", current)
            .get("/later", async move || {
                task::sleep(Duration::from_secs(1)).await;
                later()
            })
            .with(RequestSpans::new());
        let mut pipe = pipe(router.wrap(RequestSpans::enter));
        pipe.receive(&get("/now", ""));
        assert!(text(&mut pipe).ends_with("\r\n\r\n1"));
        pipe.receive(&get("/later", ""));
        pipe.advance(Duration::from_secs(2));
        assert!(text(&mut pipe).ends_with("\r\n\r\n2"));
        assert_eq!(spans.take().len(), 2);
    });
}

#[test]
fn a_link_decides_the_ids_that_are_passed_on() {
    with_spans(|_| {
        let link = |span: &Span, context: TraceContext| {
            let trace = context.trace_bytes();
            context.with_ids(trace, [span.id().map_or(0, |id| id.into_u64() as u8); 8], true)
        };
        let show = |Extension(trace): Extension<TraceContext>| trace.traceparent();
        let mut pipe = pipe(Router::new().get("/", show).with(RequestSpans::new().link(link)));
        pipe.receive(&get("/", PARENT));
        assert!(text(&mut pipe).ends_with("00-4bf92f3577b34da6a3ce929d0e0e4736-0101010101010101-01"));
    });
}

#[test]
fn a_sampler_chooses_the_requests_that_get_spans() {
    with_spans(|spans| {
        let show = |Extension(trace): Extension<TraceContext>| trace.traceparent();
        let sampled = RequestSpans::new().sample(|request, _| request.path() == "/recorded");
        let mut pipe = pipe(Router::new().any("/{*rest}", show).with(sampled));
        for (path, flags, is_recorded) in [("/recorded", "01", true), ("/other", "00", false)] {
            // The caller's flag does not decide.
            pipe.receive(&get(path, PARENT));
            let response = text(&mut pipe);
            assert!(
                response.contains("4bf92f3577b34da6a3ce929d0e0e4736") && response.ends_with(&format!("-{flags}")),
                "{response}"
            );
            assert_eq!(spans.take().len(), usize::from(is_recorded), "{path}");
        }
    });
}

#[test]
fn without_a_subscriber_there_is_a_context_and_no_span() {
    let show = |request: Request| {
        let extensions = request.extensions();
        (extensions.get::<RequestSpan>().is_some(), extensions.get::<TraceContext>().is_some()).0.to_string()
            + &extensions.get::<TraceContext>().map(TraceContext::trace_id).unwrap_or_default()
    };
    let mut pipe = pipe(Router::new().get("/", show).with(RequestSpans::new()).wrap(RequestSpans::enter));
    pipe.receive(&get("/", PARENT));
    let response = text(&mut pipe);
    assert!(response.ends_with("false4bf92f3577b34da6a3ce929d0e0e4736"), "{response}");
}

/// The context of a request, as a function finds it.
fn context(middleware: TraceContexts, lines: &str) -> TraceContext {
    let found = Arc::new(Mutex::new(None));
    let kept = found.clone();
    let keep = move |Extension(trace): Extension<TraceContext>| {
        *kept.lock().unwrap() = Some(trace);
    };
    pipe(Router::new().get("/", keep).with(middleware)).receive(&get("/", lines));
    found.lock().unwrap().take().expect("the function has been called")
}

#[test]
fn a_context_goes_on_or_begins_anew() {
    let of = |lines: &str| context(TraceContexts::new(), lines);
    let went_on = of(&format!("{PARENT}tracestate: a=1\r\nTraceState: b=2\r\n"));
    assert_eq!(went_on.parent_id().as_deref(), Some("00f067aa0ba902b7"));
    assert_eq!((went_on.is_sampled(), went_on.tracestate()), (true, Some("a=1,b=2")));
    for lines in [
        format!("{PARENT}{PARENT}tracestate: a=1\r\n"),
        "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0\r\ntracestate: a=1\r\n".to_owned(),
        "tracestate: a=1\r\n".to_owned(),
    ] {
        let begun = of(&lines);
        assert_eq!((begun.parent_id(), begun.tracestate(), begun.is_sampled()), (None, None, false), "{lines}");
        assert_ne!(begun.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
    }
    let malformed_state = of(&format!("{PARENT}tracestate: a=1,,B=2\r\n"));
    assert_eq!((malformed_state.parent_id().is_some(), malformed_state.tracestate()), (true, None));
    let ignored = context(TraceContexts::new().ignoring_peers(), PARENT);
    assert_eq!(ignored.parent_id(), None);
}

#[test]
fn ids_are_fields_of_the_log_and_placeholders() {
    let log_lines = |format: AccessLog| {
        let written = Written::default();
        let log = LineLog::new("test", written.clone());
        let template: Template = Template::parse("{trace.id}/{span.id}").unwrap();
        let show = move |request: Request| template.fill(&TemplateValues::new(&request));
        let router = Router::new().get("/", show).with(TraceContexts::new()).with(format.to(&log));
        let mut pipe = pipe(router);
        pipe.receive(&get("/", PARENT));
        assert!(log.flush(Duration::from_secs(86_400)));
        let line = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        (text(&mut pipe), line.trim_end().to_owned())
    };
    let (response, line) = log_lines(AccessLog::template(&"{trace.id}/{span.id} {trace.parent}".parse().unwrap()));
    let (ids, parent) = line.split_once(' ').unwrap();
    assert!(ids.starts_with("4bf92f3577b34da6a3ce929d0e0e4736/") && ids.len() == 49, "{line}");
    assert_eq!(parent, "00f067aa0ba902b7");
    assert!(response.ends_with(&format!("\r\n\r\n{ids}")), "{response}");
    let (_, line) = log_lines(AccessLog::new(LogFormat::Json));
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&json["trace_id"], &json["parent_id"]),
        (&"4bf92f3577b34da6a3ce929d0e0e4736".into(), &"00f067aa0ba902b7".into())
    );
    assert_eq!(json["span_id"].as_str().map(str::len), Some(16));
}

/// An output that a test reads.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_response_to_a_traced_head_request_ends_the_span() {
    with_spans(|spans| {
        let produced = || Response::new().body(Body::produce(async |_| Ok(())));
        let mut pipe = pipe(Router::new().get("/", produced).with(RequestSpans::new()));
        pipe.receive(b"HEAD / HTTP/1.1\r\nHost: sea\r\n\r\n");
        assert_eq!(spans.take_one()["http.request.method"], "HEAD");
    });
}
