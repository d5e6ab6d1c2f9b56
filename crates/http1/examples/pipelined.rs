//! The cost of a pipelined request, parsed and answered, without a socket: `pipelined [ROUNDS] [DEPTH]`.
//!
//! Under `valgrind --tool=callgrind`, two runs with different numbers of rounds give instructions per request.

use std::hint::black_box;
use std::time::{Instant, SystemTime};

use tidegate_buffer::Scratch;
use tidegate_codec::{Codec, Input, Outbound, Output, Pool, Step, Time};
use tidegate_http1::{Error, Incoming, Response, Server};

const REQUEST: &[u8] = b"GET /plaintext HTTP/1.1\r\n\
    Host: localhost\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Connection: keep-alive\r\n\r\n";

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let rounds = arguments.next().and_then(Result::ok).unwrap_or(200_000);
    let depth = arguments.next().and_then(Result::ok).unwrap_or(16);

    let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::now()));
    let (mut scratch, mut input, mut queue) = (Scratch::new(&pool), Input::new(), Outbound::new(&pool));
    let mut server = Server::default();
    let received = REQUEST.repeat(depth);

    let (start, mut answered) = (Instant::now(), 0_usize);
    for _ in 0..rounds {
        scratch.space(received.len())[..received.len()].copy_from_slice(&received);
        input.append(scratch.received(received.len()), &pool);
        let mut out = Output::new(&mut queue, &pool, &time);
        while let Step::Message(message) = server.decode(&mut input, &mut out)? {
            if let Incoming::Head(head) = message {
                let response = match black_box(head.target_bytes()) {
                    b"/plaintext" => Response::text("Hello, World!"),
                    _ => unreachable!("there is one target"),
                };
                server.encode(response.into(), &mut out)?;
                answered += 1;
            }
        }
        queue.flush();
        queue.advance(queue.pending());
        input.compact(&pool);
    }
    let nanoseconds = start.elapsed().as_nanos() as f64 / answered as f64;
    assert_eq!(answered, rounds * depth);
    println!("{answered} requests, {nanoseconds:.1} ns each, {} bytes a connection", size_of::<Server>());
    Ok(())
}
