//! Encoded requests, and when a request may be sent.

use tidegate_http1::client::{Limits, Outgoing};
use tidegate_http1::{
    Chunk, Client, ContentType, Error, Fields, InvalidField, InvalidRequest, Method, Misuse, Request, StreamedRequest,
};
use tidegate_testkit::CodecHarness;

use crate::client::support::{Talk, get, misuse};

fn streamed() -> StreamedRequest {
    StreamedRequest::new(Method::Put, "/").expect("it is a target")
}

#[test]
fn a_request_has_its_line_its_host_and_its_fields() {
    let mut talk = Talk::new();
    talk.say(get("/tide?now").field("Accept", "text/plain").unwrap()).unwrap();
    assert_eq!(talk.sent(), "GET /tide?now HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\n\r\n");
}

#[test]
fn a_host_of_its_own_takes_the_place_of_the_usual_one() {
    for (host, line) in [("b:8080", "Host: b:8080"), ("[::1]", "Host: [::1]"), ("", "Host: ")] {
        let mut talk = Talk::new();
        talk.say(get("/").host("c").unwrap().host(host).unwrap()).unwrap();
        assert_eq!(talk.sent(), format!("GET / HTTP/1.1\r\n{line}\r\n\r\n"));
    }
}

#[test]
fn every_request_has_a_host() {
    let mut harness = CodecHarness::new(Client::default());
    assert_eq!(harness.encode(get("/").into()).map(drop), misuse(Misuse::HostMissing));
    harness.encode(get("/").host("a").unwrap().into()).expect("it has one");
}

#[test]
fn a_body_has_its_length_and_an_empty_one_says_so_where_one_is_usual() {
    for (method, body, expected) in [
        (Method::Post, "ebb", "Content-Length: 3\r\n\r\nebb"),
        (Method::Get, "ebb", "Content-Length: 3\r\n\r\nebb"),
        (Method::Post, "", "Content-Length: 0\r\n\r\n"),
        (Method::Put, "", "Content-Length: 0\r\n\r\n"),
        (Method::Patch, "", "Content-Length: 0\r\n\r\n"),
        (Method::Delete, "", "Host: a\r\n\r\n"),
        (Method::Options, "", "Host: a\r\n\r\n"),
    ] {
        let mut talk = Talk::new();
        talk.say(Request::new(method, "/").unwrap().body(body)).unwrap();
        let sent = talk.sent();
        assert!(sent.ends_with(expected), "{sent}");
    }
    let mut talk = Talk::new();
    talk.say(Request::new(Method::Post, "/").unwrap().content_type(ContentType::TEXT).body("a".repeat(5000))).unwrap();
    let expected = format!("Content-Type: text/plain\r\nContent-Length: 5000\r\n\r\n{}", "a".repeat(5000));
    assert!(talk.sent().ends_with(&expected));
}

#[test]
fn a_streamed_body_is_chunked_unless_its_length_is_known() {
    let mut talk = Talk::new();
    talk.say(streamed()).unwrap();
    for piece in [Outgoing::Data("ebb".into()), Outgoing::Data("".into()), Chunk::new(b"flow").into(), Outgoing::End] {
        talk.say(piece).unwrap();
    }
    let expected = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nebb\r\n4\r\nflow\r\n0\r\n\r\n";
    assert_eq!(talk.sent(), expected);
    let mut talk = Talk::new();
    talk.say(streamed().length(7)).unwrap();
    for piece in [Outgoing::Data("ebb".into()), Chunk::new(b"flow").into(), Outgoing::End] {
        talk.say(piece).unwrap();
    }
    assert_eq!(talk.sent(), "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\nebbflow");
}

#[test]
fn trailers_follow_a_chunked_body_and_are_left_out_elsewhere() {
    let trailers = || Outgoing::Trailers(Fields::from_static("Digest: 7\r\n"));
    let mut talk = Talk::new();
    talk.say(streamed()).unwrap();
    talk.say(trailers()).unwrap();
    assert!(talk.sent().ends_with("\r\n\r\n0\r\nDigest: 7\r\n\r\n"));
    let mut talk = Talk::new();
    talk.say(streamed().length(0)).unwrap();
    talk.say(trailers()).unwrap();
    assert!(talk.sent().ends_with("Content-Length: 0\r\n\r\n"));
}

