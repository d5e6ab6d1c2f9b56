//! The test cases of llhttp, the parser of Node.js, as a second opinion on acceptance and meaning.
//!
//! They lie beside the repository, in `../shared/vectors/llhttp`; without them the tests print a line and pass. The
//! tests compare the verdict and, of each message, its start line, fields and body. llhttp parses messages one by one
//! and does not require `Host`, so a `Host` is added to requests that have none. It knows many protocols and leaves
//! decisions of this crate to its user: [`DEVIATIONS`] lists where the two differ, and why, and [`EXCLUDED`] the cases
//! that cannot be compared.

mod vectors;

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_codec::Step;
use tidegate_http1::{Client, Error, Incoming, Method, Request, RequestHead, Response, ResponseHead, Server, Status};
use tidegate_http1::{Version, Violation, client};
use tidegate_testkit::CodecHarness;

use self::vectors::{Account, Case, GUIDED, LENIENT, Message, OTHER_PROTOCOL, PAUSING, Verdict};

/// Where our verdict differs on purpose: file, case, our verdict, and the reason.
const DEVIATIONS: &[(&str, &str, Verdict, &str)] = &[
    ("request/invalid", "HTTP protocol and ANNOUNCE method", Verdict::Accepted, METHODS),
    ("request/invalid", "Invalid method", Verdict::Accepted, METHODS),
    ("request/method", "M-SEARCH request", Verdict::Refused, "`*` is a target of OPTIONS alone (RFC 9112 §3.2.4)"),
    ("request/sample", "No HTTP version", Verdict::Refused, "HTTP/0.9 has no version (RFC 9112 §3, §C.1)"),
    ("request/transfer-encoding", "POST with `chunked` as last transfer-encoding", Verdict::Refused, FRAGMENTS),
    (
        "request/transfer-encoding",
        "POST with `chunked` as last transfer-encoding (multiple headers)",
        Verdict::Refused,
        FRAGMENTS,
    ),
    ("request/method", "CONNECT with body", Verdict::Refused, "a CONNECT has no content (RFC 9110 §9.3.6)"),
    ("request/transfer-encoding", "Trailing headers", Verdict::Refused, "Content-Type is no trailer (RFC 9110 §6.5.1)"),
    ("request/uri", "Fragment in URI", Verdict::Refused, FRAGMENTS),
    ("request/uri", "`host:port` and basic auth", Verdict::Refused, USERS),
    ("response/connection", "HTTP/1.0 with keep-alive and 204 status", Verdict::Refused, UNASKED),
    ("response/connection", "HTTP/1.1 with 204 status", Verdict::Refused, UNASKED),
    ("response/connection", "HTTP 304 with Content-Length", Verdict::Refused, EMPTY_LINES),
    ("response/connection", "HTTP 100 first, then 400", Verdict::Refused, EMPTY_LINES),
    (
        "response/finish",
        "It should be safe to finish with cb after empty response",
        Verdict::Accepted,
        "a body without length is complete when the connection ends (RFC 9112 §8)",
    ),
    ("response/pipelining", "Should parse multiple events", Verdict::Refused, EMPTY_LINES),
    ("response/sample", "HTTP version 0.9", Verdict::Refused, "HTTP/0.9 has no status line (RFC 9112 §4)"),
    ("response/sample", "Response starting with CRLF", Verdict::Refused, EMPTY_LINES),
    ("response/transfer-encoding", "`chunked` before other transfer-encoding", Verdict::Refused, CODINGS),
    (
        "response/transfer-encoding",
        "multiple transfer-encoding where chunked is not the last one",
        Verdict::Refused,
        CODINGS,
    ),
    (
        "response/transfer-encoding",
        "`chunkedchunked` transfer-encoding does not enable chunked enconding",
        Verdict::Refused,
        CODINGS,
    ),
];

/// The same for targets; all of these are refused here.
const TARGET_DEVIATIONS: &[(&str, &str)] = &[
    ("Absolute URL", FRAGMENTS),
    ("Relative URL", FRAGMENTS),
    ("URL fragment", FRAGMENTS),
    ("Complex URL fragment", FRAGMENTS),
    ("Complex URL from node.js url parser doc", FRAGMENTS),
    ("Complex URL with basic auth from node.js url parser doc", FRAGMENTS),
    ("Proxy basic auth with url encoded space", USERS),
    ("Proxy basic auth with unreserved chars", USERS),
    ("IPv6 address with Zone ID", ZONES),
    ("IPv6 address with Zone ID, but `%` is not percent-encoded", ZONES),
];

