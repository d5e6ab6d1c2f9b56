//! Requests and responses on one stream.

use std::sync::Arc;

use tidegate::codec::framing::Raw;
use tidegate::codec::mux::ResetCause;
use tidegate::codec::{Over, Step, StreamEndpoint};
use tidegate::http1::{Fields, Interim, Method, Outgoing, Response, Status, StreamedResponse, client};
use tidegate::http3::{self, Config, ErrorCode, Limits, StreamError, Violation};
use tidegate_testkit::CodecHarness;

use crate::memory_quic::{Side, at};
use crate::support::{
    self, DATA, Failure, HEADERS, RESERVED, client, frame, frames, headers, request, requests, responses, server,
};

const GET: &str = "[GET /tide HTTP/1.1|host: sea||]";
const POST: &str = "[POST /tide HTTP/1.1|host: sea||]";

#[test]
fn a_request_gets_its_response() {
    let mut stream = server(Limits::default());
    assert_eq!(requests(&mut stream, &[&request("GET", &[])]), Ok(format!("{GET}[end]")));
    assert_eq!(stream.codec().filter().reset_code(), Some(ErrorCode::INTERNAL_ERROR), "before the response");
    stream.encode(Response::text("ebb").into()).expect("a response is owed");
    stream.flush().expect("it is written");
    let sent = frames(&stream.take_sent());
    assert_eq!(sent, "[:status=200|server=Tidegate|content-type=text/plain|content-length=3]<ebb>");
    assert!(stream.codec().filter().has_sent_end() && stream.codec().filter().reset_code().is_none());
}

/// A thread remembers the last section that it has decoded.
#[test]
fn a_section_that_comes_again_is_read_as_the_first_time() {
    let wide = support::config(Limits::default());
    let narrow = support::config(Limits { head_bytes_max: 100, ..Limits::default() });
    let read = |config: &Arc<Config>, wire: &[&[u8]]| {
        requests(&mut CodecHarness::new(http3::server_stream(config, ())), &[&wire.concat()])
    };
    let (get, post, pathless) = (request("GET", &[]), request("POST", &[]), headers(&[(":method", "GET")]));
    let malformed = Err(Failure::Frames(StreamError::Malformed));
    for _ in 0..2 {
        assert_eq!(read(&wide, &[&get]), Ok(format!("{GET}[end]")));
        assert_eq!(read(&wide, &[&post, &frame(DATA, b"ebb")]), Ok(format!("{POST}ebb[end]")));
        // The same section is no trailers, and it exceeds the limits of others.
        assert_eq!(read(&wide, &[&post, &post]), malformed);
        let refused = Err(Failure::Frames(StreamError::HeadTooLarge { is_answered: true }));
        assert_eq!(read(&wide, &[&post]), Ok(format!("{POST}[end]")));
        assert_eq!(read(&narrow, &[&post]), refused);
        assert_eq!(read(&wide, &[&post]), Ok(format!("{POST}[end]")));
        assert_eq!(read(&wide, &[&pathless]), malformed);
        assert_eq!(read(&wide, &[&post]), Ok(format!("{POST}[end]")));
    }
}

#[test]
fn a_body_of_any_length_is_one_frame_behind_its_head() {
    for length in [1, 2, 1023, 1024, 1025, 5000] {
        let mut stream = server(Limits::default());
        requests(&mut stream, &[&request("GET", &[])]).expect("a request");
        let body = "e".repeat(length);
        stream.encode(Response::text(body.clone()).into()).expect("a response is owed");
        stream.flush().expect("it is written");
        let sent = frames(&stream.take_sent());
        assert_eq!(
            sent,
            format!("[:status=200|server=Tidegate|content-type=text/plain|content-length={length}]<{body}>")
        );
        assert!(stream.codec().filter().has_sent_end());
    }
}

