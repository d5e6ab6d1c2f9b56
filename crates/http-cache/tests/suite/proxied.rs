//! A cache in front of a proxy: bodies that come in pieces, and an upstream that ends early.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tidegate::ServerHandle;
use tidegate::http::cache::{Cache, CacheLimits};
use tidegate::http::proxy::{Forwarding, Proxy, StickyCookie, Upstreams};
use tidegate::http::{Edit, RequestIds, Router, Server, Template, with_middleware};

/// An upstream that answers each connection by `response`, and closes it.
struct Upstream {
    url: String,
    requests: Arc<AtomicUsize>,
}

impl Upstream {
    fn new(response: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::<AtomicUsize>::default();
        let count = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read_exact(&mut byte).is_err() {
                        break;
                    }
                    head.extend(byte);
                }
                if !head.is_empty() {
                    count.fetch_add(1, Relaxed);
                    let _ = stream.write_all(&response);
                }
            }
        });
        Self { url, requests }
    }
}

struct Gateway(ServerHandle);

impl Drop for Gateway {
    fn drop(&mut self) {
        self.0.drain(Duration::ZERO);
    }
}

impl Gateway {
    fn new(cache: &Cache, upstream: &Upstream, loops: usize) -> Self {
        let upstreams = Upstreams::new([&*upstream.url]).expect("upstreams");
        let cache = cache.clone();
        let router = move || Router::new().fallback(cache.wrap(Proxy::new(&upstreams)));
        let server = Server::bind("127.0.0.1:0").expect("an address").half_close(true).loops(loops);
        Self(server.start(router).expect("it starts"))
    }

    fn get(&self) -> Vec<u8> {
        self.get_with("")
    }

    fn get_with(&self, lines: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.0.address().ip().expect("an address")).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket");
        let wire = format!("GET / HTTP/1.1\r\nHost: sea\r\n{lines}Connection: close\r\n\r\n");
        stream.write_all(wire.as_bytes()).expect("it reads");
        stream.shutdown(Shutdown::Write).expect("a socket");
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        response
    }
}

fn response(length: usize, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

#[test]
fn a_long_body_goes_to_the_client_and_into_the_cache_of_all_loops() {
    let body: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let (cache, upstream) = (Cache::new(), Upstream::new(response(body.len(), &body)));
    let gateway = Gateway::new(&cache, &upstream, 2);
    for round in 0..8 {
        let received = gateway.get();
        assert!(received.ends_with(&body), "round {round}: {} bytes", received.len());
    }
    assert_eq!(upstream.requests.load(Relaxed), 1);
    assert_eq!(cache.counts().hits, 7);
    assert!(cache.counts().memory_bytes > body.len());
}

#[test]
fn a_chunked_body_is_stored_with_its_length() {
    let wire = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nebb\r\n4\r\nflow\r\n0\r\n\r\n";
    let (cache, upstream) = (Cache::new(), Upstream::new(wire.to_vec()));
    let gateway = Gateway::new(&cache, &upstream, 1);
    gateway.get();
    let stored = String::from_utf8(gateway.get()).expect("text");
    assert!(stored.contains("Content-Length: 7\r\n") && stored.ends_with("\r\n\r\nebbflow"), "{stored}");
    assert_eq!(upstream.requests.load(Relaxed), 1);
}

#[test]
fn a_body_that_ends_early_is_not_stored() {
    let (cache, upstream) = (Cache::new(), Upstream::new(response(100_000, &[b'a'; 50_000])));
    let gateway = Gateway::new(&cache, &upstream, 1);
    gateway.get();
    gateway.get();
    assert_eq!((upstream.requests.load(Relaxed), cache.counts().stored), (2, 0));
    assert_eq!(cache.counts().entries, 0);
}

#[test]
fn a_body_beyond_the_limit_goes_to_the_client_alone() {
    let body = vec![b'z'; 300_000];
    for response in [
        response(body.len(), &body),
        [&b"HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nConnection: close\r\n\r\n"[..], &body].concat(),
    ] {
        let limits = CacheLimits { entry_bytes_max: 200_000, ..CacheLimits::default() };
        let cache = Cache::builder().limits(limits).build().expect("a cache");
        let upstream = Upstream::new(response);
        let gateway = Gateway::new(&cache, &upstream, 1);
        for _ in 0..2 {
            // The second one is chunked.
            assert_eq!(gateway.get().iter().filter(|byte| **byte == b'z').count(), body.len());
        }
        assert_eq!((upstream.requests.load(Relaxed), cache.counts().stored), (2, 0));
    }
}

#[test]
fn a_response_that_varies_by_a_field_of_the_gateway_is_not_stored() {
    let with_vary = |vary: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nVary: {vary}\r\nConnection: close\r\nContent-Length: 3\r\n\r\nebb"
        )
    };
    // The scheme and the host are those of the URL, and no client is trusted to name others.
    for (vary, requests) in [
        ("X-Forwarded-For", 2),
        ("Accept, x-forwarded-for", 2),
        ("X-Request-Id", 2),
        ("X-Client", 2),
        ("X-Forwarded-Proto", 1),
        ("X-Forwarded-Host, X-Real-IP", 1),
        ("X-Gateway, Via", 1),
        ("X-Other", 1),
    ] {
        let (cache, upstream) = (Cache::new(), Upstream::new(with_vary(vary).into_bytes()));
        let upstreams = Upstreams::new([&*upstream.url]).expect("upstreams");
        let wrapped = cache.clone();
        let router = move || {
            let client = Template::parse("{client.ip}").expect("a template");
            let proxy = Proxy::new(&upstreams)
                .edit_request(Edit::set("X-Client", client).expect("a field"))
                .edit_request(Edit::set("X-Gateway", "gate").expect("a field"));
            Router::new().fallback(wrapped.wrap(with_middleware(proxy).with(RequestIds::new())))
        };
        let server = Server::bind("127.0.0.1:0").expect("an address").half_close(true).loops(1);
        let gateway = Gateway(server.start(router).expect("it starts"));
        for _ in 0..2 {
            assert!(gateway.get().ends_with(b"ebb"));
        }
        assert_eq!(upstream.requests.load(Relaxed), requests, "{vary}");
    }
}

