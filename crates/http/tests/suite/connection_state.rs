//! The state of a connection: one for all its requests, whatever serves them, and for as long as it is open.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use tidegate::http::{Config, ConnectionState, HttpHandler, Request, Router};
use tidegate::task;
use tidegate_testkit::Embedded;

/// Counts requests, and in `alive` the states that exist.
struct Requests {
    count: Cell<u32>,
    alive: Rc<Cell<i32>>,
}

impl Requests {
    fn next(&self) -> String {
        self.count.set(self.count.get() + 1);
        self.count.get().to_string()
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

type State = ConnectionState<Requests>;

fn router(alive: &Rc<Cell<i32>>) -> Router {
    let alive = alive.clone();
    let make = move |_: &tidegate::Address| {
        alive.set(alive.get() + 1);
        Requests { count: Cell::new(0), alive: alive.clone() }
    };
    Router::new()
        .connection_state(make)
        .get("/plain", |state: State| state.next())
        .get("/complete", async |state: State| state.next())
        .get("/waits", async |state: State| {
            task::sleep(Duration::from_secs(1)).await;
            state.next()
        })
        .post("/body", |request: Request| request.connection_state::<Requests>().unwrap().next())
        .nest("/nested", Router::new().get("/plain", |state: State| state.next()))
        .host("other", Router::new().get("/plain", |state: State| state.next()))
        .get("/wrong", |_: ConnectionState<u64>| "it is another type")
        .get("/optional", |state: Option<ConnectionState<u64>>| if state.is_some() { "some" } else { "none" })
}

fn body(pipe: &mut Embedded<()>, wire: &str) -> String {
    pipe.receive(wire.as_bytes());
    pipe.advance(Duration::from_secs(2));
    let text = String::from_utf8(pipe.take_written()).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    text.rsplit_once("\r\n\r\n").unwrap().1.to_owned()
}

fn get(pipe: &mut Embedded<()>, path: &str) -> String {
    body(pipe, &format!("GET {path} HTTP/1.1\r\nHost: sea\r\n\r\n"))
}

#[test]
fn requests_of_a_connection_share_its_state_whatever_serves_them() {
    let alive = Rc::new(Cell::new(0));
    let connections = Config::new().connections(router(&alive));
    let open = |(codec, handler): (_, HttpHandler)| Embedded::new(codec, handler);
    let (mut one, mut other) = (open(connections()), open(connections()));
    assert_eq!(alive.get(), 0, "the first request makes the state");
    for (number, path) in ["/plain", "/waits", "/complete", "/waits", "/nested/plain", "/plain"].iter().enumerate() {
        assert_eq!(get(&mut one, path), (number + 1).to_string(), "{path}");
    }
    let posted = "POST /body HTTP/1.1\r\nHost: sea\r\nContent-Length: 3\r\n\r\nebb";
    one.receive(&posted.as_bytes()[..posted.len() - 1]);
    assert_eq!(body(&mut one, "b"), "7", "a body that comes in pieces");
    assert_eq!(get(&mut one, "/plain"), "8");
    assert_eq!(alive.get(), 1);
    assert_eq!(get(&mut other, "/waits"), "1", "another connection has its own");
    assert_eq!(body(&mut other, "GET /plain HTTP/1.1\r\nHost: other\r\n\r\n"), "2");
    assert_eq!(body(&mut other, posted), "3");
    assert_eq!(alive.get(), 2);
    drop(one);
    assert_eq!(alive.get(), 1, "it is dropped with its connection");
    drop(other);
    assert_eq!(alive.get(), 0);
}

/// An HTTP/2 request for a path, in the one frame of its stream.
fn headers(stream: u8, path: &str) -> Vec<u8> {
    // `:method` GET and `:scheme` http by index; `:authority` and `:path` by the index of their names.
    let block = [b"\x82\x86\x41\x03sea\x04", &[path.len() as u8][..], path.as_bytes()].concat();
    [&[0, 0, block.len() as u8, 1, 5, 0, 0, 0, stream][..], &block].concat()
}

/// The payloads of the frames of data in these bytes, one after the other.
fn data(mut wire: &[u8]) -> String {
    let mut payloads = Vec::new();
    while let [high, middle, low, kind, _, _, _, _, _, rest @ ..] = wire {
        let (payload, next) = rest.split_at(usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low));
        payloads.extend_from_slice(if *kind == 0 { payload } else { &[] });
        wire = next;
    }
    String::from_utf8(payloads).unwrap()
}

#[test]
fn requests_of_a_connection_of_http2_share_its_state() {
    let alive = Rc::new(Cell::new(0));
    let connections = Config::new().connections(router(&alive));
    let open = || {
        let (codec, handler) = connections();
        let mut pipe = Embedded::new(codec, handler);
        pipe.receive(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        drop(pipe.take_written());
        pipe
    };
    let (mut one, mut other) = (open(), open());
    let get = |pipe: &mut Embedded<()>, stream, path| {
        pipe.receive(&headers(stream, path));
        pipe.advance(Duration::from_secs(2));
        data(&pipe.take_written())
    };
    assert_eq!(alive.get(), 0, "the first request makes the state");
    assert_eq!(
        [get(&mut one, 1, "/plain"), get(&mut one, 3, "/waits"), get(&mut one, 5, "/nested/plain")],
        ["1", "2", "3"]
    );
    assert_eq!(get(&mut other, 1, "/waits"), "1", "another connection has its own");
    assert_eq!(alive.get(), 2);
    drop(one);
    assert_eq!(alive.get(), 1, "it is dropped with its connection");
    drop(other);
    assert_eq!(alive.get(), 0);
}

#[test]
fn a_state_is_dropped_with_a_connection_whose_function_waits() {
    let alive = Rc::new(Cell::new(0));
    let (codec, handler) = Config::new().connections(router(&alive))();
    let mut pipe = Embedded::new(codec, handler);
    pipe.receive(b"GET /waits HTTP/1.1\r\nHost: sea\r\n\r\n");
    assert_eq!(alive.get(), 1);
    pipe.reset();
    assert_eq!(alive.get(), 0);
}

#[test]
fn a_state_that_no_router_makes_is_a_500() {
    let alive = Rc::new(Cell::new(0));
    let (codec, handler) = Config::new().connections(router(&alive))();
    let mut pipe = Embedded::new(codec, handler);
    pipe.receive(b"GET /wrong HTTP/1.1\r\nHost: sea\r\n\r\n");
    assert!(pipe.take_written().starts_with(b"HTTP/1.1 500 "));
    assert_eq!(get(&mut pipe, "/optional"), "none");

    let (codec, handler) = Config::new().connections(Router::new().get("/", |_: State| "state"))();
    let mut pipe = Embedded::new(codec, handler);
    pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n");
    assert!(pipe.take_written().starts_with(b"HTTP/1.1 500 "));
}

#[test]
fn only_the_outer_router_makes_a_state() {
    let inner = || Router::new().connection_state(|_| ());
    assert!(catch_unwind(AssertUnwindSafe(|| Router::new().nest("/inner", inner()))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| Router::new().host("inner", inner()))).is_err());
}
