//! The responses of `tidegate serve`.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::peer::{Peer, Reply, assert_same, letters, pattern, post, post_chunked, request};
use crate::support::program::{Directory, Program, backend, tidegate, until};

#[test]
fn every_route_answers() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);

    let plaintext = peer.get("/plaintext");
    assert_eq!((plaintext.status, plaintext.text()), (200, "Hello, World!"));
    assert_eq!(plaintext.field("content-length"), Some("13"));
    assert!(plaintext.field("content-type").unwrap().starts_with("text/plain"), "{}", plaintext.head);
    assert_eq!(plaintext.field("server"), Some("Tidegate"));
    assert_eq!(plaintext.field("connection"), None);
    assert_date(plaintext.field("date").unwrap());

    let json = peer.get("/json");
    assert_eq!((json.status, json.text()), (200, r#"{"message":"Hello, World!"}"#));
    assert_eq!(json.field("content-type"), Some("application/json"));

    let page = peer.get("/");
    assert_eq!(page.status, 200);
    assert!(page.field("content-type").unwrap().starts_with("text/html"));
    assert!(page.text().contains("Tidegate") && page.text().ends_with("</html>\n"));

    let missing = peer.get("/nothing");
    assert_eq!(missing.status, 404);
    assert!(!missing.body.is_empty());
}

#[test]
fn bytes_and_stream_have_the_requested_length() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    for length in [0, 1, 1023, 1024, 4095, 4096, 16_384, 65_535, 65_536, 65_537, 200_000, 3_000_000] {
        let bytes = peer.get(&format!("/bytes/{length}"));
        assert_eq!((bytes.status, bytes.field("content-length")), (200, Some(&*length.to_string())));
        assert_same(&bytes.body, &letters(length));
        let stream = peer.get(&format!("/stream/{length}"));
        assert_eq!((stream.status, stream.field("transfer-encoding")), (200, Some("chunked")));
        assert_same(&stream.body, &letters(length));
    }
}

#[test]
fn invalid_lengths_are_not_found() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    for target in ["/bytes/", "/bytes/a", "/bytes/-1", "/bytes/1/2", "/bytes/18446744073709551616", "/stream/0x1"] {
        assert_eq!(peer.get(target).status, 404, "{target}");
    }
    for target in ["/bytes", "/plaintext/", "/PLAINTEXT", "/..", "//", "/%70laintext"] {
        assert_eq!(peer.get(target).status, 404, "{target}");
    }
}

#[test]
fn echo_returns_the_request_body() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    for length in [0, 1, 100, 16_384, 70_000, 300_000] {
        let body = pattern(length);
        let known = peer.exchange(post("/echo", &body));
        assert_eq!((known.status, known.field("content-length")), (200, Some(&*length.to_string())));
        assert_same(&known.body, &body);
        for size in [1 + length / 300, 5_000, 100_000] {
            let chunked = peer.exchange(post_chunked("/echo", &body, size));
            assert_eq!((chunked.status, chunked.field("transfer-encoding")), (200, Some("chunked")));
            assert_same(&chunked.body, &body);
        }
    }
    let nothing = peer.exchange("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((nothing.status, nothing.field("content-length"), nothing.body.len()), (200, Some("0"), 0));
    let typed = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: text/tide\r\nContent-Length: 3\r\n\r\nebb";
    let typed = peer.exchange(typed);
    assert_eq!((typed.text(), typed.field("content-type")), ("ebb", Some("text/tide")));
    let unsaid = peer.ask("POST", "/echo");
    assert_eq!((unsaid.status, unsaid.field("connection")), (411, Some("close")));
}

#[test]
fn sum_returns_length_and_checksum() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    // The check value of CRC-32.
    assert_eq!(peer.exchange(post("/sum", b"123456789")).text(), "9 cbf43926\n");
    assert_eq!(peer.exchange(post_chunked("/sum", b"123456789", 2)).text(), "9 cbf43926\n");
    assert_eq!(peer.ask("POST", "/sum").text(), "0 00000000\n");
    let much = peer.exchange(post("/sum", &pattern(3_000_000))).text().to_owned();
    assert!(much.starts_with("3000000 "), "{much}");
    assert_eq!(peer.exchange(post_chunked("/sum", &pattern(3_000_000), 100_000)).text(), much);
    let wrong = peer.get("/sum");
    assert_eq!((wrong.status, wrong.field("allow")), (405, Some("POST")));
}

