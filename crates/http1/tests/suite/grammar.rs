//! For every request and every answer the codec writes a valid message of RFC 9112, and its body can be read in one way
//! only. Every request is answered in every manner with every status, and the bytes are read as a client reads them.

use tidegate_http1::{Body, Chunk, Error, Fields, Interim, Misuse, Outgoing, Response, Status, StreamedResponse};

use crate::support::Talk;

const REQUESTS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers, gzip\r\nConnection: TE\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
    "CONNECT a:1 HTTP/1.0\r\n\r\n",
];

/// In a request whose body never arrives and is too long to be skipped.
const LONG: &str = "Content-Length: 1000000\r\n";

/// Requests that the codec answers by itself.
const REFUSED: &[&str] = &[
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/2.0\r\n\r\n",
    "GET / HTTP/1.1\nHost: a\n\n",
    "HEAD / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "HEAD / HTTP/1.1\nHost: a\n\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nExpect: the-impossible\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999\r\n\r\n",
    "\r\n\r\n\r\n\r\n\r\n",
];

const STATUSES: &[u16] = &[101, 200, 201, 204, 205, 206, 299, 304, 404, 500, 599];

/// A response in all the ways in which an application may send it, each with its body.
fn manners(status: Status) -> Vec<(String, Vec<Outgoing>)> {
    // 101 names the protocol that it grants.
    let mut fields = Fields::new();
    if status == Status::SWITCHING_PROTOCOLS {
        fields.push("Upgrade", "tide").expect("a good field");
    }
    let whole = || Response::new(status).fields(fields.clone());
    let streamed = || StreamedResponse::new(status).fields(fields.clone());
    let long = "x".repeat(5_000);
    let hello = || [Outgoing::Data("hel".into()), Outgoing::Data(Body::Empty), Outgoing::Data("lo".into())];
    let pieces = |head: StreamedResponse| [head.into()].into_iter().chain(hello()).chain([Outgoing::End]).collect();
    vec![
        (String::new(), vec![whole().into()]),
        (String::new(), vec![whole().close().into()]),
        ("hello".into(), vec![whole().body("hello").into()]),
        (long.clone(), vec![whole().body(long).into()]),
        (String::new(), vec![streamed().into(), Outgoing::End]),
        (String::new(), vec![streamed().length(0).into(), Outgoing::End]),
        ("hello".into(), pieces(streamed())),
        ("hello".into(), pieces(streamed().length(5))),
        ("hello".into(), vec![streamed().into(), Chunk::new(b"hello").into(), Outgoing::End]),
        ("hello".into(), vec![Outgoing::Interim(Interim::new(Status::EARLY_HINTS)), whole().body("hello").into()]),
    ]
}

/// A request, its response, and whether the connection ends with that.
#[derive(Debug)]
struct Exchange {
    request: &'static str,
    sent: String,
    ended: bool,
    /// The required body; a response that the codec writes by itself may have any.
    payload: Option<String>,
}

/// A message as a client sees it; `rest` has the bytes after its head.
#[derive(Debug)]
struct Message<'a> {
    status_line: &'a str,
    lines: Vec<&'a str>,
    rest: &'a str,
}

fn exchanges() -> Vec<Exchange> {
    let mut exchanges = Vec::new();
    for request in REFUSED {
        let mut talk = Talk::new();
        talk.receive(request.as_bytes()).expect_err("a request to refuse");
        exchanges.push(Exchange { request, sent: talk.sent(), ended: talk.is_finished(), payload: None });
    }
    for request in REQUESTS {
        for status in STATUSES.iter().filter_map(|code| Status::new(*code)) {
            exchanges.extend(manners(status).into_iter().filter_map(|manner| exchange(request, status, manner)));
        }
    }
    assert!(exchanges.len() > 1_000, "{}", exchanges.len());
    exchanges
}

/// The exchanges with HTTP/1.0 requests, or the others.
fn exchanges_of(is_old: bool) -> Vec<Exchange> {
    let chosen: Vec<_> = exchanges().into_iter().filter(|exchange| exchange.is_old() == is_old).collect();
    assert!(chosen.len() > 200, "{}", chosen.len());
    chosen
}

