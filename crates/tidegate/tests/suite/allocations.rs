//! A plaintext request allocates nothing: from the socket through codec, handler and queue, and back.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use tidegate::codec::Pool;
use tidegate::http1::{Incoming, Response, Server};
use tidegate::sys::Socket;
use tidegate::sys::readiness::Readiness;
use tidegate::{Address, Context, EventLoop, Handler, Limits, Outcome};
use tidegate_testkit::allocations::Region;

struct Hello;

impl Handler<Server> for Hello {
    type Post = ();

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, Server>) -> Outcome<Server> {
        match message {
            Incoming::Head(_) => cx.send(Response::text("Hello, World!").into()).into(),
            _ => Outcome::Continue,
        }
    }
}

const DEPTH: usize = 64;

#[test]
fn plaintext_requests_allocate_nothing() {
    let pool = Pool::new();
    let driver = Readiness::new(&pool).expect("there are descriptors");
    let mut event_loop = EventLoop::new(Box::new(driver), pool);
    let (mut peer, ours) = UnixStream::pair().expect("there are descriptors");
    let ours = Socket::from_stream(ours).expect("it is a stream");
    let unnamed = Address::Unix(PathBuf::new());
    event_loop.adopt(ours, &unnamed, Limits::default(), Server::default(), Hello).expect("the driver takes it");

    let requests = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n".repeat(DEPTH);
    let mut answers = vec![0; 64 * 1024];
    let mut answer_bytes = 0;
    let mut round = || {
        peer.write_all(&requests).expect("the socket takes that much");
        let (mut read, mut answered) = (0, 0);
        while answered < DEPTH {
            event_loop.turn(Some(Duration::from_secs(10))).expect("waiting works");
            peer.set_nonblocking(true).expect("it is open");
            read += peer.read(&mut answers[read..]).unwrap_or(0);
            peer.set_nonblocking(false).expect("it is open");
            if answer_bytes == 0 && read > 0 {
                answer_bytes = read / DEPTH;
            }
            answered = read.checked_div(answer_bytes).unwrap_or(0);
        }
        assert!(answers[..read].ends_with(b"Hello, World!"));
    };
    round();
    round();
    let region = Region::new();
    (0..100).for_each(|_| round());
    let change = region.change();
    // The test runner's own thread may allocate meanwhile; an allocation per request would count hundreds of times.
    assert!(change.allocations + change.reallocations < 10, "{change:?}");
}
