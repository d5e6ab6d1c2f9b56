//! Encoded responses: framing, the fields that the codec adds, and the messages that it refuses.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::{FileRegion, Step};
use tidegate_http1::{
    Body, Chunk, Config, ContentType, Error, Fields, Interim, InvalidField, Limits, Misuse, Outgoing, Response, Server,
    Status, StreamedResponse,
};
use tidegate_testkit::CodecHarness;

use crate::support::{GET, Talk};

const DATE: &str = "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";

/// The bytes that are sent for `request`, answered with these messages.
fn sent(request: &str, messages: impl IntoIterator<Item = Outgoing>) -> String {
    let mut talk = Talk::new();
    talk.receive(request.as_bytes()).expect("the request is good");
    for message in messages {
        talk.say(message).expect("the message is in order");
    }
    talk.sent()
}

fn misuse(misuse: Misuse) -> Result<(), Error> {
    Err(Error::Caller(misuse))
}

fn request(method: &str, version: &str) -> String {
    format!("{method} / {version}\r\nHost: a\r\n\r\n")
}

#[test]
fn a_whole_response_has_date_server_type_and_length() {
    let ok = sent(&request("GET", "HTTP/1.1"), [Response::text("hello").into()]);
    let head = format!("HTTP/1.1 200 OK\r\nServer: Tidegate\r\n{DATE}Content-Type: text/plain\r\n");
    assert_eq!(ok, format!("{head}Content-Length: 5\r\n\r\nhello"));
}

#[test]
fn a_body_of_any_length_has_its_length_in_the_head() {
    let start = format!("HTTP/1.1 200 OK\r\nServer: Tidegate\r\n{DATE}Content-Type: text/plain\r\nContent-Length: ");
    for length in (0..2_200).chain([9_999, 10_000, 100_000]) {
        let body = "b".repeat(length);
        let sent = sent(&request("GET", "HTTP/1.1"), [Response::text(body.clone()).into()]);
        assert!(sent == format!("{start}{length}\r\n\r\n{body}"), "a body of {length} bytes: {sent:.200}");
    }
}

#[test]
fn the_server_has_the_name_it_was_given() {
    for (name, expected) in [("Harbour/2", "Server: Harbour/2\r\n"), ("", "")] {
        let mut talk = Talk::with(Config::default().server_name(name));
        talk.receive(GET).expect("the request is good");
        talk.say(Response::new(Status::NOT_FOUND)).expect("a response is owed");
        let head = format!("HTTP/1.1 404 Not Found\r\n{expected}{DATE}Content-Length: 0\r\n\r\n");
        assert_eq!(talk.sent(), head);
    }
}

#[test]
fn a_status_without_reason_keeps_its_space() {
    let status = Status::new(599).expect("three digits");
    assert!(sent(&request("GET", "HTTP/1.1"), [Response::new(status).into()]).starts_with("HTTP/1.1 599 \r\nServer"));
    assert_eq!((Status::new(99), Status::new(600)), (None, None));
}

#[test]
fn a_date_and_a_server_of_the_application_replace_those_of_the_codec() {
    let with = |status: Status, fields: &[(&str, &str)]| {
        let response = fields.iter().fold(Response::new(status), |response, (name, value)| {
            response.field(name, value.as_bytes()).expect("a good field")
        });
        sent(&request("GET", "HTTP/1.1"), [response.into()])
    };
    const OWN_DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let (end, ok) = ("Content-Length: 0\r\n\r\n", Status::OK);
    for (fields, expected) in [
        (&[("Server", "mine/1")][..], format!("{DATE}Server: mine/1\r\n")),
        (&[("date", OWN_DATE)], format!("Server: Tidegate\r\ndate: {OWN_DATE}\r\n")),
        (&[("A", "b"), ("SERVER", "x"), ("Server", "mine/1")], format!("{DATE}Server: mine/1\r\nA: b\r\n")),
        (
            &[("Set-Cookie", "a=b"), ("Date", OWN_DATE), ("Server", "mine/1")],
            format!("Server: mine/1\r\nDate: {OWN_DATE}\r\nSet-Cookie: a=b\r\n"),
        ),
        (&[("Set-Cookie", "a=b")], format!("Server: Tidegate\r\n{DATE}Set-Cookie: a=b\r\n")),
    ] {
        assert_eq!(with(ok, fields), format!("HTTP/1.1 200 OK\r\n{expected}{end}"), "{fields:?}");
    }
    let other = with(Status::new(599).expect("three digits"), &[("Server", "mine/1")]);
    assert_eq!(other, format!("HTTP/1.1 599 \r\n{DATE}Server: mine/1\r\n{end}"));
    const OWN: Fields = Fields::from_static("Server: mine/1\r\nX-One: 1\r\n");
    let constant = sent(&request("GET", "HTTP/1.1"), [Response::new(ok).fields(OWN).into()]);
    assert_eq!(constant, format!("HTTP/1.1 200 OK\r\n{DATE}Server: mine/1\r\nX-One: 1\r\n{end}"));
}

