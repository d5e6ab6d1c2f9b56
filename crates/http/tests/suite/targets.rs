//! Targets as browsers and other user agents send them: functions read them, and a proxy passes them on as they came.

use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{Config, Path, Query, Request, Router};
use tidegate_testkit::Embedded;

use crate::support::http2_peer::Peer as Http2Peer;
use crate::support::proxy_peers::{Upstream, client, proxy_of};
use crate::support::start;

/// Targets that browsers send, or that people write into links.
const ODD: [&str; 12] =
    ["/a|b", "/a^b", "/`", "/{a}", "/100%", "/%zz", "/%4", "/é", "/?q=é|{}^`%", "/\"<a>\\", "/a%|?%%", "//|"];

fn open(config: Config, router: Router) -> Embedded<()> {
    let (codec, handler) = config.connections(router)();
    Embedded::new(codec, handler)
}

fn response(pipe: &mut Embedded<()>, target: &[u8]) -> String {
    pipe.receive(&[b"GET ", target, b" HTTP/1.1\r\nHost: sea\r\n\r\n"].concat());
    String::from_utf8(pipe.take_written()).expect("text")
}

fn echo() -> Router {
    Router::new().fallback(|request: Request| request.target().to_owned())
}

#[test]
fn a_function_sees_a_target_as_it_was_sent() {
    for target in ODD {
        let seen = response(&mut open(Config::new(), echo()), target.as_bytes());
        assert!(seen.starts_with("HTTP/1.1 200 OK\r\n") && seen.ends_with(&format!("\r\n\r\n{target}")), "{seen}");
        let refused = response(&mut open(Config::new().strict_targets(true), echo()), target.as_bytes());
        let is_plain = target == "//|";
        assert!(refused.starts_with("HTTP/1.1 400 ") || is_plain && refused.contains(" 400 "), "{target}: {refused}");
    }
    for target in ["/a b", "/a\tb", "/a#b", "/a\0", "/a\x7f", "/%00"] {
        assert!(response(&mut open(Config::new(), echo()), target.as_bytes()).starts_with("HTTP/1.1 400 "), "{target}");
    }
}

#[test]
fn a_path_that_is_not_utf_8_is_for_no_function() {
    let router = || Router::new().get("/{*path}", |Path(path): Path<String>| path);
    for target in [&b"/\xe9"[..], b"/caf\xe9/x", b"/a%41\xc3?b"] {
        assert!(response(&mut open(Config::new(), router()), target).starts_with("HTTP/1.1 400 "));
        assert!(response(&mut open(Config::new(), echo()), target).starts_with("HTTP/1.1 400 "));
    }
}

#[test]
fn an_invalid_escape_stays_as_it_is() {
    let router = || {
        Router::new()
            .get("/of/{name}", |Path(name): Path<String>| name)
            .get("/query", |Query(pairs): Query<Vec<(String, String)>>| format!("{pairs:?}"))
    };
    for (target, expected) in [
        ("/of/100%", "100%"),
        ("/of/%zz%41", "%zzA"),
        ("/of/é%c3%a9", "éé"),
        ("/query?a=%FF", "[(\"a\", \"\u{fffd}\")]"),
        ("/query?a=100%&b|=%4&é=%zz", r#"[("a", "100%"), ("b|", "%4"), ("é", "%zz")]"#),
    ] {
        let seen = response(&mut open(Config::new(), router()), target.as_bytes());
        assert!(seen.ends_with(&format!("\r\n\r\n{expected}")), "{target}: {seen}");
    }
    let seen = response(&mut open(Config::new(), router()), b"/query?a=\xe9");
    assert!(seen.ends_with("[(\"a\", \"\u{fffd}\")]"), "{seen}");
}

#[test]
fn a_proxy_passes_every_byte_of_a_target_on() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = client(&proxy);
    let mut server = None;
    let not_text = [&b"/\xe9"[..], b"/\xff|?\x80"];
    for target in ODD.iter().map(|target| target.as_bytes()).chain(not_text) {
        client.send([b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
        let server = server.get_or_insert_with(|| upstream.accept());
        let head = server.bytes_until("\r\n\r\n");
        let line = [b"GET ", target, b" HTTP/1.1\r\n"].concat();
        assert!(head.starts_with(&line), "{} became {}", target.escape_ascii(), head.escape_ascii());
        server.send("HTTP/1.1 204 No Content\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 204 "));
    }
}

#[test]
fn a_proxy_passes_targets_on_from_http_2_and_to_it() {
    let upstream = Upstream::new();
    let proxy = proxy_of(&upstream);
    let mut client = Http2Peer::new(proxy.connect());
    let mut server = None;
    for (number, target) in ODD.iter().enumerate() {
        let stream = 2 * number as u32 + 1;
        client.request(stream, "GET", target, &[], true);
        let server = server.get_or_insert_with(|| upstream.accept());
        let head = server.head();
        assert!(head.starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{target} became {head}");
        server.send("HTTP/1.1 204 No Content\r\n\r\n");
        client.read_until(|client| client.is_over(stream));
        assert_eq!(client.stream(stream).status(), "204");
    }
    let above = start(echo);
    let upstreams = Upstreams::new([format!("h2c://{}", above.0.address()).as_str()]).expect("an upstream");
    let proxy = start(move || Router::new().fallback(Proxy::new(&upstreams)));
    for target in ODD {
        assert_eq!(proxy.get(target).1, target);
    }
}
