//! The settings of a route with upstreams: values in fields, rewrites, sticky sessions, limits, pages, compression.

use std::io::Read;

use tidegate::ConnectionRate;
use tidegate::compress::{Algorithm, Compression, Compressor};
use tidegate::http::proxy::{
    Edit, Forwarding, Mirror, Proxy, RateLimit, Rewrite, StickyCookie, UpstreamLimits, Upstreams,
};
use tidegate::http::{
    ConcurrencyLimit, ErrorPage, ErrorPages, RateKey, Reload, RequestDecompression, ResponseCompression, Router,
    Server, StatusCode, Template, with_middleware,
};
use tidegate::proxy_protocol::Networks;

use crate::support::proxy_peers::{Peer, Upstream, accept_any, client, upstreams};
use crate::support::{Running, start};

/// A server whose every path is passed on with some settings.
fn proxied(upstream: &Upstream, set: impl Fn(Proxy) -> Proxy + Send + Sync + 'static) -> Running {
    let upstreams = upstreams(&[upstream]);
    start(move || Router::new().fallback(set(Proxy::new(&upstreams).via("gate"))))
}

fn template(text: &str) -> Template {
    Template::parse(text).unwrap()
}

fn get(target: &str, lines: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: sea\r\n{lines}\r\n")
}

/// The next chunk of a body.
fn chunk(peer: &mut Peer) -> Vec<u8> {
    let size = peer.until("\r\n");
    let length = usize::from_str_radix(size.trim_end(), 16).unwrap();
    let mut chunk = vec![0; length + 2];
    peer.0.read_exact(&mut chunk).unwrap();
    chunk.truncate(length);
    chunk
}

/// The body that a head announces.
fn body_of(peer: &mut Peer, head: &str) -> Vec<u8> {
    if let Some(length) = head.split("\r\nContent-Length: ").nth(1).and_then(|rest| rest.lines().next()) {
        let mut body = vec![0; length.parse().unwrap()];
        peer.0.read_exact(&mut body).unwrap();
        return body;
    }
    let mut body = Vec::new();
    loop {
        let chunk = chunk(peer);
        if chunk.is_empty() {
            return body;
        }
        body.extend_from_slice(&chunk);
    }
}

const GZIP_HEADER_BYTES: usize = 10;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn fields_have_values_of_the_request_and_of_the_response() {
    let upstream = Upstream::new();
    let address = upstream.url().replace("http://", "");
    let server = proxied(&upstream, |proxy| {
        proxy
            .edit_request(Edit::set("X-Real", template("{client.ip} {request.header.X-A}")).unwrap())
            .edit_request(Edit::set("X-None", template("{request.cookie.none}")).unwrap())
            .edit_request(Edit::set("X-Braces", "{client.ip}").unwrap())
            .edit_response(
                Edit::set("X-From", template("{upstream.address} {response.status} {request.path}")).unwrap(),
            )
    });
    let mut client = client(&server);
    client.send(get("/a", "X-A: 1\r\nX-Real: forged\r\nx_real: forged\r\nX-None: 2\r\n"));
    let mut peer = upstream.accept();
    let head = peer.head();
    assert!(head.contains("\r\nX-Real: 127.0.0.1 1\r\n") && head.contains("\r\nX-Braces: {client.ip}\r\n"), "{head}");
    assert!(!head.contains("forged") && !head.contains("X-None"), "{head}");
    peer.send("HTTP/1.1 404 Not Found\r\nX-From: forged\r\nContent-Length: 0\r\n\r\n");
    let head = client.head();
    assert!(head.contains(&format!("\r\nX-From: {address} 404 /a\r\n")) && !head.contains("forged"), "{head}");
}