const METHODS: &str = "any token is a method (RFC 9112 §3.1): an application answers those that it does not know";
const FRAGMENTS: &str = "a target has no fragment (RFC 9112 §3.2)";
const USERS: &str = "user information in an http target is an error (RFC 9112 §3.2.2, RFC 9110 §4.2.4)";
const UNASKED: &str = "a client reads nothing that it has not asked for (RFC 9112 §9.2)";
const EMPTY_LINES: &str =
    "an empty line comes before a request, not a response (RFC 9112 §2.2): it may be dropped there (§9.2), and is not";
const CODINGS: &str =
    "a body that ends with the connection could be read (RFC 9112 §6.3), but was not requested (§7.4)";
const ZONES: &str = "an address in a target has no zone (RFC 9112 §3.2.2, RFC 3986 §3.2.2)";

/// The cases that cannot be compared: file, case, and the reason.
const EXCLUDED: &[(&str, &str, &str)] = &[
    ("request/connection", "Resetting flags when keep-alive is off (1.0, lenient)", LENIENT),
    ("request/connection", "CRLF between requests, explicit `close` (lenient)", LENIENT),
    ("request/connection", "Multiple tokens with folding", LENIENT),
    ("request/connection", "Multiple tokens with folding, LWS, and CRLF", LENIENT),
    ("request/connection", "Invalid whitespace token with `Connection` header field (lenient)", LENIENT),
    ("request/content-length", "Invalid whitespace token with `Content-Length` header field (lenient)", LENIENT),
    (
        "request/content-length",
        "No error on simultaneous `Content-Length` and `Transfer-Encoding: identity` (lenient)",
        LENIENT,
    ),
    ("request/content-length", "Content-Length reset when no body is received", GUIDED),
    ("request/content-length", "Missing CRLF-CRLF before body (lenient)", LENIENT),
    ("request/invalid", "Headers separated by dummy characters (lenient)", LENIENT),
    ("request/invalid", "Only LFs present (lenient)", LENIENT),
    ("request/invalid", "Spaces before headers (lenient)", LENIENT),
    ("request/lenient-header-value-relaxed", "Control char in header value (relaxed)", LENIENT),
    ("request/lenient-header-value-relaxed", "LF in header value should be rejected even with relaxed flag", LENIENT),
    (
        "request/lenient-header-value-relaxed",
        "CR without LF in header value should be rejected even with relaxed flag",
        LENIENT,
    ),
    ("request/lenient-header-value-relaxed", "Space after start line must still fail", LENIENT),
    ("request/lenient-headers", "Header value (lenient)", LENIENT),
    ("request/lenient-headers", "Second request header value (lenient)", LENIENT),
    ("request/lenient-headers", "Empty headers separated by CR (lenient)", LENIENT),
    ("request/lenient-version", "Invalid HTTP version (lenient)", LENIENT),
    ("request/method", "SOURCE request with ICE", OTHER_PROTOCOL),
    ("request/method", "OPTIONS request with RTSP", OTHER_PROTOCOL),
    ("request/method", "ANNOUNCE request with RTSP", OTHER_PROTOCOL),
    ("request/pausing", "on_message_begin", PAUSING),
    ("request/pausing", "on_message_complete", PAUSING),
    ("request/pausing", "on_protocol_complete", PAUSING),
    ("request/pausing", "on_method_complete", PAUSING),
    ("request/pausing", "on_url_complete", PAUSING),
    ("request/pausing", "on_version_complete", PAUSING),
    ("request/pausing", "on_header_field_complete", PAUSING),
    ("request/pausing", "on_header_value_complete", PAUSING),
    ("request/pausing", "on_headers_complete", PAUSING),
    ("request/pausing", "on_chunk_header", PAUSING),
    ("request/pausing", "on_chunk_extension_name", PAUSING),
    ("request/pausing", "on_chunk_extension_value", PAUSING),
    ("request/pausing", "on_chunk_complete", PAUSING),
    ("request/sample", "Line folding in header value with CRLF", LENIENT),
    ("request/sample", "No LF after CR (lenient)", LENIENT),
    ("request/sample", "X-SSL-Nonsense", LENIENT),
    ("request/transfer-encoding", "POST with `Transfer-Encoding` and `Content-Length` (lenient)", LENIENT),
    ("request/transfer-encoding", "POST with `chunked` before other transfer-coding (lenient)", LENIENT),
    ("request/transfer-encoding", "POST with `chunked` and duplicate transfer-encoding (lenient)", LENIENT),
    ("request/transfer-encoding", "Invalid OBS fold after chunked value", LENIENT),
    ("request/transfer-encoding", "Chunk header not terminated by CRLF (lenient)", LENIENT),
    ("request/transfer-encoding", "Chunk data not terminated by CRLF (lenient)", LENIENT),
    ("request/transfer-encoding", "Space after chunk header (lenient)", LENIENT),
    ("response/connection", "HTTP/1.1 with keep-alive disabled, content-length (lenient)", LENIENT),
    ("response/connection", "HTTP/1.1 with keep-alive disabled and 204 status (lenient)", LENIENT),
    ("response/content-length", "Content-Length reset when no body is received", GUIDED),
    ("response/invalid", "Bare CR after response line (lenient)", LENIENT),
    ("response/invalid", "Only LFs present and no body (lenient)", LENIENT),
    ("response/invalid", "Only LFs present (lenient)", LENIENT),
    ("response/lenient-version", "Invalid HTTP version (lenient)", LENIENT),
    ("response/pausing", "on_message_begin", PAUSING),
    ("response/pausing", "on_message_complete", PAUSING),
    ("response/pausing", "on_version_complete", PAUSING),
    ("response/pausing", "on_status_complete", PAUSING),
    ("response/pausing", "on_header_field_complete", PAUSING),
    ("response/pausing", "on_header_value_complete", PAUSING),
    ("response/pausing", "on_headers_complete", PAUSING),
    ("response/pausing", "on_chunk_header", PAUSING),
    ("response/pausing", "on_chunk_extension_name", PAUSING),
    ("response/pausing", "on_chunk_extension_value", PAUSING),
    ("response/pausing", "on_chunk_complete", PAUSING),
    ("response/sample", "RTSP response", OTHER_PROTOCOL),
    ("response/sample", "ICE response", OTHER_PROTOCOL),
    ("response/sample", "No carriage ret (lenient)", LENIENT),
    ("response/transfer-encoding", "Invalid OBS fold after chunked value", LENIENT),
];