#[test]
fn echo_sends_five_megabytes_while_it_receives_them() {
    let program = Program::serve(&["--loops", "1"]);
    let body = pattern(5_000_000);
    for wire in [post("/echo", &body), post_chunked("/echo", &body, 10_000)] {
        let mut peer = Peer::connect(&program);
        let mut sender = peer.sender();
        let sending = std::thread::spawn(move || sender.send(wire));
        assert_same(&peer.reply().body, &body);
        sending.join().unwrap();
        assert_eq!(peer.get("/plaintext").status, 200);
    }
}

#[test]
fn a_wrong_method_gets_405_with_allow() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    for target in ["/", "/plaintext", "/json", "/bytes/10", "/stream/10"] {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"] {
            let reply = peer.ask(method, target);
            assert_eq!((reply.status, reply.field("allow")), (405, Some("GET, HEAD")), "{method} {target}");
        }
        let with_body = peer.exchange(post(target, &pattern(10_000)));
        assert_eq!(with_body.status, 405);
    }
    for method in ["GET", "HEAD", "PUT"] {
        let reply = peer.ask(method, "/echo");
        assert_eq!((reply.status, reply.field("allow")), (405, Some("POST")), "{method}");
    }
    assert_eq!(peer.get("/plaintext").status, 200);
}

/// RFC 9110 §9.1.
#[test]
fn unknown_methods_are_not_implemented_on_any_path() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    for target in ["/", "/plaintext", "/json", "/bytes/10", "/stream/10", "/echo", "/sum", "/nothing"] {
        for method in ["TIDE", "get", "PROPFIND", &"M".repeat(1_000)] {
            let reply = peer.ask(method, target);
            assert_eq!((reply.status, reply.field("allow")), (501, None), "{method} {target}");
        }
    }
    let with_body = "TIDE /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nebb";
    assert_eq!(peer.exchange(with_body).status, 501);
    assert_eq!(peer.get("/plaintext").status, 200, "the connection persists");
}

/// RFC 9110 §9.3.7.
#[test]
fn options_asterisk_lists_the_implemented_methods() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    let reply = peer.ask("OPTIONS", "*");
    assert_eq!((reply.status, reply.field("allow")), (200, Some("GET, HEAD, POST, OPTIONS")));
    assert_eq!((reply.field("content-length"), reply.body.len()), (Some("0"), 0));
    assert_eq!(peer.get("/plaintext").status, 200, "the connection persists");
}

#[test]
fn head_returns_the_head_of_get() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    for target in ["/", "/plaintext", "/json", "/bytes/0", "/bytes/500", "/bytes/100000", "/stream/500", "/nothing"] {
        let (head, get) = (peer.ask("HEAD", target), peer.get(target));
        assert_eq!(head.dateless().head, get.dateless().head, "{target}");
    }
}

/// A body that is not sent must cost no CPU time, whatever its length.
#[test]
fn head_of_the_longest_body_is_answered_at_once() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    for target in ["/bytes/9223372036854775807", "/stream/9223372036854775807"] {
        assert_eq!(peer.ask("HEAD", target).status, 200);
    }
    assert_eq!(peer.get("/plaintext").status, 200);
}

#[test]
fn the_longest_body_does_not_delay_other_connections() {
    let program = Program::serve(&["--loops", "1"]);
    let mut greedy = Peer::connect(&program);
    greedy.send(request("GET", "/bytes/9223372036854775807"));
    assert!(greedy.head().contains("Content-Length: 9223372036854775807\r\n"));
    assert_same(&greedy.take(1_000_000), &letters(1_000_000));
    assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
}

#[test]
fn http_1_1_connections_persist_unless_the_peer_sends_close() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    for _ in 0..100 {
        assert_eq!(peer.get("/plaintext").status, 200);
    }
    for option in ["close", "Close", "keep-alive, close"] {
        let mut peer = Peer::connect(&program);
        let reply = peer.exchange(format!("GET /bytes/70000 HTTP/1.1\r\nHost: a\r\nConnection: {option}\r\n\r\n"));
        assert_eq!((reply.field("connection"), reply.body.len()), (Some("close"), 70_000));
        peer.expect_end();
    }
}

