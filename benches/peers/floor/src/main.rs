//! The lower bound of an HTTP/1.1 server's cost: `recv`, `send`, finding the ends of requests, and nothing else.
//!
//! One thread, bare epoll, one receive buffer for all connections. Every request gets the same response, and all
//! requests that one receive completes are answered with one send from a run of responses built at start-up.
//! `--body N` makes that response's body N bytes long, for comparison with servers that send as many.
//! It parses nothing, refuses nothing and bounds nothing: it is a baseline, not a server to use.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::{env, error, io};

use memchr::memmem::Finder;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, accept_with, recv, send, sockopt};

struct Responses {
    run: Vec<u8>,
    each: usize,
}

impl Responses {
    fn new(body: &[u8]) -> Self {
        let mut one = HEAD.replace("LENGTH", &body.len().to_string()).into_bytes();
        one.extend_from_slice(body);
        let responses = (RUN_BYTES_MAX / one.len()).clamp(1, RUN_RESPONSES_MAX);
        Self { run: one.repeat(responses), each: one.len() }
    }

    /// The bytes to send next to a peer that is owed `owed` bytes: they begin inside a response if a send was partial.
    fn next(&self, owed: usize) -> &[u8] {
        let start = (self.each - owed % self.each) % self.each;
        &self.run[start..self.run.len().min(start + owed)]
    }
}

struct Connection {
    socket: OwnedFd,
    /// How many bytes of `REQUEST_END` the last receive ended with.
    carry: usize,
    /// Bytes of responses not yet taken by the kernel.
    owed: usize,
}

enum Step {
    Wait,
    Close,
}

impl Connection {
    fn handle_event(&mut self, flags: EventFlags, input: &mut [u8], end: &Finder<'_>, responses: &Responses) -> Step {
        // A short receive has drained the socket, and later input is a new edge; only a close that came with the bytes
        // is not, and has to be read now.
        let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        let mut drained = false;
        loop {
            while self.owed > 0 {
                match send(&self.socket, responses.next(self.owed), SendFlags::NOSIGNAL) {
                    Ok(sent) => self.owed -= sent,
                    Err(Errno::AGAIN) => return Step::Wait,
                    Err(_) => return Step::Close,
                }
            }
            if drained {
                return Step::Wait;
            }
            let received = match recv(&self.socket, &mut input[CARRY_MAX..], RecvFlags::empty()) {
                Ok((_, 0)) => return Step::Close,
                Ok((_, received)) => received,
                Err(Errno::AGAIN) => return Step::Wait,
                Err(_) => return Step::Close,
            };
            drained = received < RECEIVE_BYTES && !hung_up;
            self.owed = responses.each * self.count_requests(input, received, end);
        }
    }

    /// Counts the requests that end in the `received` bytes at `CARRY_MAX`, after putting the last carry before them.
    fn count_requests(&mut self, input: &mut [u8], received: usize, end: &Finder<'_>) -> usize {
        let start = CARRY_MAX - self.carry;
        input[start..CARRY_MAX].copy_from_slice(&REQUEST_END[..self.carry]);
        let mut rest = &input[start..CARRY_MAX + received];
        let mut requests = 0;
        while let Some(at) = end.find(rest) {
            requests += 1;
            rest = &rest[at + REQUEST_END.len()..];
        }
        self.carry = (1..=CARRY_MAX).rev().find(|&n| rest.ends_with(&REQUEST_END[..n])).unwrap_or(0);
        requests
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (address, body) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [address] => (address, b"Hello, World!".to_vec()),
        [address, "--body", bytes] => (address, vec![b'x'; bytes.parse()?]),
        _ => return Err("usage: floor ADDRESS [--body N]".into()),
    };
    let responses = Responses::new(&body);
    let listener = TcpListener::bind(address.parse::<SocketAddr>()?)?;
    // The standard library's backlog is too short for many connections at once.
    net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    // Accepted sockets inherit it.
    sockopt::set_tcp_nodelay(&listener, true)?;
    println!("listening on {}", listener.local_addr()?);
    serve(&listener, &responses)?;
    Ok(())
}

fn serve(listener: &TcpListener, responses: &Responses) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let end = Finder::new(REQUEST_END);
    let mut input = vec![0; CARRY_MAX + RECEIVE_BYTES];
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS_PER_WAIT];
    loop {
        let ready = match epoll::wait(&epoll, &mut events, None) {
            Err(Errno::INTR) => continue,
            ready => ready?,
        };
        for Event { flags, data } in events[..ready].iter().copied() {
            if data.u64() == LISTENER {
                while let Ok(socket) = accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    let slot = socket.as_raw_fd() as usize;
                    let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
                    epoll::add(&epoll, &socket, EventData::new_u64(slot as u64), interest)?;
                    connections.resize_with(connections.len().max(slot + 1), || None);
                    connections[slot] = Some(Connection { socket, carry: 0, owed: 0 });
                }
            } else if let Some(slot) = connections.get_mut(data.u64() as usize)
                && let Some(connection) = slot
                && let Step::Close = connection.handle_event(flags, &mut input, &end, responses)
            {
                *slot = None;
            }
        }
    }
}

const LISTENER: u64 = u64::MAX;
/// The same headers as the other servers send; nothing here depends on the date being today's.
const HEAD: &str = "HTTP/1.1 200 OK\r\nServer: floor\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: LENGTH\r\n\r\n";
const REQUEST_END: &[u8] = b"\r\n\r\n";
const CARRY_MAX: usize = REQUEST_END.len() - 1;
const RECEIVE_BYTES: usize = 64 * 1024;
const BACKLOG: i32 = 1024;
const RUN_RESPONSES_MAX: usize = 512;
const RUN_BYTES_MAX: usize = 256 * 1024;
const EVENTS_PER_WAIT: usize = 512;
