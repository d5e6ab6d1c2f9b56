//! The messages of fifteen years of request smuggling: each is an error that closes the connection, and each error has
//! its status.

use tidegate_codec::Step;
use tidegate_http1::{Config, Error, Exceeded, Incoming, Limits, Server, Violation};
use tidegate_testkit::CodecHarness;

use crate::support::{seen, seen_with};

fn refused(wire: &str, error: Error, status: u16) {
    let seen = seen(wire.as_bytes());
    assert_eq!(seen.error, Some(error), "{wire:?}: {seen:?}");
    assert!(seen.sent.starts_with(&format!("HTTP/1.1 {status} ")), "{wire:?}: {}", seen.sent);
    assert!(seen.sent.contains("\r\nConnection: close\r\n"), "{wire:?}: {}", seen.sent);
    assert!(seen.requests.is_empty(), "{wire:?}: {seen:?}");
    assert!(seen.finished);
}

fn bad(wire: &str, violation: Violation) {
    refused(wire, Error::Peer(violation), 400);
}

fn bad_header(line: &str, violation: Violation) {
    bad(&format!("POST / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n"), violation);
    bad(&format!("POST / HTTP/1.1\r\n{line}\r\nHost: a\r\n\r\n"), violation);
}

#[test]
fn a_space_around_the_name_of_a_field_is_refused() {
    bad_header("Transfer-Encoding : chunked", Violation::FieldName);
    bad_header("Transfer-Encoding\t: chunked", Violation::FieldName);
    bad("GET / HTTP/1.1\r\n Host: a\r\n\r\n", Violation::FoldedLine);
}

#[test]
fn a_missing_or_empty_name_is_refused() {
    bad_header("Content-Length 5", Violation::FieldName);
    bad_header("chunked", Violation::FieldName);
    bad_header(": 5", Violation::FieldName);
    bad_header("A\u{e4}: 5", Violation::FieldName);
}

#[test]
fn control_characters_in_names_and_values_are_refused() {
    for control in ["\0", "\x01", "\x0b", "\x0c", "\x1f", "\x7f"] {
        bad_header(&format!("A{control}: 5"), Violation::FieldName);
        bad_header(&format!("A: 5{control}"), Violation::FieldValue);
    }
}