#[test]
fn fields_of_the_application_go_out_as_they_are() {
    const FIELDS: Fields = Fields::from_static("X-One: 1\r\nX-Two: 2\r\n");
    let response = Response::new(Status::OK).fields(FIELDS).field("X-Three", b"\t3").expect("a good field");
    let ok = sent(&request("GET", "HTTP/1.1"), [response.into()]);
    assert!(ok.ends_with("GMT\r\nX-One: 1\r\nX-Two: 2\r\nX-Three: \t3\r\nContent-Length: 0\r\n\r\n"), "{ok}");
}

#[test]
fn a_field_cannot_split_a_response() {
    let mut fields = Fields::new();
    for value in ["a\r\nB: c", "a\rb", "a\nb", "a\0", "\x7f"] {
        assert_eq!(fields.push("A", value.as_bytes()), Err(InvalidField::Value));
    }
    for name in ["", "A B", "A:", "A\r\n", "\u{e4}"] {
        assert_eq!(fields.push(name, b"a"), Err(InvalidField::Name));
    }
    for name in ["content-length", "Transfer-Encoding", "CONNECTION", "Host"] {
        assert_eq!(fields.push(name, b"a"), Err(InvalidField::Reserved));
    }
    assert!(fields.is_empty());
    for lines in
        ["A: b", "A: b\n", "A b\r\n", "A: b\r\n\r\n", " A: b\r\n", "Host: b\r\n", "A: b\r\nDate: b\r\n", "A: b\rc\r\n"]
    {
        std::panic::catch_unwind(|| Fields::from_static(lines)).expect_err("not whole lines");
    }
    std::panic::catch_unwind(|| ContentType::from_static("a\r\n")).expect_err("not a value");
    std::panic::catch_unwind(|| Config::default().server_name("a\r\n")).expect_err("not a value");
}

#[test]
fn to_head_the_head_is_the_same_and_the_body_is_not_sent() {
    let get = sent(&request("GET", "HTTP/1.1"), [Response::text("hello").into()]);
    let head = sent(&request("HEAD", "HTTP/1.1"), [Response::text("hello").into()]);
    assert_eq!(head, get.strip_suffix("hello").expect("a body"));
    let streamed = sent(
        &request("HEAD", "HTTP/1.1"),
        [Outgoing::Head(StreamedResponse::new(Status::OK)), Outgoing::Data("hello".into()), Outgoing::End],
    );
    assert!(streamed.ends_with("Transfer-Encoding: chunked\r\n\r\n"), "{streamed}");
}

#[test]
fn statuses_without_body_have_none() {
    for (status, has_length) in
        [(Status::NO_CONTENT, false), (Status::NOT_MODIFIED, false), (Status::RESET_CONTENT, true)]
    {
        let mut talk = Talk::new();
        talk.receive(GET).expect("the request is good");
        let refused = talk.say(Response::new(status).body("x"));
        assert_eq!(refused, Err(Error::Caller(Misuse::BodyForbidden)));
        talk.say(Response::new(status)).expect("a response is owed");
        let sent = talk.sent();
        assert_eq!(sent.contains("Content-Length"), has_length, "{sent}");
        assert!(sent.ends_with("\r\n\r\n"), "{sent}");
    }
}