#[test]
fn a_trailer_that_belongs_before_the_body_is_refused() {
    let mut talk = Talk::new();
    talk.say(streamed()).unwrap();
    talk.sent();
    for line in ["Content-Type: a/b\r\n", "Authorization: x\r\n", "SET-COOKIE: a=b\r\n", "Trailer: a\r\n"] {
        let fields = Fields::from_static(line);
        assert_eq!(talk.say(Outgoing::Trailers(fields)), misuse(Misuse::TrailerForbidden), "{line}");
    }
    assert_eq!(talk.sent(), "");
    talk.say(Outgoing::End).expect("the body goes on");
}

#[test]
fn exactly_the_announced_body_has_to_follow() {
    let mut talk = Talk::new();
    talk.say(streamed().length(5)).unwrap();
    assert_eq!(talk.say(Outgoing::Data("123456".into())), misuse(Misuse::BodyTooLong));
    talk.say(Outgoing::Data("1234".into())).unwrap();
    assert_eq!(talk.say(Outgoing::End), misuse(Misuse::BodyTooShort));
    assert!(talk.is_finished(), "or the next request would be taken for the rest");
}

#[test]
fn pieces_belong_to_a_request() {
    let mut talk = Talk::new();
    for piece in [Outgoing::Data("a".into()), Chunk::new(b"a").into(), Outgoing::End] {
        assert_eq!(talk.say(piece), misuse(Misuse::NoRequestUnderWay));
    }
    talk.say(streamed()).unwrap();
    assert_eq!(talk.say(get("/")), misuse(Misuse::RequestUnderWay));
    assert_eq!(talk.say(streamed()), misuse(Misuse::RequestUnderWay));
}

#[test]
fn targets_methods_and_hosts_cannot_split_a_request() {
    for target in
        ["", "?a", "a", "/a b", "/a\r\nX: y", "/\n", "/\0", "/#a", "/|\x7f", "*", "http://", "http://a@b/", "//a\t"]
    {
        assert_eq!(Request::get(target).err(), Some(InvalidRequest::Target), "{target:?}");
    }
    for text in ["%", "%4", "%4g", "\\", "<", ">", "\"", "{", "|", "}", "^", "`", "\u{e4}"] {
        for target in [format!("/{text}"), format!("/?{text}"), format!("http://a/%41{text}")] {
            let request = Request::get(&target).expect("it is sent as it is");
            assert_eq!(request.into_parts().0.target(), target.as_bytes());
            for end in [' ', '\t', '\r', '\n', '\0', '#'] {
                let target = format!("{target}{end}");
                assert_eq!(Request::get(&target).err(), Some(InvalidRequest::Target), "{target:?}");
            }
        }
    }
    assert_eq!(Request::get(b"/\xff?\xe4").expect("no target need be text").into_parts().0.target(), b"/\xff?\xe4");
    assert_eq!(Request::get("/%00").err(), Some(InvalidRequest::Target), "NUL in a path");
    for target in ["/", "/?a=b", "http://b/", "http://b:80?x", "//a", "/%41?%00", "/[a]?b[]=c"] {
        assert!(Request::get(target).is_ok(), "{target:?}");
    }
    for target in ["http:///", "http://:80/", "https://:443", "https://?a"] {
        assert_eq!(Request::get(target).err(), Some(InvalidRequest::Target), "a host that is empty: {target:?}");
    }
    assert!(Request::new(Method::Options, "*").is_ok());
    for method in ["GET", "PURGE", "PRI", "options"] {
        assert_eq!(Request::extension(method, "*").err(), Some(InvalidRequest::Target), "{method}");
    }
    for target in ["/", "a", "a:b", "http://a:80/", ":", "a:", ":80", "a:0", "a:65536"] {
        assert_eq!(Request::new(Method::Connect, target).err(), Some(InvalidRequest::Target), "{target:?}");
    }
    assert!(Request::new(Method::Connect, "a:80").is_ok());
    for method in ["", "GE T", "GET\r\n", "G\u{e4}T", "GET:", "\0"] {
        assert_eq!(Request::extension(method, "/").err(), Some(InvalidRequest::Method), "{method:?}");
    }
    assert_eq!(Request::new(Method::Extension, "/").err(), Some(InvalidRequest::Method));
    for host in ["a b", "a\r\nX: y", "a/b", "a@b", "a:b", "[::1", "\u{e4}"] {
        assert_eq!(get("/").host(host).err(), Some(InvalidRequest::Host), "{host:?}");
    }
}