#[test]
fn every_split_of_the_wire_gives_the_same_messages() {
    let wire = [
        frame(RESERVED, b"grease"),
        request("POST", &[]),
        frame(DATA, b"ebb and "),
        frame(DATA, b""),
        frame(0x40 * 0x1f + 0x21, b""),
        frame(DATA, b"flow"),
        headers(&[("x", "y")]),
        frame(RESERVED, b"more"),
    ]
    .concat();
    let expected = Ok(format!("{POST}ebb and flow[x: y][end]"));
    for split in 0..=wire.len() {
        let (one, other) = wire.split_at(split);
        assert_eq!(requests(&mut server(Limits::default()), &[one, other]), expected, "split at {split}");
    }
    let bytes: Vec<_> = wire.chunks(1).collect();
    assert_eq!(requests(&mut server(Limits::default()), &bytes), expected, "byte by byte");
}

#[test]
fn a_head_behind_which_the_stream_ends_has_no_body() {
    for (is_noted, has_body) in [(true, false), (false, true)] {
        let mut stream = server(Limits::default());
        if is_noted {
            let (pipeline, _) = stream.parts();
            pipeline.filter_mut().note_last_input();
        }
        let messages = stream.decode(&request("GET", &[])).expect("a request");
        let [tidegate::http1::Incoming::Head(head)] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!(head.has_body(), has_body);
    }
}

/// RFC 9114 §4.1.2: such a body would be the next request elsewhere.
#[test]
fn a_body_has_its_declared_length() {
    let head = request("POST", &[("content-length", "5")]);
    for (bodies, is_right) in [
        (&[&b"ebbs!"[..]][..], true),
        (&[b"ebb", b"s!"], true),
        (&[], false),
        (&[b"ebb"], false),
        (&[b"ebb", b"s!?"], false),
        (&[b"ebbing"], false),
    ] {
        let wire = [head.clone(), bodies.iter().flat_map(|body| frame(DATA, body)).collect()].concat();
        let trailed = [&wire[..], &headers(&[("x", "y")])].concat();
        for (wire, name) in [(wire, "FIN"), (trailed, "trailers")] {
            let read = requests(&mut server(Limits::default()), &[&wire]);
            match is_right {
                true => assert!(read.is_ok(), "{bodies:?} {name}: {read:?}"),
                false => assert_eq!(read, Err(Failure::Frames(StreamError::Malformed)), "{bodies:?} {name}"),
            }
        }
    }
    let mut stream = server(Limits::default());
    let (pipeline, _) = stream.parts();
    pipeline.filter_mut().note_last_input();
    let read = stream.decode(&head).map(|_| ()).map_err(Failure::from);
    assert_eq!(read, Err(Failure::Frames(StreamError::Malformed)), "FIN with the head");
    assert_eq!(stream.codec().filter().failure(), Some(StreamError::Malformed));
    assert_eq!(stream.codec().filter().reset_code(), Some(ErrorCode::MESSAGE_ERROR));
}

#[test]
fn malformed_messages_reset_their_stream_alone() {
    let get = [(":method", "GET"), (":scheme", "https"), (":authority", "sea"), (":path", "/")];
    for more in [
        ("connection", "close"),
        ("upgrade", "websocket"),
        ("transfer-encoding", "chunked"),
        ("te", "gzip"),
        ("Upper", "case"),
        (":path", "/again"),
        (":status", "200"),
        (":tide", "high"),
        ("x", "line\r\nx: y"),
        ("content-length", "+1"),
    ] {
        let wire = headers(&[&get[..], &[more]].concat());
        let read = requests(&mut server(Limits::default()), &[&wire]);
        assert_eq!(read, Err(Failure::Frames(StreamError::Malformed)), "{more:?}");
    }
    let without_host = [get[0], get[1], get[3]];
    assert!(
        requests(&mut server(Limits::default()), &[&headers(&[&without_host[..], &[("host", "sea")]].concat())])
            .is_ok()
    );
    for wire in [
        headers(&get[1..]),
        // RFC 9114 §4.3.1.
        headers(&without_host),
        headers(&[&without_host[..], &[("host", "")]].concat()),
        headers(&[&get[..1], &[("x", "y")], &get[1..]].concat()),
        [request("POST", &[]), headers(&[(":path", "/")])].concat(),
        [request("POST", &[]), headers(&[("content-length", "0")])].concat(),
    ] {
        let read = requests(&mut server(Limits::default()), &[&wire]);
        assert_eq!(read, Err(Failure::Frames(StreamError::Malformed)), "{}", frames(&wire));
    }
    assert!(requests(&mut server(Limits::default()), &[&headers(&[&get[..], &[("te", "trailers")]].concat())]).is_ok());
}