#[test]
fn a_body_of_unknown_length_is_chunked() {
    let body = sent(
        &request("GET", "HTTP/1.1"),
        [
            Outgoing::Head(StreamedResponse::new(Status::OK).content_type(ContentType::EVENTS)),
            Outgoing::Data("hello".into()),
            Outgoing::Data(Body::Empty),
            Outgoing::Chunk(Chunk::new(b"0123456789abcdef")),
            Outgoing::Chunk(Chunk::new(b"")),
            Outgoing::Data(vec![b'x'; 5_000].into()),
            Outgoing::End,
        ],
    );
    let (head, body) = body.split_once("\r\n\r\n").expect("a head");
    assert!(head.ends_with("\r\nTransfer-Encoding: chunked"), "{head}");
    let long = "x".repeat(5_000);
    assert_eq!(body, format!("5\r\nhello\r\n10\r\n0123456789abcdef\r\n1388\r\n{long}\r\n0\r\n\r\n"));
}

#[test]
fn to_http_1_0_a_body_of_unknown_length_ends_with_the_connection() {
    let mut talk = Talk::new();
    talk.receive(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").expect("the request is good");
    for message in [
        Outgoing::Head(StreamedResponse::new(Status::OK)),
        Outgoing::Data("hello".into()),
        Outgoing::Chunk(Chunk::new(b" there")),
        Outgoing::End,
    ] {
        assert!(!talk.is_finished());
        talk.say(message).expect("the message is in order");
    }
    assert!(talk.is_finished());
    assert!(talk.sent().ends_with("Connection: close\r\n\r\nhello there"));
}

#[test]
fn an_announced_length_is_kept() {
    let head = || Outgoing::Head(StreamedResponse::new(Status::OK).length(5));
    let body = sent(
        &request("GET", "HTTP/1.1"),
        [head(), Outgoing::Data("hel".into()), Outgoing::Data("lo".into()), Outgoing::End],
    );
    assert!(body.ends_with("Content-Length: 5\r\n\r\nhello"), "{body}");

    let mut talk = Talk::new();
    talk.receive(GET).expect("the request is good");
    talk.say(head()).expect("a response is owed");
    talk.say(Outgoing::Data("hel".into())).expect("there is room");
    assert_eq!(talk.say(Outgoing::Data("lo!".into())), Err(Error::Caller(Misuse::BodyTooLong)));
    assert_eq!(talk.say(Outgoing::End), Err(Error::Caller(Misuse::BodyTooShort)));
    assert!(talk.is_finished(), "the peer would take the next response for the rest of the body");
    assert!(talk.sent().ends_with("\r\n\r\nhel"));
}

#[test]
fn messages_at_the_wrong_time_are_refused_and_write_nothing() {
    let mut talk = Talk::new();
    assert_eq!(talk.say(Response::text("x")), misuse(Misuse::NoRequest));
    assert_eq!(talk.say(Outgoing::Data("x".into())), misuse(Misuse::NoResponse));
    talk.receive(GET).expect("the request is good");
    assert_eq!(talk.say(Outgoing::End), misuse(Misuse::NoResponse));
    assert_eq!(talk.say(Outgoing::Continue), misuse(Misuse::ContinueUnexpected));
    assert_eq!(talk.say(Response::new(Status::CONTINUE)), misuse(Misuse::InterimStatus));
    assert_eq!(talk.sent(), "");
    talk.say(Outgoing::Head(StreamedResponse::new(Status::OK))).expect("a response is owed");
    talk.sent();
    assert_eq!(talk.say(Response::text("x")), misuse(Misuse::ResponseUnderWay));
    assert_eq!(talk.say(Outgoing::Head(StreamedResponse::new(Status::OK))), misuse(Misuse::ResponseUnderWay));
    talk.say(Outgoing::End).expect("a response is under way");
    assert_eq!(talk.say(Outgoing::End), misuse(Misuse::NoResponse));
    assert_eq!(talk.say(Outgoing::Data("x".into())), misuse(Misuse::NoResponse));
    assert_eq!(talk.sent(), "0\r\n\r\n");
}

#[test]
fn bodies_of_every_kind_and_length_arrive_whole() {
    let file = std::env::temp_dir().join(format!("tidegate-http1-{}", std::process::id()));
    std::fs::File::create(&file).and_then(|mut file| file.write_all(&[b'f'; 9_000])).expect("a temporary file");
    let opened = Arc::new(std::fs::File::open(&file).expect("it was just written"));
    std::fs::remove_file(&file).expect("it was just written");
    static LONG: [u8; 9_000] = [b's'; 9_000];
    for length in [1, 100, 2_047, 2_048, 4_000, 9_000] {
        let region = FileRegion { file: Arc::clone(&opened), offset: 0, length: length as u64 };
        let slice = tidegate_codec::Pool::new().copy(&vec![b'v'; length]);
        for (letter, body) in [
            ("s", Body::Static(&LONG[..length])),
            ("b", Body::Bytes(Bytes::from(vec![b'b'; length]))),
            ("v", Body::Slice(slice)),
            ("f", Body::File(region)),
        ] {
            let sent = sent(&request("GET", "HTTP/1.1"), [Response::new(Status::OK).body(body).into()]);
            let (head, body) = sent.split_once("\r\n\r\n").expect("a head");
            assert!(head.ends_with(&format!("Content-Length: {length}")), "{head}");
            assert_eq!(body, letter.repeat(length));
        }
    }
}

#[test]
fn fields_larger_than_a_segment_arrive_whole() {
    let mut fields = Fields::new();
    for _ in 0..10 {
        fields.push("X", [b'y'; 1_000]).expect("a good field");
    }
    let lines = String::from_utf8(fields.bytes().to_vec()).expect("text");
    let sent = sent(&request("GET", "HTTP/1.1"), [Response::text("hello").fields(fields).into()]);
    assert!(sent.ends_with(&format!("\r\n{lines}Content-Length: 5\r\n\r\nhello")));
}

#[test]
fn interim_responses_come_before_the_final_one() {
    const LINKS: Fields = Fields::from_static("Link: </a>; rel=preload\r\n");
    let early = || Outgoing::Interim(Interim::new(Status::EARLY_HINTS).fields(LINKS));
    let processing = || Outgoing::Interim(Interim::new(Status::PROCESSING));
    let text = sent(&request("GET", "HTTP/1.1"), [processing(), early(), Response::text("ok").into()]);
    let expected =
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n";
    assert!(text.starts_with(expected), "{text}");
    let text = sent(&request("GET", "HTTP/1.0"), [early(), Response::text("ok").into()]);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "HTTP/1.0 has none: {text}");
}