#[test]
fn a_path_is_rewritten_and_the_query_stays() {
    let upstream = Upstream::new();
    let server = proxied(&upstream, |proxy| {
        proxy
            .strip_prefix("/shop")
            .rewrite(Rewrite::pattern("^/item/([0-9]+)$", "/items?id=$1").unwrap())
            .rewrite(Rewrite::pattern("^/dots/(.*)", "/./$1").unwrap())
            .rewrite(Rewrite::add_prefix("/v2").unwrap())
    });
    let mut client = client(&server);
    let mut peer = None::<Peer>;
    for (sent, expected) in [
        ("/shop/item/7?x=1", "/v2/items?id=7&x=1"),
        ("/%73hop/%69tem/7", "/v2/items?id=7"),
        ("/shop/a%20b?c", "/v2/a%20b?c"),
        ("http://sea/shop?c", "/v2/?c"),
        ("/shop//evil", "/v2//evil"),
    ] {
        client.send(get(sent, ""));
        let peer = peer.get_or_insert_with(|| upstream.accept());
        let head = peer.head();
        assert!(head.starts_with(&format!("GET {expected} HTTP/1.1\r\n")), "{sent}: {head}");
        peer.send(OK);
        client.head();
        client.until("ok");
    }
    client.send(get("/shop/dots/a", ""));
    assert!(client.head().starts_with("HTTP/1.1 400 "));
}

#[test]
fn a_client_stays_with_its_upstream_until_that_is_gone() {
    let both = [Upstream::new(), Upstream::new()];
    let upstreams = upstreams(&[&both[0], &both[1]]);
    let server = start(move || {
        let cookie = StickyCookie::new("to").unwrap().secret("s");
        Router::new().fallback(Proxy::new(&upstreams).sticky(cookie))
    });
    let exchange = |both: &[&Upstream], lines: &str| {
        let mut client = client(&server);
        client.send(get("/", &format!("Connection: close\r\n{lines}")));
        let (place, mut peer) = accept_any(both);
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        let head = client.head();
        let cookie = head.split("Set-Cookie: ").nth(1).and_then(|rest| rest.split(';').next()).map(str::to_owned);
        (place, cookie)
    };
    let all = [&both[0], &both[1]];
    let (first, cookie) = exchange(&all, "");
    let cookie = cookie.expect("a new client gets one");
    for _ in 0..4 {
        assert_eq!(exchange(&all, &format!("Cookie: a=b; {cookie}\r\n")), (first, None));
    }
    let (second, other) = exchange(&all, "Cookie: to=0123456789abcdef\r\n");
    assert!(other.is_some(), "an invented one is replaced");
    let (third, _) = exchange(&all, "");
    assert_ne!(second, third, "new clients take turns");
    // The upstream is gone: another one answers, with its cookie.
    let mut both = both.map(Some);
    drop(both[first].take());
    let left = both.iter().flatten().next().expect("the other one");
    let (_, moved) = exchange(&[left], &format!("Cookie: {cookie}\r\n"));
    let moved = moved.expect("the client gets the cookie of the other one");
    assert_ne!(moved, cookie);
    assert_eq!(exchange(&[left], &format!("Cookie: {moved}\r\n")).1, None);
}