#[test]
fn the_scheme_and_the_host_that_a_trusted_proxy_names_are_of_the_key() {
    let lines = [
        "X-Forwarded-Proto: http\r\n",
        "X-Forwarded-Proto: https\r\n",
        "X-Forwarded-Proto: https\r\nX-Forwarded-Host: ocean\r\n",
        "X-Forwarded-Proto: https\r\nRange: bytes=0-1\r\n",
    ];
    let wire = "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nConnection: close\r\nContent-Length: 3\r\n\r\nebb";
    for (trusted, requests) in [("127.0.0.0/8", 3), ("10.0.0.0/8", 1)] {
        let (cache, upstream) = (Cache::new(), Upstream::new(wire.as_bytes().to_vec()));
        let upstreams = Upstreams::new([&*upstream.url]).expect("upstreams");
        let purged = cache.clone();
        let router = move || {
            let mut forwarding = Forwarding::default();
            forwarding.trusted = trusted.parse().expect("a network");
            Router::new().fallback(cache.wrap(Proxy::new(&upstreams).forwarding(forwarding)))
        };
        let server = Server::bind("127.0.0.1:0").expect("an address").half_close(true).loops(1);
        let gateway = Gateway(server.start(router).expect("it starts"));
        for _ in 0..2 {
            lines.iter().for_each(|lines| drop(gateway.get_with(lines)));
        }
        assert_eq!(upstream.requests.load(Relaxed), requests, "{trusted}");
        let https = if trusted == "127.0.0.0/8" { 2 } else { 0 };
        assert_eq!(purged.purge("https://sea/"), Some(https), "{trusted}");
        assert_eq!(purged.purge_prefix("http://sea/"), Some(1), "{trusted}");
    }
}

#[test]
fn the_cookie_of_the_gateway_is_for_one_client() {
    for (lines, requests) in [
        ("Cache-Control: public, max-age=3600\r\n", 1),
        ("Cache-Control: max-age=3600\r\n", 1),
        ("Cache-Control: public, max-age=3600\r\nSet-Cookie: own=1\r\n", 1),
        // That of the upstream is for one client as well.
        ("Cache-Control: max-age=3600\r\nSet-Cookie: own=1\r\n", 2),
    ] {
        let wire = format!("HTTP/1.1 200 OK\r\n{lines}Connection: close\r\nContent-Length: 3\r\n\r\nebb");
        let (cache, upstream) = (Cache::new(), Upstream::new(wire.into_bytes()));
        let upstreams = Upstreams::new([&*upstream.url]).expect("upstreams");
        let router = move || {
            let cookie = StickyCookie::new("tide").expect("a name");
            Router::new().fallback(cache.wrap(Proxy::new(&upstreams).sticky(cookie)))
        };
        let server = Server::bind("127.0.0.1:0").expect("an address").half_close(true).loops(1);
        let gateway = Gateway(server.start(router).expect("it starts"));
        let [first, second] = [(); 2].map(|()| String::from_utf8(gateway.get()).expect("text"));
        assert!(first.contains("Set-Cookie: tide=") && first.ends_with("ebb"), "{first}");
        assert!(second.contains("Set-Cookie: ") == (requests == 2) && second.ends_with("ebb"), "{second}");
        assert_eq!(upstream.requests.load(Relaxed), requests, "{lines}");
    }
}

#[test]
fn interim_responses_pass_and_the_final_one_is_stored() {
    let wire = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nConnection: close\r\nContent-Length: 3\r\n\r\nebb";
    let (cache, upstream) = (Cache::new(), Upstream::new(wire.to_vec()));
    let gateway = Gateway::new(&cache, &upstream, 1);
    let first = String::from_utf8(gateway.get()).expect("text");
    assert!(first.starts_with("HTTP/1.1 103 ") && first.contains("</a.css>") && first.ends_with("ebb"), "{first}");
    let second = String::from_utf8(gateway.get()).expect("text");
    assert!(second.starts_with("HTTP/1.1 200 ") && second.ends_with("ebb"), "{second}");
    assert_eq!(upstream.requests.load(Relaxed), 1);
}