#[test]
fn interim_responses_need_an_interim_status() {
    let mut talk = Talk::new();
    let interim = |code| Outgoing::Interim(Interim::new(Status::new(code).expect("a status")));
    assert_eq!(talk.say(interim(103)), misuse(Misuse::NoRequest));
    talk.receive(GET).expect("a good request");
    for code in [100, 101, 200, 404] {
        assert_eq!(talk.say(interim(code)), misuse(Misuse::InterimStatus), "{code}");
    }
    assert_eq!(talk.sent(), "");
    talk.say(Response::text("ok")).expect("a response is owed");
    assert_eq!(talk.say(interim(103)), misuse(Misuse::NoRequest));
}

#[test]
fn trailers_follow_a_chunked_body_and_are_left_out_elsewhere() {
    let trailers = || Outgoing::Trailers(Fields::from_static("Digest: 7\r\n"));
    let head = || Outgoing::Head(StreamedResponse::new(Status::OK));
    let text = sent(&request("GET", "HTTP/1.1"), [head(), Outgoing::Data("ebb".into()), trailers()]);
    assert!(text.ends_with("\r\n3\r\nebb\r\n0\r\nDigest: 7\r\n\r\n"), "{text}");
    let text = sent(&request("GET", "HTTP/1.0"), [head(), Outgoing::Data("ebb".into()), trailers()]);
    assert!(text.ends_with("\r\n\r\nebb"), "{text}");
    let text = sent(&request("HEAD", "HTTP/1.1"), [head(), trailers()]);
    assert!(text.ends_with("chunked\r\n\r\n"), "{text}");
}

