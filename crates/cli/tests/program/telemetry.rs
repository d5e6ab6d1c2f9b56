//! `--otlp` and the key `telemetry`: spans at a collector of the test's own, which decodes them by the messages of
//! OpenTelemetry.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use rustix::process::Signal;
use tidegate::http::{Request, Router, Server, StatusCode};
use tidegate::{Bytes, ServerHandle, task};

use crate::admin::{admin_address, get};
use crate::configuration::{Files, ask};
use crate::support::origin::Origin;
use crate::support::peer::Peer;
use crate::support::program::{Directory, Program, run, until};

/// A collector on a loop of its own. Dropping it ends it.
struct Collector {
    server: ServerHandle,
    received: Arc<ReceivedExports>,
}

#[derive(Default)]
struct ReceivedExports {
    exports: Mutex<Vec<ExportTraceServiceRequest>>,
    /// The value of `Authorization` of each export.
    authorizations: Mutex<Vec<String>>,
    /// Exports that are refused with 503.
    refusals: AtomicU32,
    hangs: bool,
}

impl Collector {
    fn start() -> Self {
        Self::with(ReceivedExports::default())
    }

    fn with(received: ReceivedExports) -> Self {
        let received = Arc::new(received);
        let kept = received.clone();
        let router = move || {
            let kept = kept.clone();
            Router::new().post("/v1/traces", async move |body: Bytes, request: Request| {
                kept.clone().receive(&body, &request).await
            })
        };
        let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(router).unwrap();
        Self { server, received }
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The spans so far.
    fn spans(&self) -> Vec<Span> {
        let exports = self.received.exports.lock().unwrap().clone();
        let resources = exports.into_iter().flat_map(|export| export.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }
}

impl ReceivedExports {
    async fn receive(&self, body: &[u8], request: &Request) -> StatusCode {
        if self.hangs {
            task::sleep(Duration::from_secs(86_400)).await;
        }
        let one_less = |left: u32| left.checked_sub(1);
        if self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        assert_eq!(request.header_str("content-type"), Some("application/x-protobuf"));
        let authorization = request.header_str("authorization").unwrap_or_default().to_owned();
        self.authorizations.lock().unwrap().push(authorization);
        self.exports.lock().unwrap().push(ExportTraceServiceRequest::decode(body).expect("a message of OTLP"));
        StatusCode::OK
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.drain(Duration::ZERO);
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

/// The span of a kind with this path, or whose attempt was for it.
fn span(spans: &[Span], kind: i32, path: &str) -> (Span, BTreeMap<String, String>) {
    let mut found = spans.iter().filter(|span| span.kind == kind).map(|span| (span.clone(), texts(&span.attributes)));
    let is_of = |attributes: &BTreeMap<String, String>| {
        ["url.path", "url.full"].iter().any(|name| attributes.get(*name).is_some_and(|text| text.ends_with(path)))
    };
    found.find(|(_, attributes)| is_of(attributes)).unwrap_or_else(|| panic!("no span of {path}: {spans:#?}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_error(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code == ERROR)
}

/// Ends the program by a drain, which exports the spans.
fn drain(mut program: Program) -> Vec<String> {
    program.signal(Signal::TERM);
    assert!(program.until_ended().success());
    program.log()
}

const SERVER: i32 = 2;
const CLIENT: i32 = 3;
const ERROR: i32 = 2;
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn context(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-{PARENT}-{flags}\r\ntracestate: sea=north\r\n")
}

#[test]
fn a_trace_goes_through_the_gateway_and_its_spans_to_the_collector() {
    let (collector, origin) = (Collector::start(), Origin::echo());
    let upstream = format!("http://{}", origin.address());
    let log_format = "log {trace.id} {span.id} {trace.parent}";
    let program = Program::proxy(&["--upstream", &upstream, "--access-log", log_format, "--otlp", &collector.url()]);
    let fields = format!("User-Agent: gauge\r\n{}", context("01"));
    let sent = ask(&program, "sea.example", "/tides/brest?key=secret", &fields).text().to_owned();
    let logged = program.until_logged(&format!("log {TRACE}"), 1);
    let log = drain(program);
    let spans = collector.spans();
    assert_eq!(spans.len(), 2, "{spans:#?}");
    let (server, of_server) = span(&spans, SERVER, "/tides/brest");
    let (client, of_client) = span(&spans, CLIENT, "/tides/brest");
    for span in [&server, &client] {
        let trace = (hex(&span.trace_id), span.name.as_str(), span.trace_state.as_str());
        assert_eq!(trace, (TRACE.into(), "GET", "sea=north"));
        assert!(span.start_time_unix_nano > 0 && span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(!is_error(span) && !format!("{span:?}").contains("secret"), "{span:?}");
    }
    assert_eq!((hex(&server.parent_span_id).as_str(), &client.parent_span_id), (PARENT, &server.span_id));
    let parent = format!("traceparent: 00-{TRACE}-{}-0", hex(&client.span_id));
    assert!(sent.contains(&parent) && sent.contains("tracestate: sea=north"), "{parent} in {sent}");
    for (attributes, name, value) in [
        (&of_server, "http.request.method", "GET"),
        (&of_server, "http.response.status_code", "200"),
        (&of_server, "url.path", "/tides/brest"),
        (&of_server, "url.scheme", "http"),
        (&of_server, "server.address", "sea.example"),
        (&of_server, "client.address", "127.0.0.1"),
        (&of_server, "user_agent.original", "gauge"),
        (&of_client, "http.request.method", "GET"),
        (&of_client, "http.response.status_code", "200"),
        (&of_client, "url.full", &format!("{upstream}/tides/brest")),
        (&of_client, "server.address", "127.0.0.1"),
        (&of_client, "server.port", &origin.address().port().to_string()),
        (&of_client, "network.peer.address", "127.0.0.1"),
    ] {
        assert_eq!(attributes.get(name).map(String::as_str), Some(value), "{name} of {attributes:?}");
    }
    let line = format!("log {TRACE} {} {PARENT}", hex(&server.span_id));
    assert!(logged[0].contains(&line), "{line} in {logged:?}");
    assert!(!log.iter().any(|line| line.contains("otel.") || line.contains("attempt{")), "{log:?}");
}

#[test]
fn an_export_names_the_service_and_has_the_fields_of_the_file() {
    let (collector, files) = (Collector::start(), Directory::new());
    std::fs::create_dir_all(files.path("")).unwrap();
    std::fs::write(files.path("headers"), "Authorization: Bearer 7\n").unwrap();
    let (url, headers) = (collector.url(), files.path("headers"));
    let root = files.path("");
    let flags = ["--root", &root, "--otlp", &url, "--otlp-service", "gate", "--otlp-headers", &headers];
    let program = Program::serve(&flags);
    assert_eq!(Peer::connect(&program).get("/nowhere").status, 404);
    drain(program);
    let export = collector.received.exports.lock().unwrap()[0].clone();
    let resource = texts(&export.resource_spans[0].resource.as_ref().expect("it has one").attributes);
    assert_eq!((resource["service.name"].as_str(), resource["telemetry.sdk.name"].as_str()), ("gate", "tidegate"));
    assert_eq!(*collector.received.authorizations.lock().unwrap(), ["Bearer 7"]);
}

#[test]
fn failures_of_upstreams_are_errors_of_their_spans() {
    let collector = Collector::start();
    let ill = Origin::start(|_| "503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_owned());
    let files = Files::new();
    let gone = Origin::echo().address();
    let text = format!(
        "[telemetry]\notlp = \"{}\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"ill\"\nservers = [\"http://{}\"]\n[[upstream]]\nname = \"gone\"\nservers = [\"http://{gone}\"]\n\
         [[route]]\npath = \"/ill/*\"\nupstream = \"ill\"\nstrip-path = true\n[[route]]\npath = \"/gone\"\nupstream = \"gone\"\n",
        collector.url(),
        ill.address(),
    );
    files.write("gateway.toml", &text);
    let program = files.start("gateway.toml", &[]);
    assert_eq!(ask(&program, "a", "/ill/1", "").status, 503);
    assert_eq!(ask(&program, "a", "/gone", "").status, 502);
    drain(program);
    let spans = collector.spans();
    for (kind, path, error, status) in [
        (SERVER, "/ill/1", "503", Some("503")),
        (CLIENT, "/1", "503", Some("503")),
        (SERVER, "/gone", "502", Some("502")),
        (CLIENT, "/gone", "connect", None),
    ] {
        let (span, attributes) = span(&spans, kind, path);
        assert!(is_error(&span), "{path}: {span:?}");
        assert_eq!(attributes["error.type"], error, "{path}");
        assert_eq!(attributes.get("http.response.status_code").map(String::as_str), status, "{path}");
    }
    let (named, attributes) = span(&spans, SERVER, "/ill/1");
    assert_eq!((named.name, attributes["http.route"].as_str()), ("GET /ill/{*rest}".into(), "/ill/{*rest}"));
}

#[test]
fn each_attempt_has_a_span_of_its_own() {
    let (collector, origin) = (Collector::start(), Origin::echo());
    let gone = Origin::echo().address();
    let upstreams = [format!("http://{gone}"), format!("http://{}", origin.address())];
    let program = Program::proxy(&[
        "--loops",
        "1",
        "--upstream",
        &upstreams[0],
        "--upstream",
        &upstreams[1],
        "--otlp",
        &collector.url(),
    ]);
    // One of them begins with the server that is gone.
    for _ in 0..2 {
        assert_eq!(ask(&program, "a", "/", "").status, 200);
    }
    drain(program);
    let spans = collector.spans();
    let attempts: Vec<_> = spans.iter().filter(|span| span.kind == CLIENT).collect();
    let again: Vec<_> = attempts
        .iter()
        .filter(|span| texts(&span.attributes).get("http.request.resend_count").is_some_and(|count| count == "1"))
        .collect();
    assert_eq!((spans.len() - attempts.len(), attempts.len(), again.len()), (2, 3, 1), "{spans:#?}");
    let failed: Vec<_> = attempts.iter().filter(|span| is_error(span)).collect();
    assert_eq!((failed.len(), &failed[0].parent_span_id), (1, &again[0].parent_span_id));
    assert_eq!(texts(&failed[0].attributes)["error.type"], "connect");
}

#[test]
fn a_client_decides_what_is_recorded_within_a_limit_only() {
    let (collector, files) = (Collector::start(), Files::new());
    let start = |keys: &str| {
        let text = format!(
            "[telemetry]\notlp = \"{}\"\n{keys}[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = {{ body = \"ebb\" }}\n",
            collector.url()
        );
        files.write("gateway.toml", &text);
        files.start("gateway.toml", &[])
    };
    for (keys, flags, is_recorded) in [
        ("percent = 0\n", None, false),
        ("percent = 0\n", Some("01"), true),
        ("percent = 100\n", Some("00"), false),
        ("percent = 0\nrequested-per-second = 0\n", Some("01"), false),
        ("percent = 0\nrequested-per-second = 0\ntrusted = \"127.0.0.0/8\"\n", Some("01"), true),
    ] {
        let program = start(keys);
        let before = collector.spans().len();
        assert_eq!(ask(&program, "a", "/", &flags.map(context).unwrap_or_default()).status, 200);
        drain(program);
        assert_eq!(collector.spans().len() - before, usize::from(is_recorded), "{keys} {flags:?}");
    }
}

#[test]
fn an_export_that_is_refused_for_now_comes_again() {
    let received = ReceivedExports { refusals: AtomicU32::new(2), ..ReceivedExports::default() };
    let (collector, files) = (Collector::with(received), Directory::new());
    std::fs::create_dir_all(files.path("")).unwrap();
    let program = Program::serve(&["--root", &files.path(""), "--otlp", &collector.url()]);
    assert_eq!(Peer::connect(&program).get("/nowhere").status, 404);
    until("the span", || !collector.spans().is_empty());
    drain(program);
    assert_eq!((collector.spans().len(), collector.received.refusals.load(Ordering::SeqCst)), (1, 0));
}

#[test]
fn a_collector_that_hangs_costs_spans_and_no_request() {
    let collector = Collector::with(ReceivedExports { hangs: true, ..ReceivedExports::default() });
    let files = Directory::new();
    std::fs::create_dir_all(files.path("")).unwrap();
    let program = Program::serve(&["--root", &files.path(""), "--admin", "127.0.0.1:0", "--otlp", &collector.url()]);
    let admin = admin_address(&program);
    let mut peer = Peer::connect(&program);
    for _ in 0..QUEUED_AND_SENT + 10 {
        assert_eq!(peer.get("/nowhere").status, 404);
    }
    let lost = || {
        let text = get(admin, "/metrics").text().to_owned();
        let line = text.lines().find(|line| line.starts_with("tidegate_spans_lost") && line.contains("\"queue\""));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    until("spans to be dropped", || lost() >= 10);
    assert!(collector.spans().is_empty());
}

#[test]
fn a_drain_exports_the_spans_of_all_requests() {
    let (collector, files) = (Collector::start(), Directory::new());
    std::fs::create_dir_all(files.path("")).unwrap();
    let program = Program::serve(&["--root", &files.path(""), "--otlp", &collector.url()]);
    let mut peer = Peer::connect(&program);
    // More than one batch, and no more than the queue has room for.
    for _ in 0..1_300 {
        assert_eq!(peer.get("/nowhere").status, 404);
    }
    drop(peer);
    drain(program);
    assert_eq!(collector.spans().len(), 1_300);
}

#[test]
fn mistakes_of_telemetry_are_named() {
    let files = Directory::new();
    std::fs::create_dir_all(files.path("")).unwrap();
    std::fs::write(files.path("headers"), "no field\n").unwrap();
    for (flags, expected) in [
        (&["--otlp", "collector:4318"][..], "http://127.0.0.1:4318"),
        (&["--otlp", "http://127.0.0.1:1", "--otlp-percent", "101"], "0 to 100"),
        (&["--otlp-percent", "1"], "--otlp"),
        (&["--otlp", "http://127.0.0.1:1", "--otlp-headers", &files.path("headers")], "line 1"),
        (&["--otlp", "https://127.0.0.1:1", "--otlp-ca", &files.path("none")], "none"),
    ] {
        let (code, _, errors) =
            run(&[&["serve", "--listen", "127.0.0.1:0", "--root", &files.path("")], flags].concat());
        assert!(code == Some(2) && errors.iter().any(|line| line.contains(expected)), "{flags:?}: {errors:?}");
    }
    let (code, _, errors) = run(&["serve", "--listen", "127.0.0.1:0", "--otlp", "http://127.0.0.1:1"]);
    assert!(code == Some(2) && errors.iter().any(|line| line.contains("--root")), "{errors:?}");
}

/// Spans of the queue, and those of the export in progress.
const QUEUED_AND_SENT: usize = 2_048 + 512;
