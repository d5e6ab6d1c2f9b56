//! A request costs no allocation.

use std::time::{Instant, SystemTime};

use tidegate_buffer::Scratch;
use tidegate_codec::{Codec, Input, Outbound, Output, Pool, Step, Time};
use tidegate_http1::{Error, Fields, Incoming, Response, Server, Status};
use tidegate_testkit::allocations::Region;

#[test]
fn requests_with_and_without_body_allocate_nothing() {
    const FIELDS: Fields = Fields::from_static("Cache-Control: no-store\r\n");
    let wire = [
        b"GET /a?b HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n".as_slice(),
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ]
    .concat()
    .repeat(10);
    let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
    let (mut scratch, mut input, mut queue) = (Scratch::new(&pool), Input::new(), Outbound::new(&pool));
    let mut server = Server::default();
    let mut round = || -> Result<usize, Error> {
        let mut answered = 0;
        scratch.space(wire.len())[..wire.len()].copy_from_slice(&wire);
        input.append(scratch.received(wire.len()), &pool);
        let mut out = Output::new(&mut queue, &pool, &time);
        while let Step::Message(message) = server.decode(&mut input, &mut out)? {
            let is_complete = match message {
                Incoming::Head(head) => !head.has_body() && head.header("accept") == Some(b"*/*"),
                Incoming::Data(_) | Incoming::Trailers(_) | Incoming::Preface => false,
                Incoming::End => true,
            };
            if is_complete {
                server.encode(Response::new(Status::OK).fields(FIELDS).body("hello").into(), &mut out)?;
                answered += 1;
            }
        }
        queue.flush();
        queue.advance(queue.pending());
        input.compact(&pool);
        Ok(answered)
    };
    assert_eq!(round(), Ok(30), "the first round fills the pool");
    let region = Region::new();
    for _ in 0..100 {
        assert_eq!(round(), Ok(30));
    }
    let change = region.change();
    // The test runner's own thread may allocate meanwhile; an allocation of this code would occur hundreds of times.
    assert!(change.allocations + change.reallocations < 10, "{change:?}");
}