#[test]
fn http_1_0_connections_close_unless_the_peer_sends_keep_alive() {
    let program = Program::serve(&["--loops", "1"]);
    for target in ["/plaintext", "/bytes/100000", "/nothing"] {
        let mut peer = Peer::connect(&program);
        let reply = peer.exchange(format!("GET {target} HTTP/1.0\r\n\r\n"));
        assert_eq!(reply.field("connection"), Some("close"));
        peer.expect_end();
    }
    // HTTP/1.0 has no chunked coding: the end of the connection ends the body.
    let stream = Peer::connect(&program).exchange("GET /stream/100000 HTTP/1.0\r\n\r\n");
    assert_eq!(stream.field("transfer-encoding"), None);
    assert_same(&stream.body, &letters(100_000));

    let mut peer = Peer::connect(&program);
    for _ in 0..3 {
        let reply = peer.exchange("GET /plaintext HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!((reply.field("connection"), reply.text()), (Some("keep-alive"), "Hello, World!"));
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let program = Program::serve(&["--loops", "1"]);
    let mut wire = Vec::new();
    for number in 0..256_usize {
        match number % 7 {
            0 => wire.extend(request("GET", &format!("/bytes/{}", number * 700)).as_bytes()),
            1 => wire.extend(request("GET", "/plaintext").as_bytes()),
            2 => wire.extend(post("/echo", &pattern(number * 10))),
            3 => wire.extend(request("HEAD", "/bytes/100").as_bytes()),
            4 => wire.extend(request("GET", &format!("/stream/{number}")).as_bytes()),
            5 => wire.extend(post_chunked("/echo", &pattern(number * 10), 100)),
            _ => wire.extend(request("GET", "/nothing").as_bytes()),
        }
    }
    // Sent whole, and in pieces that end at any byte.
    for piece in [wire.len(), 1_000, 77] {
        let mut peer = Peer::connect(&program);
        let mut sender = peer.sender();
        let wire = wire.clone();
        let sending = std::thread::spawn(move || wire.chunks(piece).for_each(|piece| sender.send(piece)));
        for number in 0..256 {
            match number % 7 {
                0 => assert_same(&peer.reply().body, &letters(number * 700)),
                1 => assert_eq!(peer.reply().text(), "Hello, World!"),
                2 | 5 => assert_same(&peer.reply().body, &pattern(number * 10)),
                3 => assert_eq!(peer.reply_to("HEAD").field("content-length"), Some("100")),
                4 => assert_same(&peer.reply().body, &letters(number)),
                _ => assert_eq!(peer.reply().status, 404),
            }
        }
        sending.join().unwrap();
        assert_eq!(peer.get("/plaintext").status, 200);
    }
}

#[test]
fn a_query_and_the_order_of_fields_change_nothing() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    let fields = ["Host: localhost", "Accept: */*", "Connection: keep-alive", "X-Long: 0123456789012345678901234567"];
    let mut replies = HashSet::new();
    for target in ["/plaintext", "/plaintext?x", "/plaintext?", "/plaintext?a=b&c=%20", "http://localhost/plaintext"] {
        for first in 0..fields.len() {
            let mut fields = fields;
            fields.rotate_left(first);
            let reply = peer.exchange(format!("GET {target} HTTP/1.1\r\n{}\r\n\r\n", fields.join("\r\n")));
            replies.insert(reply.dateless().head);
        }
    }
    assert_eq!(replies.len(), 1, "{replies:#?}");
    assert_eq!(peer.get("/bytes/12?x=1").text(), "abcdefghijkl");
}

#[test]
fn a_100_response_precedes_the_final_head() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n";
    assert_eq!(peer.exchange(head).status, 100);
    // The interim response must arrive alone: some proxies take a final head that arrives with it for the whole
    // response.
    assert!(peer.receives_nothing(Duration::from_millis(50)));
    assert_eq!(peer.exchange("0123456789").text(), "0123456789");
    assert_eq!(peer.get("/plaintext").status, 200);
}

#[test]
fn a_request_is_decoded_byte_by_byte() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    peer.socket.set_tcp_nodelay(true).unwrap();
    for byte in post_chunked("/echo", b"drop by drop", 5) {
        peer.send([byte]);
    }
    assert_eq!(peer.reply().text(), "drop by drop");
}