/// `None` for responses that the codec refuses: a whole response that may not have its body, another protocol within a
/// request or to HTTP/1.0.
fn exchange(request: &'static str, status: Status, (body, messages): (String, Vec<Outgoing>)) -> Option<Exchange> {
    let mut talk = Talk::new();
    talk.receive(request.as_bytes()).expect("the request is good");
    for message in messages {
        match talk.say(message) {
            Ok(()) => {}
            Err(Error::Caller(Misuse::BodyForbidden | Misuse::SwitchTooEarly | Misuse::PeerTooOld)) => return None,
            // A response that has no body is complete with its head.
            Err(Error::Caller(Misuse::NoResponse)) => {
                assert!(is_bodiless(request, status.code()), "{request} {status}");
            }
            Err(error) => panic!("{request} {status}: {error}"),
        }
    }
    let has_body = status.allows_body() && !is_bodiless(request, status.code());
    let payload = Some(if has_body { body } else { String::new() });
    Some(Exchange { request, sent: talk.sent(), ended: talk.is_finished(), payload })
}

/// Whether a response ends with its head whatever its fields declare (RFC 9112 §6.3).
fn is_bodiless(request: &str, code: u16) -> bool {
    request.starts_with("HEAD") || matches!(code, 100..=199 | 204 | 304) || is_tunnel(request, code)
}

fn is_tunnel(request: &str, code: u16) -> bool {
    request.starts_with("CONNECT") && (200..300).contains(&code)
}

impl Exchange {
    /// All messages that were sent: interim ones, and a final one.
    fn messages(&self) -> Vec<Message<'_>> {
        let (mut messages, mut sent) = (Vec::new(), self.sent.as_str());
        loop {
            let (head, rest) = sent.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {self:?}"));
            let mut lines = head.split("\r\n");
            let status_line = lines.next().unwrap_or_default();
            let message = Message { status_line, lines: lines.collect(), rest };
            let is_final = !matches!(message.code(), 100 | 102..=199);
            messages.push(message);
            if is_final {
                return messages;
            }
            sent = rest;
        }
    }

    fn last(&self) -> Message<'_> {
        self.messages().pop().expect("a final message")
    }

    fn is_old(&self) -> bool {
        self.request.contains(" HTTP/1.0\r\n")
    }
}

impl<'a> Message<'a> {
    fn code(&self) -> u16 {
        self.status_line.get(9..12).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{self:?}"))
    }