#[test]
fn fields_that_the_codec_writes_by_itself_are_refused() {
    for name in ["Host", "connection", "Content-Length", "TRANSFER-ENCODING", "Expect"] {
        assert_eq!(get("/").field(name, "a").err(), Some(InvalidField::Reserved), "{name}");
    }
    assert_eq!(get("/").field("A", "b\r\nC: d").err(), Some(InvalidField::Value));
}

#[test]
fn trace_and_connect_have_no_body() {
    for (method, target) in [(Method::Trace, "/"), (Method::Connect, "a:1")] {
        let mut talk = Talk::new();
        assert_eq!(talk.say(Request::new(method, target).unwrap().body("a")), misuse(Misuse::BodyForbidden));
        assert_eq!(talk.say(StreamedRequest::new(method, target).unwrap()), misuse(Misuse::BodyForbidden));
        talk.say(Request::new(method, target).unwrap()).expect("without it may be sent");
    }
}

#[test]
fn one_request_waits_for_its_response_unless_more_are_allowed() {
    let mut talk = Talk::asked();
    assert!(!talk.is_ready());
    assert_eq!(talk.say(get("/")), misuse(Misuse::PipelineFull));
    talk.receive("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na").unwrap();
    assert_eq!(talk.say(get("/")), misuse(Misuse::PipelineFull));
    talk.receive("b").unwrap();
    talk.say(get("/")).expect("the response is complete");

    let mut talk = Talk::limited(Limits { pipeline_max: 32, ..Limits::default() });
    for _ in 0..32 {
        talk.say(get("/")).unwrap();
    }
    assert_eq!(talk.say(get("/")), misuse(Misuse::PipelineFull));
    assert_eq!(talk.harness.codec().unanswered(), 32);
}

#[test]
fn nothing_follows_a_request_that_may_end_in_another_protocol() {
    for request in [get("/").upgrade("websocket"), Request::new(Method::Connect, "a:1").unwrap()] {
        let mut talk = Talk::limited(Limits { pipeline_max: 4, ..Limits::default() });
        talk.say(request).unwrap();
        assert_eq!(talk.say(get("/")), misuse(Misuse::PipelineFull));
        talk.receive("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").unwrap();
        talk.say(get("/")).expect("it did not");
    }
}