#[test]
fn frames_in_the_wrong_place_end_the_connection() {
    let get = request("GET", &[]);
    let unexpected = StreamError::Connection(Violation::FrameUnexpected.into());
    for kind in [2, 3, 4, 5, 6, 7, 8, 9, 0xd, 0xf_0700, 0xf_0701] {
        for wire in [frame(kind, &[0]), [&get[..], &frame(kind, &[0])].concat()] {
            let read = requests(&mut server(Limits::default()), &[&wire]);
            assert_eq!(read, Err(Failure::Frames(unexpected)), "{kind:#x}");
        }
    }
    let trailers = headers(&[("x", "y")]);
    for wire in [
        frame(DATA, b"early"),
        [&get[..], &trailers, &trailers].concat(),
        [&get[..], &trailers, &frame(DATA, b"late")].concat(),
    ] {
        assert_eq!(requests(&mut server(Limits::default()), &[&wire]), Err(Failure::Frames(unexpected)));
    }
    assert_eq!(unexpected.code(), ErrorCode::FRAME_UNEXPECTED);
}

#[test]
fn a_stream_that_ends_within_a_frame_ends_the_connection() {
    let wire = [request("POST", &[]), frame(DATA, b"ebb"), frame(RESERVED, b"x"), headers(&[("x", "y")])];
    let ends = wire.iter().scan(0, |end, frame| {
        *end += frame.len();
        Some(*end)
    });
    let ends: Vec<usize> = ends.collect();
    let wire = wire.concat();
    for end in 1..wire.len() {
        let read = requests(&mut server(Limits::default()), &[&wire[..end]]);
        let cut = Failure::Frames(StreamError::Connection(Violation::FrameLayout.into()));
        match ends.contains(&end) {
            true => assert!(read.is_ok(), "{end}: {read:?}"),
            false => assert_eq!(read, Err(cut), "{end}"),
        }
    }
    assert_eq!(requests(&mut server(Limits::default()), &[]), Err(Failure::Frames(StreamError::Incomplete)));
    assert_eq!(StreamError::Incomplete.code(), ErrorCode::REQUEST_INCOMPLETE);
    let reserved = frame(RESERVED, b"");
    assert_eq!(requests(&mut server(Limits::default()), &[&reserved]), Err(Failure::Frames(StreamError::Incomplete)));
}

#[test]
fn a_section_that_cannot_be_decoded_ends_the_connection() {
    for section in [
        &b"\x01\x00\x80"[..],
        b"\x00\x00\x80",
        b"\x00\x80",
        b"\x00\x00\xff\x24",
        b"\x00\x00\x51\x81\xff",
        // A literal name and a literal value of 2^62 bytes.
        b"\x00\x00\x27\xf9\xff\xff\xff\xff\xff\xff\xff\x3f",
        b"\x00\x00\x51\x7f\x81\xff\xff\xff\xff\xff\xff\xff\x3f",
    ] {
        let read = requests(&mut server(Limits::default()), &[&frame(HEADERS, section)]);
        let Err(Failure::Frames(error)) = read else { panic!("{section:?}: {read:?}") };
        assert_eq!(error.code(), ErrorCode::QPACK_DECOMPRESSION_FAILED, "{section:?}");
        assert!(error.connection().is_some());
    }
}

#[test]
fn a_response_may_come_in_pieces_with_trailers() {
    let mut stream = server(Limits::default());
    requests(&mut stream, &[&request("GET", &[])]).expect("a request");
    let mut hints = Fields::new();
    hints.push("link", "</tide.css>").expect("a field");
    stream.encode(Outgoing::Interim(Interim::new(Status::EARLY_HINTS).fields(hints))).expect("an interim response");
    stream.encode(StreamedResponse::new(Status::OK).into()).expect("a head");
    let long = "tide".repeat(1_000);
    for piece in ["ebb", &long] {
        stream.encode(Outgoing::Data(piece.to_owned().into())).expect("a piece");
        stream.flush().expect("it is written");
        assert!(!stream.codec().filter().has_sent_end());
    }
    let mut trailers = Fields::new();
    trailers.push("x", "y").expect("a field");
    stream.encode(Outgoing::Trailers(trailers)).expect("trailers");
    stream.flush().expect("they are written");
    let sent = frames(&stream.take_sent());
    let expected = format!("[:status=103|link=</tide.css>][:status=200|server=Tidegate]<ebb><{long}>[x=y]");
    assert_eq!(sent, expected);
    assert!(stream.codec().filter().has_sent_end());
}