#[test]
fn a_trailer_that_belongs_before_the_body_is_refused() {
    let mut talk = Talk::new();
    talk.receive(GET).expect("a good request");
    talk.say(StreamedResponse::new(Status::OK)).expect("a response is owed");
    talk.sent();
    for line in ["Content-Type: a/b\r\n", "Set-Cookie: a=b\r\n", "TRAILER: a\r\n"] {
        assert_eq!(talk.say(Outgoing::Trailers(Fields::from_static(line))), misuse(Misuse::TrailerForbidden), "{line}");
    }
    assert_eq!(talk.sent(), "");
    talk.say(Outgoing::End).expect("the body goes on");
}

#[test]
fn reset_content_has_none_however_it_is_sent() {
    for head in [StreamedResponse::new(Status::RESET_CONTENT), StreamedResponse::new(Status::RESET_CONTENT).length(5)] {
        let text = sent(&request("GET", "HTTP/1.1"), [head.into(), Outgoing::Data("hello".into()), Outgoing::End]);
        assert!(text.ends_with("\r\nContent-Length: 0\r\n\r\n"), "{text}");
    }
}

#[test]
fn another_protocol_is_granted_only_behind_the_whole_request() {
    let switch = || Response::new(Status::SWITCHING_PROTOCOLS).field("Upgrade", "tide").expect("a good field");
    let mut talk = Talk::new();
    talk.receive(b"POST / HTTP/1.1\r\nHost: a\r\nUpgrade: tide\r\nContent-Length: 5\r\n\r\nhel")
        .expect("a good request");
    assert_eq!(talk.say(switch()), misuse(Misuse::SwitchTooEarly));
    talk.receive(b"loebb").expect("a good request");
    talk.say(switch()).expect("now it is complete");
    assert!(talk.harness.codec().is_switched());
    assert_eq!(talk.harness.input().bytes(), b"ebb");
}

#[test]
fn another_protocol_is_granted_by_its_name_and_not_to_http_1_0() {
    let switch = || Response::new(Status::SWITCHING_PROTOCOLS);
    let asked = |version: &str| {
        let mut talk = Talk::new();
        let wire = format!("GET / {version}\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: tide\r\n\r\n");
        talk.receive(wire.as_bytes()).expect("a good request");
        talk
    };
    let mut talk = asked("HTTP/1.1");
    assert_eq!(talk.say(switch()), misuse(Misuse::SwitchUnnamed));
    assert_eq!(talk.say(StreamedResponse::new(Status::SWITCHING_PROTOCOLS)), misuse(Misuse::SwitchUnnamed));
    assert_eq!(talk.sent(), "");
    talk.say(switch().field("upgrade", "tide").expect("a good field")).expect("it has a name");
    assert!(talk.sent().contains("\r\nConnection: upgrade\r\nupgrade: tide\r\n"));
    let mut talk = asked("HTTP/1.0");
    assert_eq!(talk.say(switch().field("Upgrade", "tide").expect("a good field")), misuse(Misuse::PeerTooOld));
    talk.say(Response::text("no")).expect("the request is answered as if it had not asked");
}

