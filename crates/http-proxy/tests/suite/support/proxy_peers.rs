//! Upstreams and clients of a proxy, played byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tidegate::http::Router;
use tidegate::http::proxy::{Proxy, Upstreams};

use crate::support::{Running, start};

/// An upstream that the test plays.
pub(crate) struct Upstream(pub(crate) TcpListener);

impl Upstream {
    pub(crate) fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    pub(crate) fn accept(&self) -> Peer {
        accept_any(&[self]).1
    }
}

/// The next connection to one of some upstreams, and the place of that one.
pub(crate) fn accept_any(upstreams: &[&Upstream]) -> (usize, Peer) {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        for (place, upstream) in upstreams.iter().enumerate() {
            upstream.0.set_nonblocking(true).unwrap();
            if let Ok((stream, _)) = upstream.0.accept() {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
                return (place, Peer(stream));
            }
        }
        assert!(Instant::now() < until, "the proxy does not connect");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A connection of the proxy, at its upstream's end, or of a client.
pub(crate) struct Peer(pub(crate) TcpStream);

impl Peer {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// Reads up to the end of `marker`.
    pub(crate) fn until(&mut self, marker: &str) -> String {
        String::from_utf8(self.bytes_until(marker)).unwrap()
    }

    /// The same for bytes that need not be text.
    pub(crate) fn bytes_until(&mut self, marker: &str) -> Vec<u8> {
        let mut read = Vec::new();
        while !read.ends_with(marker.as_bytes()) {
            let mut byte = [0];
            // It reads again after a signal.
            match self.0.read_exact(&mut byte) {
                Ok(()) => read.push(byte[0]),
                Err(error) => panic!("{error} after {}", read.escape_ascii()),
            }
        }
        read
    }

    pub(crate) fn head(&mut self) -> String {
        self.until("\r\n\r\n")
    }

    /// A body in chunks, without trailers.
    pub(crate) fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.until("\r\n");
            let mut chunk = vec![0; usize::from_str_radix(line.trim_end(), 16).unwrap()];
            self.0.read_exact(&mut chunk).unwrap();
            self.until("\r\n");
            if chunk.is_empty() {
                return body;
            }
            body.extend(chunk);
        }
    }

    /// Everything up to the end, and whether that is a reset.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut read = Vec::new();
        let is_reset = match self.0.read_to_end(&mut read) {
            Ok(_) => false,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                true
            }
        };
        (read, is_reset)
    }
}

pub(crate) fn upstreams(urls: &[&Upstream]) -> Upstreams {
    let urls: Vec<_> = urls.iter().map(|upstream| upstream.url()).collect();
    Upstreams::new(urls.iter().map(String::as_str)).unwrap()
}

pub(crate) fn proxy_of(upstream: &Upstream) -> Running {
    let upstreams = upstreams(&[upstream]);
    start(move || Router::new().fallback(Proxy::new(&upstreams).via("gate")))
}

pub(crate) fn client(proxy: &Running) -> Peer {
    Peer(proxy.connect())
}