#[test]
fn a_client_reads_interim_heads_bodies_and_trailers() {
    let mut stream = client(false);
    let get = client::Request::get("https://sea/tide").expect("a request").host("sea").expect("a host");
    stream.encode(client::Outgoing::Request(get)).expect("the first one");
    stream.flush().expect("it is written");
    let sent = frames(&stream.take_sent());
    assert_eq!(sent, "[:method=GET|:scheme=https|:path=/tide|:authority=sea]");
    assert!(stream.codec().filter().has_sent_end());
    let wire = [
        headers(&[(":status", "103"), ("link", "</a>")]),
        headers(&[(":status", "200")]),
        frame(DATA, b"ebb"),
        headers(&[("x", "y")]),
    ]
    .concat();
    for split in 0..wire.len() {
        let mut stream = client(false);
        let get = client::Request::get("/tide").expect("a request").host("sea").expect("a host");
        stream.encode(client::Outgoing::Request(get)).expect("the first one");
        let (one, other) = wire.split_at(split);
        assert_eq!(responses(&mut stream, &[one, other]).as_deref(), Ok("(103)[200]ebb[x: y][end]"), "{split}");
    }
}

fn response_to(method: Method, pieces: &[Vec<u8>]) -> Result<String, Failure> {
    let mut stream = client(false);
    let request = client::Request::new(method, "/tide").expect("a request").host("sea").expect("a host");
    stream.encode(client::Outgoing::Request(request)).expect("the first one");
    stream.flush().expect("it is written");
    responses(&mut stream, &[&pieces.concat()])
}

#[test]
fn responses_without_a_body_have_none() {
    let head = |status: &str, length: &str| headers(&[(":status", status), ("content-length", length)]);
    assert_eq!(response_to(Method::Head, &[head("200", "5")]).as_deref(), Ok("[200][end]"));
    assert_eq!(response_to(Method::Get, &[head("304", "5")]).as_deref(), Ok("[304][end]"));
    let malformed = Err(Failure::Frames(StreamError::Malformed));
    assert_eq!(response_to(Method::Get, &[head("200", "5")]), malformed, "FIN before its length");
    assert_eq!(response_to(Method::Head, &[head("200", "5"), frame(DATA, b"ebbs!")]), malformed);
    assert_eq!(response_to(Method::Get, &[head("204", "0"), frame(DATA, b"ebb")]), malformed);
    assert_eq!(response_to(Method::Get, &[]), malformed, "no head");
    assert_eq!(response_to(Method::Get, &[headers(&[(":status", "100")])]), malformed, "an interim head alone");
    assert_eq!(response_to(Method::Get, &[headers(&[(":status", "101")])]), malformed);
    let promise = response_to(Method::Get, &[frame(5, &[0])]);
    assert_eq!(promise, Err(Failure::Frames(StreamError::Connection(Violation::Id.into()))));
}

