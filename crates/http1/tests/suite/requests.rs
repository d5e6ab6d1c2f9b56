//! The head of a request, RFC 9112 §2 to §5: how it is read, and which bytes are never part of it.

use tidegate_codec::Step;
use tidegate_http1::{Error, Incoming, RequestHead, Version, Violation};

use crate::support::{Seen, Talk, seen};

fn refused(wire: &[u8], violation: Violation) {
    let seen = seen(wire);
    assert_eq!(seen.error, Some(Error::Peer(violation)), "{}: {seen:?}", wire.escape_ascii());
    assert!(seen.sent.starts_with("HTTP/1.1 400 "), "{}: {}", wire.escape_ascii(), seen.sent);
    assert!(seen.finished && seen.requests.is_empty(), "{}: {seen:?}", wire.escape_ascii());
}

fn accepted(wire: &[u8]) -> Seen {
    let seen = seen(wire);
    assert_eq!((seen.error, seen.requests.len()), (None, 1), "{}: {seen:?}", wire.escape_ascii());
    seen
}

fn head(wire: &str) -> RequestHead {
    let mut talk = Talk::new();
    talk.harness.receive(wire.as_bytes());
    match talk.harness.step() {
        Ok(Step::Message(Incoming::Head(head))) => head,
        other => panic!("{wire:?}: {other:?}"),
    }
}

/// Decoded as text in some encoding, each of these has a line end, a colon or white space.
const DISGUISED: &[&[u8]] = &[
    b"\xc4\x8a",     // U+010A, whose low byte is LF
    b"\xe0\xa0\x8d", // a byte that is CR but for its high bit
    b"\xc0\x8a",     // LF, overlong in UTF-8
    b"\xef\xbc\x9a", // a fullwidth colon
    b"\xc2\x85",     // next line
    b"\xe2\x80\xa8", // line separator
    b"\xa0",         // a space that does not break, in Latin-1
];

