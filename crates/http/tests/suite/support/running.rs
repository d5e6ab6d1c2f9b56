//! A server of a router, and a plain client.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use tidegate::ServerHandle;
use tidegate::http::{Limits, Router, Server};

/// A server that drains when it is dropped.
pub(crate) struct Running(pub(crate) ServerHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.drain(Duration::ZERO);
    }
}

pub(crate) fn start<S: 'static>(router: impl Fn() -> Router<S> + Send + Sync + 'static) -> Running {
    start_with(Limits::default(), router)
}

pub(crate) fn start_with<S: 'static>(
    limits: Limits,
    router: impl Fn() -> Router<S> + Send + Sync + 'static,
) -> Running {
    // The client below ends its side, and waits.
    let server = Server::bind("127.0.0.1:0").unwrap().limits(limits).half_close(true).loops(1);
    Running(server.start(router).expect("the server starts"))
}

impl Running {
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.0.address().ip().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }

    /// Sends `wire`, ends the sending side, and returns everything that comes.
    pub(crate) fn exchange(&self, wire: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(wire.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    /// The response to a GET, and its body.
    pub(crate) fn get(&self, path: &str) -> (String, String) {
        split(&self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")))
    }
}

/// The head and the body of a response.
pub(crate) fn split(response: &str) -> (String, String) {
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}