#[test]
fn bare_line_feeds_are_refused_wherever_they_are() {
    bad("GET / HTTP/1.1\nHost: a\n\n", Violation::BareLf);
    bad("GET / HTTP/1.1\r\nHost: a\nContent-Length: 5\r\n\r\n", Violation::BareLf);
    bad("GET / HTTP/1.1\r\nHost: a\r\n\n", Violation::BareLf);
    bad("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Violation::BareLf);
}

#[test]
fn bare_carriage_returns_are_refused_wherever_they_are() {
    bad("GET / HTTP/1.1\r\nHost: a\rContent-Length: 5\r\n\r\n", Violation::FieldValue);
    bad("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", Violation::FieldValue);
    bad("GET / HTTP/1.1\r\nHost: a\r\n\rX: y\r\n\r\n", Violation::FieldName);
    bad("GET / HTTP/1.1\rHost: a\r\n\r\n", Violation::RequestLine);
    bad("GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", Violation::RequestLine);
}

#[test]
fn folded_lines_are_refused() {
    bad_header("A: b\r\n c", Violation::FoldedLine);
    bad_header("A: b\r\n\tc", Violation::FoldedLine);
    bad_header("X-Empty:\r\n chunked", Violation::FoldedLine);
}

#[test]
fn request_lines_are_three_words_with_single_spaces() {
    for line in ["GET  / HTTP/1.1", "GET /  HTTP/1.1", "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET /", "GET / HTTP/11"] {
        let seen = seen(format!("{line}\r\nHost: a\r\n\r\n").as_bytes());
        assert!(
            matches!(seen.error, Some(Error::Peer(Violation::RequestLine | Violation::Target))),
            "{line}: {seen:?}"
        );
    }
    bad("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", Violation::RequestLine);
    bad("GET / http/1.1\r\nHost: a\r\n\r\n", Violation::RequestLine);
    bad("G@T / HTTP/1.1\r\nHost: a\r\n\r\n", Violation::RequestLine);
}

#[test]
fn targets_have_one_of_four_forms() {
    for target in ["a", "*", "/\u{e4}#a", "/#a", "://a/", "1http://a/", "http://", "http://a b/", "http://a@b/"] {
        let seen = seen(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        assert!(matches!(seen.error, Some(Error::Peer(Violation::Target | Violation::RequestLine))), "{target}");
    }
    bad("CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n".replace("/a", "a").as_str(), Violation::Target);
}

const ODD_ESCAPES: [&str; 9] = ["%", "%4", "%4g", "%g4", "%%41", "%u0041", "%-1", "%+1", "%41%"];
const NOT_IN_URIS: [&[u8]; 13] =
    [b"\\", b"<", b">", b"\"", b"{", b"|", b"}", b"^", b"`", "\u{e4}".as_bytes(), b"\xe4", b"\x80", b"\xff"];

/// Targets with a text in every place that it may have.
fn targets_with(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let before = ["/", "/a/%41", "/?", "/%41?a=%41", "http://a/", "http://a?"];
    let behind = ["", "/b", "?b=%41"];
    before.into_iter().flat_map(move |before| {
        let text = text.to_vec();
        behind.into_iter().map(move |behind| [before.as_bytes(), &text, behind.as_bytes()].concat())
    })
}

fn get(target: &[u8]) -> Vec<u8> {
    [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat()
}

/// Two readers may read them as different characters: one decodes, repairs or truncates them, the other does not (RFC
/// 3986 §2).
#[test]
fn strict_targets_have_the_characters_of_a_uri_and_whole_escapes() {
    for text in ODD_ESCAPES.iter().map(|text| text.as_bytes()).chain(NOT_IN_URIS) {
        for target in targets_with(text) {
            let seen = seen_with(Config::default().strict_targets(true), &get(&target));
            assert_eq!(seen.error, Some(Error::Peer(Violation::Target)), "{}", target.escape_ascii());
            assert!(seen.sent.starts_with("HTTP/1.1 400 "));
        }
    }
}

/// As browsers and other user agents send them: nothing of it ends the target.
#[test]
fn targets_may_have_any_byte_that_does_not_end_them() {
    for text in ODD_ESCAPES.iter().map(|text| text.as_bytes()).chain(NOT_IN_URIS) {
        for target in targets_with(text) {
            let mut harness = CodecHarness::new(Server::default());
            harness.receive(&get(&target));
            let step = harness.step();
            let Ok(Step::Message(Incoming::Head(head))) = step else { panic!("{}: {step:?}", target.escape_ascii()) };
            assert_eq!(head.target_bytes(), target, "{}", target.escape_ascii());
            assert!(head.has_irregular_target() && matches!(harness.step(), Ok(Step::NeedMore)));
            assert!(head.path_bytes().starts_with(b"/"));
            assert!(target.ends_with(head.query_bytes().unwrap_or_else(|| head.path_bytes())) || target == b"http://a");
            assert!(head.target().len() == target.len() || std::str::from_utf8(&target).is_err());
        }
    }
}

#[test]
fn no_target_has_a_control_character_a_space_or_a_fragment() {
    for byte in (0..=b' ').chain([b'#', 0x7f]) {
        for target in targets_with(&[b'|', byte]) {
            let seen = seen(&get(&target));
            let is_refused = matches!(
                seen.error,
                Some(Error::Peer(
                    Violation::Target | Violation::RequestLine | Violation::BareLf | Violation::FieldName
                ))
            );
            assert!(is_refused && seen.requests.is_empty(), "{}: {seen:?}", target.escape_ascii());
        }
    }
}

#[test]
fn a_target_that_is_not_text_is_shown_up_to_its_first_byte_that_is_not() {
    let seen = seen(&get(b"/a\xe4b?c"));
    assert_eq!((seen.error, &*seen.requests[0].target), (None, "/a"));
}

/// It ends a file name (RFC 3986 §7.3). Queries hold binary data: a BitTorrent client sends a hash in one.
#[test]
fn an_escaped_nul_is_refused_in_a_path_and_not_in_a_query() {
    for target in ["/%00", "/a%00b", "/a.txt%00?b", "/%41%00", "/%00?%00", "http://a/%00", "http://a%00/"] {
        bad(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), Violation::Target);
    }
    let seen = seen(b"GET /announce?info_hash=%124Vx%9A%00%00 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(seen.error, None);
}

#[test]
fn connect_asks_for_an_authority_with_a_port() {
    for target in ["a", "/", "/a:80", "http://a:80/", "a:b", ":", "a:", ":80", "a:0", "a:65536", "a:1:2"] {
        bad(&format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n"), Violation::Target);
    }
    for target in ["a:80", "[::1]:443"] {
        let seen = seen(format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!(seen.error, None, "{target}");
    }
}

#[test]
fn trailers_are_yielded_and_those_that_belong_before_the_body_refused() {
    let chunked = |trailer: &str| {
        format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n{trailer}\r\n")
    };
    let seen = seen(chunked("Digest: 7\r\nx:\r\n").as_bytes());
    let expected = [("Digest".to_owned(), "7".to_owned()), ("x".to_owned(), String::new())];
    assert_eq!((seen.error, &seen.requests[0].trailers[..]), (None, &expected[..]));
    for name in
        ["Content-Length", "transfer-encoding", "Host", "Connection", "Authorization", "COOKIE", "Trailer", "Range"]
    {
        bad(&chunked(&format!("A: b\r\n{name}: 1\r\n")), Violation::TrailerForbidden);
    }
}

#[test]
fn other_versions_are_505() {
    for version in ["HTTP/2.0", "HTTP/0.9", "HTTP/2.1", "HTTP/3.0"] {
        refused(&format!("GET / {version}\r\nHost: a\r\n\r\n"), Error::Peer(Violation::Version), 505);
    }
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Error::Peer(Violation::Version), 505);
}

#[test]
fn http_1_1_has_one_host() {
    bad("GET / HTTP/1.1\r\n\r\n", Violation::HostMissing);
    bad("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Violation::HostRepeated);
    bad("GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", Violation::HostRepeated);
    for host in ["a b", "a,b", "a/b", "a@b", "a:b", "a:1:2", "[::1", "a]", "[::1]x", "h\u{e4}"] {
        bad(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), Violation::HostInvalid);
    }
    for host in ["", "a", "a:", "a.example:8080", "127.0.0.1:80", "[::1]", "[::1]:80", "a_b", "%41"] {
        for field in [format!("Host:{host} "), format!("Host: {host}")] {
            let seen = seen(format!("GET / HTTP/1.1\r\n{field}\r\n\r\n").as_bytes());
            assert_eq!(seen.requests.len(), 1, "{field}: {seen:?}");
        }
    }
}

#[test]
fn content_length_is_one_plain_number() {
    for value in ["+5", "-5", "0x5", "5, 5", "5,5", "5 5", "", "5a", "5;", "\u{b2}", "18446744073709551617"] {
        bad_header(&format!("Content-Length: {value}"), Violation::ContentLengthInvalid);
    }
    bad_header("Content-Length: 5\r\nContent-Length: 6", Violation::ContentLengthRepeated);
    bad_header("Content-Length: 5\r\ncontent-length: 5", Violation::ContentLengthRepeated);
}

#[test]
fn length_and_encoding_together_are_refused() {
    bad_header("Content-Length: 5\r\nTransfer-Encoding: chunked", Violation::LengthAndEncoding);
    bad_header("Transfer-Encoding: chunked\r\nContent-Length: 5", Violation::LengthAndEncoding);
    bad_header("Transfer-Encoding: chunked\r\nContent-Length: 0", Violation::LengthAndEncoding);
}

#[test]
fn the_only_transfer_coding_is_chunked_and_it_comes_last_and_once() {
    let unknown = ["identity", "xchunked", "chunke", "chunked;a=b", "\"chunked\"", "chun ked"];
    for value in ["chunked, gzip", "chunked, chunked", "chunked,identity"].into_iter().chain(unknown) {
        bad_header(&format!("Transfer-Encoding: {value}"), Violation::ChunkedNotLast);
    }
    for value in ["", "chunked,", ",chunked"] {
        bad_header(&format!("Transfer-Encoding: {value}"), Violation::TransferEncoding);
    }
    bad_header("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Violation::TransferEncoding);
    let wire = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n";
    refused(wire, Error::Peer(Violation::CodingUnknown), 501);
    bad("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Violation::TransferEncoding);
    bad("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", Violation::FieldValue);
}

#[test]
fn chunk_sizes_are_plain_hexadecimal_numbers() {
    for size in ["+5", "-5", "0x5", " 5", "5 ", "5\t;a", "", "g", "5,", "00000000000000005", "5;\0", "5;a\rb"] {
        let wire =
            format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\nhello\r\n0\r\n\r\n");
        bad(&wire, Violation::ChunkSize);
    }
    let chunked = |rest: &str| format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{rest}");
    bad(&chunked("5\nhello\r\n0\r\n\r\n"), Violation::BareLf);
    bad(&chunked("5;a=\"\n\"\r\nhello\r\n0\r\n\r\n"), Violation::BareLf);
    bad(&chunked("5\r\nhello0\r\n\r\n"), Violation::ChunkEnd);
    bad(&chunked("5\r\nhello\n0\r\n\r\n"), Violation::ChunkEnd);
    bad(&chunked("0\r\n a: b\r\n\r\n"), Violation::Trailer);
    bad(&chunked("0\r\na : b\r\n\r\n"), Violation::Trailer);
    bad(&chunked("0\r\na: b\n\r\n"), Violation::BareLf);
    refused(&chunked("ffffffffffffffff\r\n"), Error::Limit(Exceeded::Body), 413);
}

#[test]
fn chunk_extensions_are_names_with_tokens_or_quoted_texts() {
    let chunked = |extension: &str| {
        format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1{extension}\r\nX\r\n0\r\n\r\n")
    };
    for extension in ["", ";a", ";a=b", ";a=\"b;c\\\"\";d", ";a=\"\""] {
        assert_eq!(seen(chunked(extension).as_bytes()).requests[0].body, "X", "{extension}");
    }
    // The quotation mark does not hide the end of the line.
    for extension in [";", ";;a", ";a=", ";a=\"", ";a=\"\\\"", ";=b", ";a=\"b\"c", ";a b", "; a", " ;a"] {
        bad(&chunked(extension), Violation::ChunkSize);
    }
}

#[test]
fn limits_have_their_statuses() {
    let get = |target: usize, value: usize| {
        format!("GET /{} HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(target), "b".repeat(value))
    };
    refused(&get(9_000, 0), Error::Limit(Exceeded::RequestLine), 414);
    refused(&get(9_000, 9_000), Error::Limit(Exceeded::RequestLine), 414);
    refused(&get(20_000, 0), Error::Limit(Exceeded::RequestLine), 414);
    refused(&get(0, 17_000), Error::Limit(Exceeded::Head), 431);
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(100));
    refused(&many, Error::Limit(Exceeded::Headers), 431);
    let long = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n";
    refused(long, Error::Limit(Exceeded::Body), 413);
    refused("POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", Error::Peer(Violation::ExpectationUnknown), 417);
}

/// RFC 9112 §3: 501 for a method that is longer than any that the server implements, 414 for a target that is too long.
#[test]
fn a_request_line_that_is_too_long_is_blamed_on_its_method_or_its_target() {
    let line = |method: usize, target: usize| format!("{} /{} HTTP/1.1\r\n", "M".repeat(method), "a".repeat(target));
    for (method, target, error, status) in [
        (32, 9_000, Exceeded::RequestLine, 414),
        (33, 9_000, Exceeded::Method, 501),
        (8_000, 300, Exceeded::Method, 501),
        (8_192, 0, Exceeded::Method, 501),
        (9_000, 0, Exceeded::Method, 501),
        (20_000, 20_000, Exceeded::Method, 501),
    ] {
        refused(&format!("{}Host: a\r\n\r\n", line(method, target)), Error::Limit(error), status);
    }
    refused(&"M".repeat(20_000), Error::Limit(Exceeded::Method), 501);
    assert_eq!(seen(format!("{}Host: a\r\n\r\n", line(8_000, 100)).as_bytes()).error, None, "the line is not too long");
    let short = || Config::new(Limits { request_line_bytes_max: 20, ..Limits::default() });
    for (wire, error) in [
        ("MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM", Exceeded::Method),
        ("MMMMMMMMMMMMMMMMMMMM / HTTP/1.1\r\nHost: a\r\n\r\n", Exceeded::RequestLine),
        ("MMMMMMMMMMMMMMMMMMMMM / HTTP/1.1\r\nHost: a\r\n\r\n", Exceeded::Method),
    ] {
        assert_eq!(seen_with(short(), wire.as_bytes()).error, Some(Error::Limit(error)), "{wire}");
    }
}

#[test]
fn requests_at_the_limits_are_accepted() {
    let wire = b"GET /234567 HTTP/1.1\r\nHost: 34567\r\nA:\r\n\r\n";
    assert_eq!(wire.len(), 41);
    let limits = |line: u32, head: u32, headers: u32| {
        let limits =
            Limits { request_line_bytes_max: line, head_bytes_max: head, headers_max: headers, ..Limits::default() };
        Config::new(Limits { chunk_extension_bytes_max: 8, ..limits })
    };
    let fitting = seen_with(limits(20, 41, 2), wire);
    assert_eq!(fitting.requests.len(), 1, "{fitting:?}");
    assert_eq!(seen_with(limits(20, 40, 2), wire).error, Some(Error::Limit(Exceeded::Head)));
    assert_eq!(seen_with(limits(19, 41, 2), wire).error, Some(Error::Limit(Exceeded::RequestLine)));
    assert_eq!(seen_with(limits(20, 41, 1), wire).error, Some(Error::Limit(Exceeded::Headers)));
}

#[test]
fn a_length_is_required_only_where_the_server_is_configured_so() {
    let wire = b"POST / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(seen(wire).requests.len(), 1);
    let strict = seen_with(Config::default().length_required(true), wire);
    assert_eq!(strict.error, Some(Error::Peer(Violation::LengthRequired)));
    assert!(strict.sent.starts_with("HTTP/1.1 411 "), "{}", strict.sent);
}

#[test]
fn a_tabulator_hides_nothing_in_a_host() {
    bad("GET / HTTP/1.1\r\nHost: a\tevil@b/c d,e\r\n\r\n", Violation::HostInvalid);
    bad("GET / HTTP/1.1\r\nHost: a\tb\r\n\r\n", Violation::HostInvalid);
}

#[test]
fn a_connect_has_no_body() {
    for field in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        bad(&format!("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n{field}\r\n\r\nhello"), Violation::ConnectBody);
    }
    let seen = seen(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(seen.error, None);
}

#[test]
fn bytes_behind_a_refused_udp_tunnel_are_no_request() {
    for upgrade in ["connect-udp", "tide, Connect-UDP"] {
        let wire = format!(
            "GET /udp HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n\r\nGET /payload HTTP/1.1\r\nHost: a\r\n\r\n"
        );
        let seen = seen(wire.as_bytes());
        assert_eq!((seen.requests.len(), seen.finished), (1, true), "{upgrade}: {seen:?}");
        assert!(seen.sent.contains("\r\nConnection: close\r\n"), "{upgrade}: {}", seen.sent);
    }
    let other =
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: tide\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(seen(other.as_bytes()).requests.len(), 2);
}