/// A codec under test: returns its account of the bytes of a case, or of more.
type Ours = fn(&Case, &[u8]) -> (Account, Option<Error>);

/// The server, which answers each request, and grants every other protocol.
fn served(case: &Case, wire: &[u8]) -> (Account, Option<Error>) {
    let mut harness = CodecHarness::new(Server::default());
    harness.receive(wire);
    let mut account = Account { messages: Vec::new(), verdict: Verdict::Accepted };
    let mut granted = None;
    loop {
        let step = if case.finishes() { harness.decode_eof() } else { harness.step() };
        let is_complete = match step {
            Ok(Step::Message(Incoming::Head(head))) => {
                granted = head.header("upgrade").filter(|_| upgrades(&head)).map(<[u8]>::to_vec);
                let is_complete = !head.has_body();
                account.messages.push(message(&head));
                is_complete
            }
            Ok(Step::Message(Incoming::Data(data))) => {
                account.messages.last_mut().expect("a head").body.extend_from_slice(&data);
                false
            }
            Ok(Step::Message(other)) => matches!(other, Incoming::End),
            Ok(Step::NeedMore) if harness.codec().is_switched() => {
                account.verdict = Verdict::Switched(harness.input().len());
                return (account, None);
            }
            Ok(Step::NeedMore) => return (account, None),
            Ok(Step::End) => {
                account.verdict = if harness.input().is_empty() { Verdict::Accepted } else { Verdict::Closed };
                return (account, None);
            }
            Err(error) => {
                let is_cut_off = error == Error::Peer(Violation::Truncated);
                account.verdict = if is_cut_off { Verdict::CutOff } else { Verdict::Refused };
                return (account, Some(error));
            }
        };
        if is_complete {
            account.messages.last_mut().expect("a head").is_complete = true;
            let response = match granted.take() {
                None => Response::new(Status::OK),
                Some(name) => Response::new(Status::SWITCHING_PROTOCOLS).field("Upgrade", name).expect("it was read"),
            };
            harness.encode(response.into()).expect("a response is owed");
        }
    }
}