#[test]
fn a_body_has_the_limit_of_its_route() {
    let upstream = Upstream::new();
    let server = proxied(&upstream, |proxy| proxy.request_body_bytes_max(4));
    let mut known = client(&server);
    known.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    assert!(known.head().starts_with("HTTP/1.1 413 "));
    let mut chunked = client(&server);
    chunked.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n");
    let mut peer = upstream.accept();
    peer.head();
    assert_eq!(peer.until("abcd\r\n"), "4\r\nabcd\r\n");
    chunked.send("1\r\ne\r\n");
    assert!(chunked.head().starts_with("HTTP/1.1 413 "));
    assert!(!String::from_utf8_lossy(&peer.rest().0).contains('e'));
    let mut fits = client(&server);
    fits.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcd");
    let mut peer = upstream.accept();
    peer.until("abcd");
    peer.send(OK);
    assert!(fits.head().starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_rate_is_that_of_a_token_or_of_a_client_behind_a_proxy() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let server = start(move || {
        let limit = RateLimit::new(ConnectionRate::per_minute(1));
        let inside: Networks = "127.0.0.0/8".parse().unwrap();
        let by_client = RateLimit::new(ConnectionRate::per_minute(1));
        let by_client = by_client.trusted(tidegate::http::TrustedProxies::new(inside));
        let proxy = Proxy::new(&upstreams);
        Router::new()
            .any("/token", proxy.clone().rate_limit(&limit.key(RateKey::Bearer)))
            .any("/client", proxy.rate_limit(&by_client))
    });
    let mut client = client(&server);
    let mut peer = None::<Peer>;
    let mut status = |target: &str, lines: &str, passes: bool| {
        client.send(get(target, lines));
        if passes {
            let peer = peer.get_or_insert_with(|| upstream.accept());
            peer.head();
            peer.send(OK);
        }
        let head = client.head();
        client.until(if passes { "ok" } else { "\n" });
        assert_eq!(head.starts_with("HTTP/1.1 429 ") && head.contains("\r\nRetry-After: "), !passes, "{lines} {head}");
    };
    status("/token", "Authorization: Bearer a\r\n", true);
    status("/token", "Authorization: Bearer a\r\n", false);
    status("/token", "Authorization: Bearer b\r\n", true);
    status("/token", "", true);
    status("/token", "", false);
    status("/client", "X-Forwarded-For: 198.51.100.1\r\n", true);
    status("/client", "X-Forwarded-For: 9.9.9.9, 198.51.100.1\r\n", false);
    status("/client", "X-Forwarded-For: 198.51.100.2\r\n", true);
}

#[test]
fn clients_behind_a_trusted_proxy_have_shares_of_an_upstream_of_their_own() {
    let upstream = Upstream::new();
    let mut limits = UpstreamLimits::default();
    (limits.requests_max, limits.requests_per_address_max) = (8, 1);
    let group = Upstreams::builder().server(upstream.url().parse().unwrap()).limits(limits).build().unwrap();
    let mut forwarding = Forwarding::default();
    forwarding.trusted = Networks::local();
    let running = start(move || Router::new().fallback(Proxy::new(&group).forwarding(forwarding.clone())));
    let mut first = client(&running);
    first.send(get("/", "X-Forwarded-For: 198.51.100.1\r\n"));
    let mut held = upstream.accept();
    held.head();
    // The share of the first client is taken, and the second one has its own.
    let mut second = client(&running);
    second.send(get("/", "X-Forwarded-For: 198.51.100.2\r\n"));
    let mut peer = upstream.accept();
    peer.head();
    for (peer, client) in [(&mut peer, &mut second), (&mut held, &mut first)] {
        peer.send(OK);
        client.until("ok");
    }
}

#[test]
fn pages_replace_the_errors_of_the_proxy_and_not_those_of_upstreams() {
    let upstream = Upstream::new();
    let (answering, dead) = (upstreams(&[&upstream]), upstreams(&[&Upstream::new()]));
    let pages = || {
        let page = ErrorPage::html(template("<p>{response.status} {request.path}</p>")).and_json("{\"e\":1}");
        ErrorPages::new().server_errors(page).page(StatusCode::NOT_FOUND, "<p>nothing</p>")
    };
    let server = start(move || {
        let answering = Proxy::new(&answering);
        Router::new()
            .any("/dead/{*rest}", with_middleware(Proxy::new(&dead)).with(pages()))
            .any("/own/{*rest}", with_middleware(answering.clone()).with(pages()))
            .any("/all/{*rest}", with_middleware(answering).with(pages().forwarded()))
    });
    let page = "<p>502 /dead/&amp;x</p>";
    let mut client = client(&server);
    client.send(get("/dead/&x", ""));
    let head = client.head();
    assert!(
        head.starts_with("HTTP/1.1 502 ") && head.contains("\r\nContent-Type: text/html; charset=utf-8\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\nVary: Accept\r\n"), "{head}");
    client.until(page);
    client.send(get("/dead/&x", "Accept: application/json\r\n"));
    let head = client.head();
    assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
    client.until("{\"e\":1}");
    // The length is that of the page, and the next response follows at once.
    client.send(get("/dead/&x", "").replace("GET", "HEAD"));
    assert!(client.head().contains(&format!("\r\nContent-Length: {}\r\n", page.len())));
    let sent = "HTTP/1.1 500 Oops\r\nETag: \"a\"\r\nContent-Type: text/plain\r\nContent-Encoding: x\r\nContent-Length: 3\r\n\r\nown";
    client.send(get("/own/a", ""));
    let mut peer = upstream.accept();
    peer.head();
    peer.send(sent);
    let head = client.head();
    assert!(head.contains("\r\nETag: \"a\"\r\n"), "{head}");
    client.until("own");
    client.send(get("/all/a", ""));
    peer.head();
    peer.send(sent);
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 500 ") && !head.contains("ETag") && !head.contains("Encoding: x"), "{head}");
    assert_eq!(head.matches("Content-Type").count(), 1, "{head}");
    client.until("<p>500 /all/a</p>");
}

#[test]
fn a_response_of_an_upstream_is_compressed_as_it_comes() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let server =
        start(move || Router::new().fallback(with_middleware(Proxy::new(&upstreams)).with(ResponseCompression::new())));
    let mut client = client(&server);
    let accepts = "Accept-Encoding: gzip\r\n";
    client.send(get("/", accepts));
    let mut peer = upstream.accept();
    assert!(peer.head().contains("\r\nAccept-Encoding: gzip\r\n"));
    peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nETag: \"a\"\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\n");
    let head = client.head();
    assert!(head.contains("\r\nContent-Encoding: gzip\r\n") && head.contains("\r\nETag: W/\"a\"\r\n"), "{head}");
    assert!(head.contains("\r\nVary: Accept-Encoding\r\n") && !head.contains("Content-Length"), "{head}");
    // The first event comes before the second one is sent.
    let mut bytes = 0;
    while bytes <= GZIP_HEADER_BYTES {
        bytes += chunk(&mut client).len();
    }
    peer.send("9\r\ndata: b\n\n\r\n0\r\n\r\n");
    client.bytes_until("\r\n0\r\n\r\n");
    for (fields, is_compressed) in [
        ("Content-Type: text/css\r\n", true),
        ("Content-Type: text/css\r\nContent-Encoding: br\r\n", false),
        ("Content-Type: text/css\r\nCache-Control: no-transform\r\n", false),
        ("Content-Type: image/png\r\n", false),
        ("", false),
    ] {
        let body = "a".repeat(2_000);
        client.send(get("/", accepts));
        peer.head();
        peer.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2000\r\n\r\n{body}"));
        let head = client.head();
        assert_eq!(head.contains("\r\nContent-Encoding: gzip\r\n"), is_compressed, "{fields} {head}");
        if is_compressed {
            body_of(&mut client, &head);
        } else {
            client.until(&body);
        }
    }
    // A part of a representation stays one.
    client.send(get("/", &format!("{accepts}Range: bytes=0-999\r\n")));
    peer.head();
    let part = "b".repeat(1_000);
    peer.send(format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Type: text/css\r\nContent-Range: bytes 0-999/2000\r\nContent-Length: 1000\r\n\r\n{part}"
    ));
    assert!(!client.head().contains("Content-Encoding"));
    client.until(&part);
}