    fn values(&self, name: &str) -> Vec<&'a str> {
        let fields = self.lines.iter().filter_map(|line| line.split_once(':'));
        fields.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    fn says_close(&self) -> bool {
        self.values("connection").iter().any(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// The body after a final message, read by RFC 9112 §6.3; no bytes may follow it.
fn body(exchange: &Exchange) -> String {
    let message = exchange.last();
    let (lengths, codings) = (message.values("content-length"), message.values("transfer-encoding"));
    if is_bodiless(exchange.request, message.code()) {
        assert_eq!(message.rest, "", "a body where there is none: {exchange:?}");
    } else if codings == ["chunked"] {
        return unchunked(message.rest);
    } else if let [length] = lengths[..] {
        assert_eq!(length, message.rest.len().to_string(), "{exchange:?}");
    } else {
        assert!(exchange.ended && message.says_close(), "without an end: {exchange:?}");
    }
    message.rest.to_owned()
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    loop {
        let (size, behind) = rest.split_once("\r\n").expect("the size of a chunk");
        let size = usize::from_str_radix(size, 16).expect("a hexadecimal number");
        let (data, behind) = behind.split_at(size);
        body += data;
        rest = behind.strip_prefix("\r\n").expect("a line end behind a chunk");
        if size == 0 {
            assert_eq!(rest, "", "more than a body");
            return body;
        }
    }
}

#[test]
fn a_status_line_has_a_version_a_code_and_both_of_its_spaces() {
    for exchange in exchanges() {
        for message in exchange.messages() {
            let line = message.status_line;
            assert!(line.starts_with("HTTP/1.1 ") && line.as_bytes().get(12) == Some(&b' '), "{exchange:?}");
            assert!((100..600).contains(&message.code()), "{exchange:?}");
            assert!(line.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{exchange:?}");
        }
    }
}

#[test]
fn no_head_has_a_folded_line_a_bare_line_end_or_a_space_before_a_colon() {
    for exchange in exchanges() {
        for line in exchange.messages().iter().flat_map(|message| &message.lines) {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("{line:?}: {exchange:?}"));
            assert!(
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
                "{line:?}"
            );
            assert!(value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')), "{line:?}");
        }
    }
}

#[test]
fn a_response_has_a_length_or_a_coding_and_never_both() {
    for exchange in exchanges() {
        for message in exchange.messages() {
            let count = message.values("content-length").len() + message.values("transfer-encoding").len();
            assert!(count <= 1, "{exchange:?}");
        }
    }
}

#[test]
fn no_coding_goes_with_an_interim_status_or_204_or_a_tunnel() {
    let (mut interim, mut empty, mut tunnels) = (0, 0, 0);
    for exchange in exchanges() {
        for message in exchange.messages() {
            let code = message.code();
            interim += usize::from(code < 200);
            empty += usize::from(code == 204);
            tunnels += usize::from(is_tunnel(exchange.request, code));
            if matches!(code, 100..=199 | 204) || is_tunnel(exchange.request, code) {
                assert!(message.values("transfer-encoding").is_empty(), "{exchange:?}");
                assert!(message.values("content-length").is_empty(), "nor a length (RFC 9110 §8.6): {exchange:?}");
            }
        }
    }
    assert!(interim > 50 && empty > 50 && tunnels > 50, "{interim}, {empty}, {tunnels}");
}

#[test]
fn nothing_interim_goes_to_http_1_0() {
    // The application sends as many to either version.
    let interim = exchanges_of(false).iter().filter(|exchange| exchange.messages().len() > 1).count();
    assert!(interim > 50, "{interim}");
    for exchange in exchanges_of(true) {
        assert!(exchange.messages().len() == 1 && exchange.last().code() >= 200, "{exchange:?}");
    }
}

#[test]
fn every_final_response_has_one_date() {
    for exchange in exchanges() {
        assert_eq!(exchange.last().values("date").len(), 1, "{exchange:?}");
    }
}

#[test]
fn no_coding_goes_to_http_1_0() {
    for exchange in exchanges_of(true) {
        assert!(exchange.last().values("transfer-encoding").is_empty(), "{exchange:?}");
    }
}

#[test]
fn the_only_coding_is_chunked_and_it_is_applied_once() {
    let mut coded = 0;
    for exchange in exchanges() {
        let codings = exchange.last().values("transfer-encoding");
        assert!(codings.is_empty() || codings == ["chunked"], "{exchange:?}");
        coded += codings.len();
    }
    assert!(coded > 50, "{coded}");
}

#[test]
fn a_body_ends_where_its_framing_says_and_is_the_one_that_was_given() {
    for exchange in exchanges() {
        let body = body(&exchange);
        if let Some(payload) = &exchange.payload {
            assert_eq!(&body, payload, "{exchange:?}");
        }
    }
}

#[test]
fn a_connection_that_ends_with_a_response_says_so_in_it() {
    for exchange in exchanges() {
        let message = exchange.last();
        if message.code() == 101 || is_tunnel(exchange.request, message.code()) {
            continue;
        }
        // Whether a long body still arrives is known at the end of a response, and not yet in its head.
        let may_come = exchange.request.contains(LONG);
        assert_eq!(message.says_close() || (may_come && exchange.ended), exchange.ended, "{exchange:?}");
    }
}

/// The request is malformed, but it is recognisably a HEAD, and a client that sent one expects no body.
#[test]
fn a_head_request_that_is_refused_gets_no_body_either() {
    let mut refused = 0;
    for exchange in exchanges().iter().filter(|exchange| exchange.request.starts_with("HEAD")) {
        assert_eq!(exchange.last().rest, "", "{exchange:?}");
        refused += usize::from(REFUSED.contains(&exchange.request));
    }
    assert_eq!(refused, 2);
}