#[test]
fn an_abstract_unix_socket_is_served_and_named_and_leaves_no_file() {
    let name = format!("@tidegate-serve-{}", std::process::id());
    let address = format!("unix:{name}");
    let program = Program::at(&address, &["--loops", "2"]);
    assert_eq!(program.line, format!("tidegate: listening on {address} ({}, 2 loops)", backend()));
    assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
    assert!(!std::path::Path::new(&name).exists());
    let second = tidegate(&["serve", "--listen", &address]).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("is in use"), "{second:?}");
}

#[test]
fn takeover_at_an_abstract_name_is_refused_with_the_reason() {
    let output = tidegate(&["serve", "--listen", "127.0.0.1:0", "--takeover", "@tidegate"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.lines().count() == 1 && errors.contains("abstract name"), "{errors}");
}

#[test]
fn a_unix_socket_is_served_and_named() {
    let directory = Directory::new();
    let path = directory.path("http.sock");
    for _ in 0..2 {
        // The second server finds the socket file that the first one left.
        let program = Program::at(&format!("unix:{path}"), &["--loops", "2"]);
        assert_eq!(program.line, format!("tidegate: listening on unix:{path} ({}, 2 loops)", backend()));
        let mut peer = Peer::connect(&program);
        assert_eq!(peer.get("/plaintext").text(), "Hello, World!");
        assert_same(&peer.get("/bytes/1000000").body, &letters(1_000_000));
        let body = pattern(100_000);
        assert_same(&peer.exchange(post("/echo", &body)).body, &body);
        let address = program.address();
        drop((program, peer));
        // The kernel closes the io_uring of a killed process asynchronously, a few milliseconds later.
        until("the listener to be gone", || Peer::try_to(&address, None).is_err());
    }
}

#[test]
fn least_loaded_assigns_connections_to_the_loop_with_the_fewest() {
    let directory = Directory::new();
    let address = format!("unix:{}", directory.path("http.sock"));
    let program = Program::at(&address, &["--loops", "2", "--backend", "epoll", "--least-loaded"]);
    let before = program.polled();
    assert_eq!((before.len(), before[0]), (2, before[1]), "each loop has an epoll of its own");
    let _peers: Vec<_> = (0..8)
        .map(|_| {
            let mut peer = Peer::connect(&program);
            assert_eq!(peer.get("/plaintext").status, 200);
            peer
        })
        .collect();
    assert_eq!(program.polled(), [before[0] + 4; 2]);
}

#[test]
fn ipv6_is_served_and_named() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return println!("skipped: there is no IPv6 here");
    }
    let program = Program::at("[::1]:0", &["--loops", "1"]);
    let address = program.ip();
    assert!(address.is_ipv6() && address.port() != 0);
    assert_eq!(program.line, format!("tidegate: listening on http://{address} ({}, 1 loop)", backend()));
    assert_eq!(Peer::connect(&program).get("/plaintext").text(), "Hello, World!");
}

#[test]
fn localhost_is_an_address() {
    let program = Program::at("localhost:0", &[]);
    assert!(program.ip().ip().is_loopback());
    assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
}

#[test]
fn two_loops_serve_one_address() {
    let program = Program::serve(&["--loops", "2"]);
    let mut peers: Vec<_> = (0..100).map(|_| Peer::connect(&program)).collect();
    for _ in 0..3 {
        for peer in &mut peers {
            peer.send(request("GET", "/bytes/5000"));
        }
        for peer in &mut peers {
            assert_same(&peer.reply().body, &letters(5_000));
        }
    }
}