#[test]
fn a_decompressed_request_is_passed_on_without_fields_about_its_coding() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let server = start(move || {
        Router::new().fallback(with_middleware(Proxy::new(&upstreams)).with(RequestDecompression::new()))
    });
    let (text, mut body) = ("the tide rises, the tide falls ".repeat(20), Vec::new());
    let mut compressor = Compressor::new(Compression::new(Algorithm::Gzip));
    compressor.finish_with(text.as_bytes(), &mut body).unwrap();
    let mut client = client(&server);
    let fields = format!("Content-Encoding: gzip\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n", body.len());
    client.send(format!("POST / HTTP/1.1\r\nHost: sea\r\n{fields}\r\n"));
    client.send(&body);
    let mut peer = upstream.accept();
    let head = peer.head();
    assert!(!head.contains("Content-Encoding") && !head.contains("Content-Length"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain\r\n"), "{head}");
    assert_eq!(peer.chunks(), text.as_bytes());
    peer.send("HTTP/1.1 204 No Content\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 204 "));
}

#[test]
fn a_route_has_so_many_requests_in_progress_until_their_responses_end() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let limit = ConcurrencyLimit::new(1);
    let of_server = limit.clone();
    let server = start(move || Router::new().fallback(with_middleware(Proxy::new(&upstreams)).with(of_server.clone())));
    let (mut first, mut second) = (client(&server), client(&server));
    first.send(get("/", ""));
    let mut peer = upstream.accept();
    peer.head();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab");
    first.head();
    first.until("ab");
    second.send(get("/", ""));
    let head = second.head();
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("\r\nRetry-After: 1\r\n"), "{head}");
    second.until("\n");
    peer.send("cd");
    first.until("cd");
    while limit.in_progress() > 0 {
        std::thread::yield_now();
    }
    second.send(get("/", ""));
    peer.head();
    peer.send(OK);
    assert!(second.head().starts_with("HTTP/1.1 200 "));
}