#[test]
fn no_request_follows_one_with_connection_close() {
    let mut talk = Talk::new();
    talk.say(get("/").close()).unwrap();
    assert_eq!(talk.sent(), "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(talk.say(get("/")), misuse(Misuse::NoMoreRequests));
    // Even if the peer does not announce the close.
    talk.receive("HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    assert!(talk.is_finished());
}

#[test]
fn an_upgrade_is_asked_for_by_name() {
    let mut talk = Talk::new();
    talk.say(get("/").upgrade("websocket").close()).unwrap();
    assert_eq!(talk.sent(), "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, upgrade\r\nUpgrade: websocket\r\n\r\n");
}

/// A field of this name would be sent without its connection option, and the codec would not expect 101.
#[test]
fn an_upgrade_is_not_asked_for_by_a_field() {
    for request in [get("/"), get("/").upgrade("websocket")] {
        let mut talk = Talk::new();
        let request = request.field("Accept", "a/b").unwrap().field("upgrade", "tide").unwrap();
        assert_eq!(talk.say(request), misuse(Misuse::UpgradeForbidden));
        assert_eq!(talk.sent(), "");
    }
}

/// RFC 9110 §7.8: `protocol-name ["/" protocol-version]`, and both are tokens.
#[test]
fn a_protocol_is_a_token_or_two_with_a_slash_between() {
    for name in ["websocket", "TLS/1.0", "a/b", "!#$%&'*+-.^_`|~"] {
        let mut talk = Talk::new();
        talk.say(get("/").upgrade(name)).unwrap();
        assert!(talk.sent().contains(&format!("\r\nUpgrade: {name}\r\n")), "{name}");
    }
    for name in ["", "/", "a/", "/a", "a//b", "a/b/c", "a/b/", "a b", "a, b", "a/b c"] {
        assert!(std::panic::catch_unwind(|| drop(get("/").upgrade(name))).is_err(), "{name:?}");
    }
}

#[test]
#[should_panic(expected = "a protocol is a token")]
fn the_name_of_a_protocol_cannot_split_a_request() {
    let _ = get("/").upgrade("a\r\nb");
}

#[test]
fn to_http_1_0_nothing_is_chunked_or_expected() {
    let mut talk = Talk::asked();
    talk.receive("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(talk.say(streamed()), misuse(Misuse::PeerTooOld));
    assert_eq!(talk.say(streamed().length(3).expect_continue()), misuse(Misuse::PeerTooOld));
    talk.say(streamed().length(3)).expect("its length is known");
}

#[test]
fn an_expectation_is_met_by_100_or_by_a_final_response() {
    let expecting = || {
        let mut talk = Talk::new();
        talk.say(streamed().length(3).expect_continue()).unwrap();
        assert!(talk.sent().contains("\r\nExpect: 100-continue\r\n"));
        talk
    };
    let mut talk = expecting();
    assert_eq!(talk.receive("HTTP/1.1 100 Continue\r\n\r\n").unwrap(), ["interim 100"]);
    talk.say(Outgoing::Data("ebb".into())).unwrap();
    talk.say(Outgoing::End).unwrap();
    assert_eq!(talk.receive("HTTP/1.1 204 No Content\r\n\r\n").unwrap(), ["204"]);
    assert!(talk.is_ready());
    // The peer did not send 100, so the body is not sent; without it the connection cannot continue.
    let mut talk = expecting();
    assert_eq!(
        talk.receive("HTTP/1.1 417 No\r\nContent-Length: 2\r\n\r\nno").unwrap(),
        ["417", "data no", "end", "end of connection"]
    );
    talk.say(Outgoing::Data("ebb".into())).expect("it is swallowed");
    // A client need not wait for 100.
    let mut talk = expecting();
    talk.say(Outgoing::Data("ebb".into())).unwrap();
    talk.say(Outgoing::End).unwrap();
    talk.receive("HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    assert!(talk.is_ready());
    // Before an empty body there is nothing to wait for.
    let mut talk = Talk::new();
    talk.say(streamed().length(0).expect_continue()).unwrap();
    assert!(!talk.sent().contains("Expect"));
}

#[test]
fn a_client_that_drains_takes_no_request_and_ends_after_the_last_response() {
    let mut talk = Talk::asked();
    talk.drain();
    assert_eq!(talk.say(get("/")), misuse(Misuse::NoMoreRequests));
    assert!(!talk.is_finished());
    assert_eq!(talk.receive("HTTP/1.1 204 No Content\r\n\r\n").unwrap(), ["204", "end of connection"]);
    assert!(talk.is_finished());
    let mut idle = Talk::new();
    idle.drain();
    assert!(idle.is_finished());
    // A request whose body is in progress is sent to its end.
    let mut talk = Talk::new();
    talk.say(streamed().length(1)).unwrap();
    talk.drain();
    talk.receive("HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    assert!(!talk.is_finished());
    talk.say(Outgoing::Data("a".into())).unwrap();
    talk.say(Outgoing::End).unwrap();
    assert!(talk.is_finished());
}

#[test]
fn a_refused_request_leaves_no_trace() {
    let mut talk = Talk::asked();
    let before = talk.harness.codec().unanswered();
    assert!(matches!(talk.say(get("/")), Err(Error::Caller(_))));
    assert_eq!((talk.sent().as_str(), talk.harness.codec().unanswered()), ("", before));
}

/// Old clients sent an empty line after a body, before the next request (RFC 9112 §2.2).
#[test]
fn nothing_goes_out_before_or_behind_a_request() {
    let mut talk = Talk::new();
    let host = "HTTP/1.1\r\nHost: a\r\n";
    for _ in 0..2 {
        talk.say(get("/1")).unwrap();
        assert_eq!(talk.sent(), format!("GET /1 {host}\r\n"));
        talk.receive("HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        talk.say(Request::new(Method::Post, "/2").unwrap().body("ebb")).unwrap();
        assert_eq!(talk.sent(), format!("POST /2 {host}Content-Length: 3\r\n\r\nebb"));
        talk.receive("HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        for piece in [streamed().into(), Outgoing::Data("ebb".into()), Outgoing::End] {
            talk.say(piece).unwrap();
        }
        assert_eq!(talk.sent(), format!("PUT / {host}Transfer-Encoding: chunked\r\n\r\n3\r\nebb\r\n0\r\n\r\n"));
        talk.receive("HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    }
}

#[test]
fn a_line_end_at_the_end_of_a_body_is_counted() {
    let mut talk = Talk::new();
    talk.say(Request::new(Method::Post, "/").unwrap().body("ebb\r\n")).unwrap();
    assert!(talk.sent().ends_with("Content-Length: 5\r\n\r\nebb\r\n"));
    let mut talk = Talk::new();
    for piece in [streamed().into(), Outgoing::Data("ebb\r\n".into()), Outgoing::End] {
        talk.say(piece).unwrap();
    }
    assert!(talk.sent().ends_with("\r\n\r\n5\r\nebb\r\n\r\n0\r\n\r\n"));
}

#[test]
fn the_host_is_the_authority_of_the_target() {
    for (method, target, host) in [
        (Method::Get, "http://b:8080/x?y", "b:8080"),
        (Method::Get, "http://[::1]?y", "[::1]"),
        (Method::Options, "https://b", "b"),
        (Method::Connect, "b:443", "b:443"),
    ] {
        let mut talk = Talk::new();
        talk.say(Request::new(method, target).unwrap()).unwrap();
        let sent = talk.sent();
        assert!(sent.contains(&format!(" {target} HTTP/1.1\r\nHost: {host}\r\n")), "{sent}");
        assert_eq!(sent.matches("Host:").count(), 1, "{sent}");
        assert_eq!(Request::new(method, target).unwrap().host("c").err(), Some(InvalidRequest::Host), "{target}");
        assert!(Request::new(method, target).unwrap().host(host).is_ok(), "{target}");
    }
}

/// The codec accepts only chunked, which needs no `TE`, and writes `Connection` by itself: so it never sends `TE`.
#[test]
fn te_never_names_chunked_and_goes_with_its_connection_option() {
    for value in ["trailers", "chunked", "gzip"] {
        assert_eq!(get("/").field("TE", value).err(), Some(InvalidField::Reserved), "{value}");
    }
}

#[test]
fn head_and_connect_cannot_request_another_protocol() {
    for (method, target) in [(Method::Head, "/"), (Method::Connect, "a:1")] {
        let mut talk = Talk::new();
        let request = Request::new(method, target).unwrap().upgrade("websocket");
        assert_eq!(talk.say(request), misuse(Misuse::UpgradeForbidden));
        assert_eq!(talk.sent(), "");
    }
}

#[test]
fn an_empty_piece_writes_nothing_and_keeps_waiting_for_100_continue() {
    for empty in [Outgoing::Data("".into()), Chunk::new(b"").into()] {
        let mut talk = Talk::new();
        talk.say(streamed().length(3).expect_continue()).unwrap();
        talk.sent();
        talk.say(empty).unwrap();
        assert_eq!(talk.sent(), "");
        assert!(talk.wait(61).is_err(), "it still waits, and no longer than it may");
    }
}