#[test]
fn concurrent_streams_are_intact() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peers: Vec<_> = (0..50).map(|_| Peer::connect(&program)).collect();
    for peer in &mut peers {
        peer.send(request("GET", "/stream/1000000"));
    }
    let expected = letters(1_000_000);
    // In reverse order: peers that do not read yet must not delay the others.
    for peer in peers.iter_mut().rev() {
        assert_same(&peer.reply().body, &expected);
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
fn assert_date(date: &str) {
    let parts: Vec<_> = date.split(' ').collect();
    let &[day, number, month, year, time, "GMT"] = &parts[..] else { panic!("{date:?} is no date") };
    assert!("Mon, Tue, Wed, Thu, Fri, Sat, Sun,".split(' ').any(|name| name == day), "{date}");
    assert!("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(' ').any(|name| name == month), "{date}");
    assert!(number.len() == 2 && year.len() == 4 && time.len() == 8, "{date}");
}

/// The fields that the server adds to every response.
#[test]
fn a_response_repeats_no_field() {
    let program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    for target in ["/", "/plaintext", "/json", "/bytes/1", "/stream/1", "/nothing"] {
        let reply: Reply = peer.get(target);
        let names: Vec<_> =
            reply.head.lines().skip(1).filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
        let unique: HashSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{}", reply.head);
        assert!(reply.head.starts_with("HTTP/1.1 ") && reply.head.ends_with("\r\n\r\n"));
    }
}

/// Opens a WebSocket on an HTTP/2 stream, sends a frame, and reads until the server has sent `awaited`. Returns all
/// bytes of the server.
fn websocket_over_http2(program: &Program, path: &str, sent: &[u8], awaited: &[u8]) -> Vec<u8> {
    let mut peer = TcpStream::connect(program.ip()).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    // Fields without compression: a length, a name, a length, a value.
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let block: Vec<u8> = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "sea"),
        ("sec-websocket-version", "13"),
    ]
    .into_iter()
    .flat_map(|(name, value)| [vec![0], text(name), text(value)].concat())
    .collect();
    let frame = |kind: u8, flags: u8, content: &[u8]| {
        let stream = u8::from(kind < 2);
        [&[0, 0, content.len() as u8, kind, flags, 0, 0, 0, stream], content].concat()
    };
    let wire = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, &[]), frame(1, 4, &block), frame(0, 0, sent)];
    peer.write_all(&wire.concat()).unwrap();
    let mut received = Vec::new();
    while !received.windows(awaited.len()).any(|bytes| bytes == awaited) {
        let mut bytes = [0; 1024];
        let count = peer.read(&mut bytes).expect("it comes");
        assert!(count > 0, "the connection has ended: {received:?}");
        received.extend_from_slice(&bytes[..count]);
    }
    received
}

/// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441 §3).
const ENABLES_CONNECT: [u8; 6] = [0, 8, 0, 0, 0, 1];

#[test]
fn websockets_open_over_http2_as_over_http1() {
    let program = Program::serve(&["--loops", "1"]);
    let echo = b"\0\0\x05\0\0\0\0\0\x01\x81\x03ebb";
    let received = websocket_over_http2(&program, "/ws", b"\x81\x83\0\0\0\0ebb", echo);
    assert!(received.windows(6).any(|bytes| bytes == ENABLES_CONNECT), "{received:?}");
    let said = b"\"text\":\"ebb\"";
    websocket_over_http2(&program, "/chat/ws?room=reef&name=Ana", b"\x81\x83\0\0\0\0ebb", said);
}

#[test]
fn extended_connect_is_announced_unless_a_flag_says_no() {
    let program = Program::serve(&["--loops", "1", "--no-extended-connect"]);
    let mut peer = TcpStream::connect(program.ip()).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    // A PING behind the preface: all settings come before its answer.
    peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x08\x06\0\0\0\0\0highwate").unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"highwate") {
        let mut bytes = [0; 1024];
        let count = peer.read(&mut bytes).expect("the answer comes");
        assert!(count > 0, "the connection has ended: {received:?}");
        received.extend_from_slice(&bytes[..count]);
    }
    assert!(!received.windows(6).any(|bytes| bytes == ENABLES_CONNECT), "{received:?}");
}

#[test]
fn a_websocket_handshake_of_http10_or_with_a_body_is_refused() {
    let program = Program::serve(&["--loops", "1"]);
    for path in ["/ws", "/chat/ws"] {
        let fields = "Host: sea\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                      Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        for (request, status) in [
            (format!("GET {path} HTTP/1.0\r\n{fields}\r\n"), 426),
            (format!("GET {path} HTTP/1.1\r\n{fields}Content-Length: 1\r\n\r\nx"), 400),
            (format!("GET {path} HTTP/1.1\r\n{fields}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400),
        ] {
            assert_eq!(Peer::connect(&program).exchange(&request).status, status, "{request}");
        }
    }
}