#[test]
fn octets_beyond_ascii_are_data_and_never_syntax() {
    for octets in DISGUISED {
        let wire = [b"GET / HTTP/1.1\r\nHost: a\r\nX: ", *octets, b"Y: z", *octets, b"\r\n\r\n"].concat();
        let head = &accepted(&wire).requests[0];
        let value = String::from_utf8_lossy(&[octets, &b"Y: z"[..], octets].concat()).into_owned();
        assert_eq!(head.headers[1..], [("X".to_owned(), value)], "{}", octets.escape_ascii());

        refused(&[b"GET / HTTP/1.1\r\nHost: a\r\nX", *octets, b": y\r\n\r\n"].concat(), Violation::FieldName);
        refused(&[b"GET / HTTP/1.1\r\nHost: a", *octets, b"\r\n\r\n"].concat(), Violation::HostInvalid);
        // A target with them is passed on as it came; `smuggling.rs` has more of them.
        let head = &accepted(&[b"GET /", *octets, b"Y HTTP/1.1\r\nHost: a\r\n\r\n"].concat()).requests[0];
        let is_text = std::str::from_utf8(octets).is_ok();
        assert!(head.target.starts_with('/') && head.target.ends_with(if is_text { "Y" } else { "/" }));
        assert_eq!(head.headers.len(), 1);
        refused(&[b"GE", *octets, b"T / HTTP/1.1\r\nHost: a\r\n\r\n"].concat(), Violation::RequestLine);
        let length = [b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5", *octets, b"\r\n\r\n"].concat();
        refused(&length, Violation::ContentLengthInvalid);
    }
}

#[test]
fn no_request_is_yielded_before_the_last_byte_of_its_head() {
    let wire = b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";
    for cut in 0..wire.len() {
        let mut talk = Talk::new();
        assert_eq!(talk.receive(&wire[..cut]), Ok(vec![]), "{cut}");
        assert_eq!(talk.receive(&wire[cut..]), Ok(vec!["GET /".into()]), "{cut}");
    }
}

#[test]
fn white_space_between_the_request_line_and_the_first_field_is_refused() {
    for line in [" Host: a\r\n", "\tHost: a\r\n", " \r\n", "\t\r\n", " X: y\r\n Z: 1\r\n", " : \r\n"] {
        let wire = format!("GET / HTTP/1.1\r\n{line}Host: a\r\n\r\n");
        refused(wire.as_bytes(), Violation::FoldedLine);
    }
}

#[test]
fn an_invalid_or_repeated_host_is_refused_in_http_1_0_too() {
    refused(b"GET / HTTP/1.0\r\nHost: a b\r\n\r\n", Violation::HostInvalid);
    refused(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", Violation::HostRepeated);
    accepted(b"GET / HTTP/1.0\r\n\r\n");
}

#[test]
fn absolute_targets_are_accepted_with_every_method_and_in_both_versions() {
    let cases = [
        ("http://b.example/x?y", "/x", Some("y"), "b.example"),
        ("HTTP://b.example:8080", "/", None, "b.example:8080"),
        ("https://[::1]:443/", "/", None, "[::1]:443"),
        ("http://b.example?y", "/", Some("y"), "b.example"),
        ("coap+tcp://b.example/://c/", "/://c/", None, "b.example"),
    ];
    for (target, path, query, host) in cases {
        for method in ["GET", "HEAD", "POST", "OPTIONS", "PURGE"] {
            for version in ["HTTP/1.1", "HTTP/1.0"] {
                let head = head(&format!("{method} {target} {version}\r\nHost: a\r\n\r\n"));
                let found = (head.target(), head.path(), head.query(), head.host());
                assert_eq!(found, (target, path, query, host), "{method} {version}");
            }
        }
    }
}

/// Browsers send brackets unescaped, which RFC 3986 has in authorities only.
#[test]
fn escaped_octets_and_brackets_stay_in_a_target_as_they_were_sent() {
    let cases = [
        ("/%7Etide/a%2fb", "/%7Etide/a%2fb", None),
        ("/a?b=%20c%3F?d", "/a", Some("b=%20c%3F?d")),
        ("/%41?%42", "/%41", Some("%42")),
        ("/[a]?b[]=1&c[0]=2", "/[a]", Some("b[]=1&c[0]=2")),
        ("/-._~!$&'()*+,;=:@?/?-._~!$&'()*+,;=:@", "/-._~!$&'()*+,;=:@", Some("/?-._~!$&'()*+,;=:@")),
        ("http://b.example/%41?%42", "/%41", Some("%42")),
    ];
    for (target, path, query) in cases {
        let head = head(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!((head.target(), head.path(), head.query()), (target, path, query));
    }
}

/// An `http` URI has a host that is not empty (RFC 9110 §4.2.1). Without `//` it may as well be a host and a port.
#[test]
fn an_absolute_target_that_names_no_host_is_refused() {
    for target in ["http://", "http:///x", "http://:80/", "http://?x", "https://:443", "http:/x", "urn:a:b", "a:80"] {
        refused(format!("GET {target} HTTP/1.1\r\nHost:\r\n\r\n").as_bytes(), Violation::Target);
    }
}

#[test]
fn the_host_of_an_absolute_target_counts_and_not_the_field() {
    for field in ["Host: evil.example", "Host: evil.example:80", "Host:", "host: evil.example"] {
        let head = head(&format!("GET http://good.example/ HTTP/1.1\r\n{field}\r\n\r\n"));
        assert_eq!(head.host(), "good.example", "{field}");
    }
    let head = head("GET /http://evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n");
    assert_eq!((head.host(), head.path()), ("good.example", "/http://evil.example/"));
}

#[test]
fn a_tunnel_and_the_server_itself_are_targets_of_their_own_methods() {
    let connect = head("CONNECT b.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!((connect.target(), connect.host()), ("b.example:443", "b.example:443"));
    let options = head("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((options.target(), options.path(), options.host()), ("*", "*", "a"));
    refused(b"GET b.example:443 HTTP/1.1\r\nHost: a\r\n\r\n", Violation::Target);
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "TRACE", "PATCH", "PURGE", "PRI", "options"] {
        refused(format!("{method} * HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), Violation::Target);
    }
    refused(b"CONNECT http://b.example/ HTTP/1.1\r\nHost: a\r\n\r\n", Violation::Target);
}

/// RFC 9110 §2.5.
#[test]
fn a_higher_minor_version_is_read_as_http_1_1() {
    for version in ["HTTP/1.2", "HTTP/1.3", "HTTP/1.9"] {
        for target in ["/", "/a?b", "/%41?%42", "http://a/"] {
            let head = head(&format!("GET {target} {version}\r\nHost: a\r\nX: y\r\n\r\n"));
            assert_eq!(
                (head.version(), head.target(), head.keeps_alive()),
                (Version::Http11, target, true),
                "{version}"
            );
            assert_eq!(head.header("x"), Some(&b"y"[..]), "{version}");
        }
        let chunked = format!("POST / {version}\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nebb\r\n0\r\n\r\n");
        let seen = accepted(chunked.as_bytes());
        assert_eq!(seen.requests[0].body, "ebb");
        assert!(seen.sent.starts_with("HTTP/1.1 200 "), "{}", seen.sent);
        refused(format!("GET / {version}\r\n\r\n").as_bytes(), Violation::HostMissing);
        refused(format!("GET a {version}\r\nHost: a\r\n\r\n").as_bytes(), Violation::Target);
    }
    for version in ["HTTP/1.", "HTTP/1.10", "HTTP/1.1a", "HTTP/1.a", "HTTP/01.1", "HTTP/1,1", "HTTP/1.2 "] {
        refused(format!("GET / {version}\r\nHost: a\r\n\r\n").as_bytes(), Violation::RequestLine);
    }
}

#[test]
fn methods_and_versions_are_case_sensitive_and_field_names_are_not() {
    assert_eq!(head("get / HTTP/1.1\r\nhOST: a\r\n\r\n").method(), tidegate_http1::Method::Extension);
    refused(b"GET / Http/1.1\r\nHost: a\r\n\r\n", Violation::RequestLine);
    assert_eq!(head("GET / HTTP/1.1\r\nhOST: a\r\n\r\n").host(), "a");
}

/// A field of each length of name and value is found, whatever lies around it: the search goes by words.
#[test]
fn fields_of_all_lengths_are_read() {
    let long = "a-name-that-is-longer-than-a-word-of-a-processor";
    let value = ":: value;q=0.9, \u{ef}\u{2028}  with spaces, tabs\t and more than three words of eight bytes :";
    let ends: Vec<usize> = value.char_indices().map(|(at, _)| at).chain([value.len()]).collect();
    for name in (1..long.len()).map(|length| long[..length].trim_end_matches('-')) {
        for value in ends.iter().map(|end| value[..*end].trim()) {
            let head = head(&format!("GET / HTTP/1.1\r\nHost: a\r\n{name}: \t{value} \r\nz:\r\n\r\n"));
            let fields: Vec<_> = head.headers().collect();
            let expected = [("Host", "a"), (name, value), ("z", "")].map(|(n, v)| (n.as_bytes(), v.as_bytes()));
            assert_eq!(fields, expected, "{name}: {value}");
        }
    }
}

#[test]
fn a_head_begins_with_its_path_unless_the_target_has_an_authority() {
    for (line, start) in [
        ("GET /ebb?flow=1 HTTP/1.1", Some("GET /ebb")),
        ("PURGE / HTTP/1.1", Some("PURGE /")),
        ("GET http://sea/ebb HTTP/1.1", None),
        ("OPTIONS * HTTP/1.1", None),
        ("CONNECT sea:80 HTTP/1.1", None),
    ] {
        let head = head(&format!("{line}\r\nHost: {}\r\n\r\n", if line.contains(":80") { "sea:80" } else { "sea" }));
        assert_eq!(head.start_with_path(), start.map(str::as_bytes), "{line}");
    }
}