#[test]
fn an_edit_of_a_request_has_no_part_of_its_response() {
    let upstream = Upstream::new();
    let proxy = Proxy::new(&upstreams(&[&upstream]));
    let edit = Edit::set("X", template("{upstream.address}")).unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| proxy.edit_request(edit)));
    assert!(caught.is_err());
}

#[test]
fn a_reload_keeps_the_idle_connections_of_upstreams_that_stay() {
    let upstream = Upstream::new();
    let (upstreams, reload) = (upstreams(&[&upstream]), Reload::new());
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).reload(&reload);
    let server = Running(server.start(move || Router::new().fallback(Proxy::new(&upstreams))).unwrap());
    let mut client = client(&server);
    client.send(get("/before", ""));
    let mut peer = upstream.accept();
    peer.head();
    peer.send(OK);
    client.head();
    client.until("ok");
    reload.reload();
    client.send(get("/after", ""));
    assert!(peer.head().starts_with("GET /after "));
    peer.send(OK);
    client.head();
    client.until("ok");
}

#[test]
fn a_mirror_gets_the_same_request_and_delays_none() {
    let (upstream, other) = (Upstream::new(), Upstream::new());
    let (main, copies) = (upstreams(&[&upstream]), upstreams(&[&other]));
    let server = start(move || {
        let proxy = Proxy::new(&main).via("gate").mirror(Mirror::new(&copies).body_bytes_max(8));
        let proxy = proxy.edit_request(Edit::set("X-For", template("{client.ip}")).unwrap());
        Router::new().fallback(proxy.rewrite(Rewrite::add_prefix("/v2").unwrap()))
    });
    let mut client = client(&server);
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
    let mut peer = upstream.accept();
    let head = peer.head();
    peer.until("ab\r\n");
    client.send("2\r\ncd\r\n0\r\n\r\n");
    peer.until("0\r\n\r\n");
    let mut copy = other.accept();
    // The copy is never answered, and its request is.
    assert_eq!(copy.head(), head);
    assert!(copy.until("0\r\n\r\n").replace("\r\n", "").contains("abcd"));
    peer.send(OK);
    client.head();
    client.until("ok");
    copy.send("HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 3\r\n\r\nnot");
    client.send(get("/b", ""));
    let head = peer.head();
    let mut second = other.accept();
    assert_eq!(second.head(), head);
    peer.send(OK);
    client.head();
    client.until("ok");
    // A longer body is not copied.
    client.send("POST /long HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789");
    peer.until("123456789");
    peer.send(OK);
    client.head();
    client.until("ok");
    client.send(get("/last", ""));
    peer.head();
    peer.send(OK);
    client.head();
    let mut last = other.accept();
    assert!(last.head().starts_with("GET /v2/last "), "the long request had no copy");
}

#[test]
fn a_mirror_that_is_gone_fails_no_request() {
    let upstream = Upstream::new();
    let (main, copies) = (upstreams(&[&upstream]), upstreams(&[&Upstream::new()]));
    let server = start(move || Router::new().fallback(Proxy::new(&main).mirror(Mirror::new(&copies))));
    let mut client = client(&server);
    let mut peer = None::<Peer>;
    for _ in 0..4 {
        client.send(get("/", ""));
        let peer = peer.get_or_insert_with(|| upstream.accept());
        peer.head();
        peer.send(OK);
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        client.until("ok");
    }
}