fn message(head: &RequestHead) -> Message {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let version = if head.version() == Version::Http11 { "1.1" } else { "1.0" };
    Message {
        start: [head.method_text().into(), head.target().into(), version.into()],
        headers: head.headers().map(|(name, value)| (text(name), text(value))).collect(),
        ..Message::default()
    }
}

/// A client that has sent a request for each final response of llhttp, with an upgrade if one is granted.
fn asked(case: &Case, wire: &[u8]) -> (Account, Option<Error>) {
    let finals = case.account.messages.iter().filter(|message| !is_interim(message)).count();
    let limits = client::Limits { pipeline_max: 32, ..client::Limits::default() };
    let config = client::Config::new(limits).host("a").expect("it is a host");
    let mut harness = CodecHarness::new(Client::new(Arc::new(config)));
    let switches = case.account.messages.iter().any(|message| message.start[1] == "101");
    for _ in 0..finals.max(1) {
        let request = Request::get("/").expect("it is a target");
        let request = if switches { request.upgrade("tide") } else { request };
        harness.encode(request.into()).expect("it is ready");
    }
    harness.receive(wire);
    let mut account = Account { messages: Vec::new(), verdict: Verdict::Accepted };
    loop {
        let step = if case.finishes() { harness.decode_eof() } else { harness.step() };
        match step {
            Ok(Step::Message(client::Incoming::Interim(head))) => {
                account.messages.push(Message { is_complete: true, ..answer(&head) });
            }
            Ok(Step::Message(client::Incoming::Head(head))) => {
                account.messages.push(Message { is_complete: !head.has_body(), ..answer(&head) });
            }
            Ok(Step::Message(client::Incoming::Data(data))) => {
                account.messages.last_mut().expect("a head").body.extend_from_slice(&data);
            }
            Ok(Step::Message(other)) => {
                let is_end = matches!(other, client::Incoming::End);
                account.messages.last_mut().expect("a head").is_complete |= is_end;
            }
            Ok(Step::NeedMore) if harness.codec().is_switched() => {
                account.verdict = Verdict::Switched(harness.input().len());
                return (account, None);
            }
            Ok(Step::NeedMore) => return (account, None),
            Ok(Step::End) => {
                account.verdict = if harness.input().is_empty() { Verdict::Accepted } else { Verdict::Closed };
                return (account, None);
            }
            Err(error) => {
                let is_cut_off = error == Error::Peer(Violation::Truncated);
                account.verdict = if is_cut_off { Verdict::CutOff } else { Verdict::Refused };
                return (account, Some(error));
            }
        }
    }
}

fn is_interim(message: &Message) -> bool {
    message.start[1].starts_with('1') && message.start[1] != "101"
}

fn answer(head: &ResponseHead) -> Message {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let version = if head.version() == Version::Http11 { "1.1" } else { "1.0" };
    Message {
        start: [version.into(), head.status().code().to_string(), text(head.reason())],
        headers: head.headers().map(|(name, value)| (text(name), text(value))).collect(),
        ..Message::default()
    }
}

fn upgrades(head: &RequestHead) -> bool {
    let mut options = head.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
    let is_asked = options.any(|(_, value)| String::from_utf8_lossy(value).to_ascii_lowercase().contains("upgrade"));
    is_asked && head.header("upgrade").is_some() && head.method() != Method::Connect
}

/// The account of `ours` of a case, and that of llhttp in the same form. llhttp refuses at the first wrong byte, and
/// some cases end there; this codec waits for the end of a line or a head.
fn accounts(case: &Case, ours: Ours) -> (Account, Account, Option<Error>) {
    let (wire, mut theirs) = case.with_hosts();
    let (mut account, mut error) = ours(case, &wire);
    if theirs.verdict == Verdict::Refused {
        if error.is_none() {
            let longer = ours(case, &[&wire, &b"\r\n\r\n"[..]].concat());
            if longer.1.is_some() {
                (account, error) = longer;
            }
        }
        // Before a wrong byte, one may have yielded more than the other.
        theirs.messages.retain(|message| message.is_complete);
        account.messages.retain(|message| message.is_complete);
    }
    (account, theirs, error)
}