#[test]
fn a_100_precedes_the_101_of_a_request_that_expects_both() {
    let switch = || Response::new(Status::SWITCHING_PROTOCOLS).field("Upgrade", "tide").expect("a good field");
    let asked = |length: usize| {
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nUpgrade: tide\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let mut talk = Talk::new();
    talk.receive(asked(5).as_bytes()).expect("a good request");
    talk.receive(b"hello").expect("a good body");
    talk.say(switch()).expect("it is complete");
    assert!(talk.sent().starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 "));
    // A client without a body does not wait for 100, but may have requested it.
    let text = sent(&asked(0), [switch().into()]);
    assert!(text.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 "), "{text}");
}

#[test]
fn upgrade_goes_with_its_connection_option_in_every_response() {
    let named = |status| Response::new(status).field("A", "b").and_then(|response| response.field("Upgrade", "tide/2"));
    let named = |status| named(status).and_then(|response| response.field("UPGRADE", "ebb")).expect("good fields");
    let required = Status::new(426).expect("a status");
    for (request, response, said) in [
        (request("GET", "HTTP/1.1"), named(required), "upgrade"),
        (request("GET", "HTTP/1.1"), named(Status::OK).close(), "close, upgrade"),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".into(), named(Status::OK), "keep-alive, upgrade"),
    ] {
        let text = sent(&request, [response.into()]);
        assert!(
            text.contains(&format!("\r\nConnection: {said}\r\nUpgrade: tide/2\r\nUPGRADE: ebb\r\nA: b\r\n")),
            "{text}"
        );
        assert_eq!(text.matches("Connection:").count(), 1, "{text}");
    }
    const NAMED: Fields = Fields::from_static("Upgrade: tide\r\nA: b\r\n");
    let hints = Outgoing::Interim(Interim::new(Status::EARLY_HINTS).fields(NAMED));
    let text = sent(&request("GET", "HTTP/1.1"), [hints, Response::text("ok").into()]);
    assert!(
        text.starts_with("HTTP/1.1 103 Early Hints\r\nConnection: upgrade\r\nUpgrade: tide\r\nA: b\r\n\r\n"),
        "{text}"
    );
    std::panic::catch_unwind(|| Fields::from_static("A: b\r\nUpgrade: tide\r\n")).expect_err("it would not be found");
}

/// Clients that read it send no request at the moment at which the server closes the connection.
#[test]
fn the_idle_timeout_is_named_if_it_is_set() {
    let sent_with = |config: Config, request: &str, response: Outgoing| {
        let mut harness = CodecHarness::new(Server::new(Arc::new(config)));
        harness.receive(request.as_bytes());
        assert!(matches!(harness.step(), Ok(Step::Message(_))));
        harness.encode(response).expect("it is in order");
        harness.flush().expect("nothing is held back");
        String::from_utf8(harness.take_sent()).expect("text")
    };
    let config = |timeout| Config::new(Limits { idle_timeout: timeout, ..Limits::default() });
    let get = request("GET", "HTTP/1.1");
    let hint = |seconds: u64| format!("\r\nKeep-Alive: timeout={seconds}\r\nConnection: keep-alive\r\n");
    let fields = Fields::from_static("X: y\r\n");
    for (seconds, named) in [(1, 1), (2, 1), (5, 4), (76, 75), (3600, 3599)] {
        let config = || config(Duration::from_secs(seconds));
        let with_fields = Response::text("ok").fields(fields.clone());
        let streamed = StreamedResponse::new(Status::OK);
        for response in [Response::text("ok").into(), with_fields.into(), Response::new(Status::NOT_FOUND).into()] {
            let sent = sent_with(config(), &get, response);
            assert!(sent.contains(&hint(named)) && sent.matches("Connection").count() == 1, "{seconds}: {sent}");
        }
        assert!(sent_with(config(), &get, streamed.into()).contains(&hint(named)));
        let old = sent_with(config(), "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Response::text("ok").into());
        assert!(old.contains(&hint(named)), "{old}");
        let upgrade = Response::new(Status::UPGRADE_REQUIRED).fields(Fields::from_static("Upgrade: tide\r\n"));
        let sent = sent_with(config(), &get, upgrade.into());
        assert!(sent.contains("\r\nConnection: keep-alive, upgrade\r\nUpgrade: tide\r\n"), "{sent}");
        for request in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"] {
            let sent = sent_with(config(), request, Response::text("ok").into());
            assert!(!sent.contains("Keep-Alive") && sent.contains("\r\nConnection: close\r\n"), "{sent}");
        }
    }
    let is_named = |config| sent_with(config, &get, Response::text("ok").into()).contains("Keep-Alive");
    assert!(!is_named(Config::default()), "the default timeout is not named, which saves the bytes");
    assert!(is_named(Config::default().keep_alive_hint(true).server_name("")));
    assert!(!is_named(config(Duration::from_secs(5)).keep_alive_hint(false)));
    assert!(!is_named(config(Duration::from_millis(900))));
    assert!(!is_named(Config::default().server_name("Harbour")));
}