#[test]
fn an_extended_connect_becomes_a_tunnel() {
    let (mut client, mut server) = (client(true), server(Limits::default()));
    let upgrade = client::Request::get("/ws").expect("a request").host("sea").expect("a host").upgrade("websocket");
    client.encode(client::Outgoing::Request(upgrade)).expect("the first one");
    client.flush().expect("it is written");
    let wire = client.take_sent();
    let expected = "[:method=CONNECT|:protocol=websocket|:scheme=https|:path=/ws|:authority=sea]";
    assert_eq!(frames(&wire), expected);
    let messages = server.decode(&wire).expect("a request");
    assert_eq!(support::render_request(&messages[0]), "[CONNECT /ws HTTP/1.1|upgrade: websocket|host: sea||]");
    server.encode(StreamedResponse::new(Status::SWITCHING_PROTOCOLS).into()).expect("it accepts");
    server.flush().expect("it is written");
    assert!(server.codec().codec().is_switched());
    client.decode(&server.take_sent()).expect("a response");
    assert!(client.codec().codec().is_switched());

    let mut server = server.map(|stream| stream.map(|codec| Over::new(codec.into_tunnel(), Raw)));
    let mut client = client.map(|stream| stream.map(|codec| Over::new(codec.into_tunnel(), Raw)));
    client.encode("ebb".into()).expect("bytes");
    client.flush().expect("they are written");
    let wire = client.take_sent();
    assert_eq!(frames(&wire), "<ebb>");
    let received = server.decode(&[&wire[..], &frame(RESERVED, b"x"), &frame(DATA, b"flow")].concat()).expect("bytes");
    let received: Vec<u8> = received.iter().flat_map(|bytes| bytes.to_vec()).collect();
    assert_eq!(received, b"ebbflow");
    assert!(matches!(server.decode_eof(), Ok(Step::End)));
    assert!(!server.codec().filter().has_sent_end(), "each side ends on its own");
    server.close().expect("it ends");
    assert!(server.codec().filter().has_sent_end());
    assert!(server.decode(&headers(&[("x", "y")])).is_err() || server.codec().filter().failure().is_none());
}

#[test]
fn behind_a_connect_only_data_follows() {
    let connect = headers(&[(":method", "CONNECT"), (":authority", "sea:443")]);
    let mut stream = server(Limits::default());
    let messages = stream.decode(&connect).expect("a request");
    assert_eq!(support::render_request(&messages[0]), "[CONNECT sea:443 HTTP/1.1|host: sea:443||]");
    stream.encode(StreamedResponse::new(Status::OK).into()).expect("it accepts");
    stream.flush().expect("it is written");
    let mut stream = stream.map(|stream| stream.map(|codec| Over::new(codec.into_tunnel(), Raw)));
    assert!(stream.decode(&headers(&[("x", "y")])).is_err());
    let unexpected = StreamError::Connection(Violation::FrameUnexpected.into());
    assert_eq!(stream.codec().filter().failure(), Some(unexpected));
}

#[test]
fn a_priority_in_the_head_is_known() {
    let mut stream = server(Limits::default());
    requests(&mut stream, &[&request("GET", &[("priority", "u=1, i")])]).expect("a request");
    let priority = stream.codec().filter().priority().expect("a priority");
    assert_eq!((priority.urgency, priority.is_incremental), (1, true));
}

/// The response is complete although the body of the request is not.
#[test]
fn a_response_that_is_too_short_is_reset() {
    let mut stream = server(Limits::default());
    requests(&mut stream, &[&request("GET", &[])]).expect("a request");
    stream.encode(StreamedResponse::new(Status::OK).length(5).into()).expect("a head");
    assert!(stream.encode(Outgoing::End).is_err());
    stream.flush().expect("it is written");
    assert_eq!(stream.codec().filter().reset_code(), Some(ErrorCode::INTERNAL_ERROR));
}

/// A client that finds an error in STOP_SENDING might discard the response.
#[test]
fn a_complete_response_stops_the_rest_of_its_request_without_an_error() {
    for (cause, resets, sent) in [
        (Some(ResetCause::Unneeded), false, Some(ResetCause::Unneeded)),
        (Some(ResetCause::Failed), false, Some(ResetCause::Unneeded)),
        (Some(ResetCause::Violation), false, Some(ResetCause::Unneeded)),
        (None, false, Some(ResetCause::Unneeded)),
        (Some(ResetCause::Failed), true, Some(ResetCause::Failed)),
        (Some(ResetCause::Code(0x10e)), true, Some(ResetCause::Code(0x10e))),
    ] {
        let mut side = Side::new(false, Limits::default());
        side.arrive(0, &request("POST", &[]), None);
        side.http3.finish(at(0));
        side.http3.close(at(0), cause, resets);
        assert_eq!(side.quic().closed, [(0, sent)], "{cause:?}, {resets}");
    }
}