/// Compares all cases of a folder, except those that cannot be compared.
fn compare(folder: &str, ours: Ours) {
    let Some(cases) = vectors::cases(folder) else { return };
    let (mut compared, mut different, mut used) = (0, Vec::new(), BTreeSet::new());
    for case in cases.iter().filter(|case| case.exclusion().is_none()) {
        compared += 1;
        let (account, theirs, error) = accounts(case, ours);
        let about_host =
            [Violation::HostMissing, Violation::HostRepeated].map(|violation| Some(Error::Peer(violation)));
        assert!(!about_host.contains(&error), "{}: the Host that was put in: {error:?}", case.name());
        if account == theirs {
            continue;
        }
        let known =
            |(file, title, verdict, _): &&_| (*file, *title, *verdict) == (&*case.file, &*case.title, account.verdict);
        match DEVIATIONS.iter().find(known) {
            Some(deviation) => drop(used.insert(deviation)),
            None => different.push(format!("{}\n  llhttp: {theirs:?}\n  ours: {account:?} {error:?}", case.name())),
        }
    }
    assert!(different.is_empty(), "{} of {compared} cases differ:\n{}", different.len(), different.join("\n"));
    let listed = DEVIATIONS.iter().filter(|(file, ..)| file.starts_with(folder));
    let unused: Vec<_> = listed.filter(|deviation| !used.contains(deviation)).collect();
    assert!(unused.is_empty(), "no longer deviations: {unused:?}");
    println!("{folder}: {compared} of {} cases compared, {} of them deviations", cases.len(), used.len());
}

#[test]
fn requests_are_read_as_by_llhttp() {
    compare("request", served);
}

#[test]
fn responses_are_read_as_by_llhttp() {
    compare("response", asked);
}

#[test]
fn exactly_the_skipped_vectors_are_listed_with_a_reason() {
    let mut excluded = BTreeSet::new();
    for folder in ["request", "response"] {
        let Some(cases) = vectors::cases(folder) else { return };
        for case in &cases {
            assert_eq!(case.is_request(), folder == "request", "{}", case.name());
            if let Some(reason) = case.exclusion() {
                excluded.insert((case.file.clone(), case.title.clone(), reason));
            }
        }
        println!("{folder}: {} cases read", cases.len());
    }
    let listed: BTreeSet<_> =
        EXCLUDED.iter().map(|(file, title, reason)| ((*file).to_owned(), (*title).to_owned(), *reason)).collect();
    let rows = |set: &BTreeSet<(String, String, &str)>, other| {
        set.difference(other)
            .map(|(file, title, reason)| format!("    ({file:?}, {title:?}, {reason:?}),\n"))
            .collect::<String>()
    };
    assert_eq!(listed.len(), EXCLUDED.len(), "a case is listed twice");
    assert!(rows(&excluded, &listed).is_empty(), "not listed:\n{}", rows(&excluded, &listed));
    assert!(
        rows(&listed, &excluded).is_empty(),
        "listed, and no longer there or no longer needed:\n{}",
        rows(&listed, &excluded)
    );
}

#[test]
fn targets_are_taken_apart_as_by_llhttp() {
    let Some(targets) = vectors::targets() else { return };
    let (mut deviating, count) = (BTreeSet::new(), targets.len());
    for (title, target, log) in targets {
        let part = |kind: &str| {
            let (_, rest) = log.split_once(&format!("span[url.{kind}]=\""))?;
            rest.split_once("\"\n").map_or(rest.strip_suffix('"'), |(part, _)| Some(part))
        };
        let mut harness = CodecHarness::new(Server::default());
        harness.receive(&[b"GET ", target.as_slice(), b" HTTP/1.1\r\nHost: put.in\r\n\r\n"].concat());
        match harness.step() {
            Ok(Step::Message(Incoming::Head(head))) => {
                assert!(!log.contains("error code="), "{title}: {head:?}");
                let found = (head.path(), head.query(), head.host());
                let host = part("host").unwrap_or("put.in");
                assert_eq!(found, (part("path").unwrap_or("/"), part("query"), host), "{title}");
            }
            Err(Error::Peer(Violation::Target | Violation::RequestLine)) if log.contains("error code=") => {}
            Err(Error::Peer(Violation::Target)) if TARGET_DEVIATIONS.iter().any(|(known, _)| *known == title) => {
                deviating.insert(title);
            }
            other => panic!("{title}: {other:?}"),
        }
    }
    let listed: BTreeSet<_> = TARGET_DEVIATIONS.iter().map(|(title, _)| (*title).to_owned()).collect();
    assert_eq!(deviating, listed, "the deviating cases, and the listed ones");
    println!("{count} targets compared, {} of them deviations", deviating.len());
}
