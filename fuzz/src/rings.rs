//! The driver on io_uring and a real kernel: sockets whose peers act arbitrarily.
//!
//! The bytes choose, step by step, the actions of the peers (write, read, shut down, close) and the operations of the
//! driver (receive, stop, pause and resume receives, send, shut down, close). The sockets are pairs within this process
//! and nothing waits for a clock, so the same bytes give the same run. In every case bytes arrive complete and in order
//! on both sides, kept views do not change, the driver reports ends, failures and closes once and not too early, no
//! socket starves, and no memory is left.
//!
//! Without io_uring the target prints that once, and does nothing.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

use tidegate_buffer::{Outbound, Pool, Slice};
use tidegate_sys::uring::Uring;
use tidegate_sys::{Completion, Driver, Operation, Socket, Token};

use crate::choices::Choices;

/// One to sixteen sockets of one driver.
pub fn rings(data: &[u8]) {
    if !is_there() {
        return;
    }
    let mut choices = Choices::new(data);
    let mut scene = Scene::new(1 + choices.below(SOCKETS_MAX));
    for _ in 0..STEPS_MAX {
        if choices.is_over() {
            break;
        }
        scene.step(&mut choices);
    }
    scene.end();
}

fn is_there() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| match Uring::probe() {
        Ok(()) => true,
        Err(error) => {
            println!("rings: skipped, io_uring is not available: {error}");
            false
        }
    })
}

struct Scene {
    driver: Uring,
    pool: Pool,
    ends: Vec<End>,
}

/// Both sides of a connection.
struct End {
    number: usize,
    queue: Outbound,
    /// The peer's socket, until it closes.
    peer: Option<UnixStream>,
    /// Bytes that the peer has written, and how many of them the driver has received.
    written: usize,
    received: usize,
    /// Bytes that were queued, and how many of them the peer has read.
    queued: usize,
    read: usize,
    /// Kept views, with their offsets in the stream.
    kept: Vec<(usize, Slice)>,
    sending: bool,
    /// A send has failed; the rest of the queue is never sent.
    write_failed: bool,
    /// The peer has shut down its write half.
    peer_ended: bool,
    /// We have shut down ours.
    shut: bool,
    ended: bool,
    failed: bool,
    closing: bool,
    closed: bool,
}

impl Scene {
    fn new(count: usize) -> Self {
        let pool = Pool::new();
        let mut driver = Uring::new(&pool).expect("it was there before");
        let ends = (0..count)
            .map(|number| {
                let (ours, theirs) = UnixStream::pair().expect("there are descriptors");
                for stream in [&ours, &theirs] {
                    stream.set_nonblocking(true).expect("it is a socket");
                }
                let adopt = Operation::Adopt(Socket::Descriptor(OwnedFd::from(ours)));
                assert!(driver.submit(token(number), adopt).is_none(), "adopting completes at once");
                End::new(number, &pool, theirs)
            })
            .collect();
        Self { driver, pool, ends }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let number = choices.below(self.ends.len());
        let end = &mut self.ends[number];
        match choices.below(16) {
            0 | 1 => self.turn(),
            2 | 3 => end.write(choices.length(4096)),
            4 => end.write(16 * choices.length(4096)),
            5 => end.read(16 * choices.length(4096)),
            6 => end.end(),
            7 => end.peer = None,
            8 | 9 => self.submit(number, Operation::Receive(true)),
            10 => self.submit(number, Operation::Receive(false)),
            11 => self.send(number, choices.length(4096)),
            12 => self.send(number, 16 * choices.length(4096)),
            13 => self.shut(number),
            14 => self.close(number, choices.byte() & 1 == 1),
            _ => self.driver.pause_receives(choices.byte() & 1 == 1),
        }
    }

    fn turn(&mut self) {
        self.driver.wait(Some(Duration::ZERO)).expect("waiting does not fail");
        while let Some((token, completion)) = self.driver.next_of_any() {
            self.complete(token.slot as usize, completion);
        }
    }

    fn submit(&mut self, number: usize, operation: Operation<'_>) {
        if self.ends[number].closing {
            return;
        }
        if let Some(completion) = self.driver.submit(token(number), operation) {
            self.complete(number, completion);
        }
    }

    fn complete(&mut self, number: usize, completion: Completion) {
        self.ends[number].complete(completion);
        self.flush(number);
    }

    fn send(&mut self, number: usize, length: usize) {
        let end = &mut self.ends[number];
        if !end.shut && !end.failed && !end.closing {
            let bytes: Vec<_> = (end.queued..end.queued + length).map(|at| byte(number, true, at)).collect();
            end.queue.write(&bytes);
            end.queue.flush();
            end.queued += length;
            self.flush(number);
        }
    }

    fn flush(&mut self, number: usize) {
        let end = &mut self.ends[number];
        while end.queue.has_flushed() && !end.sending && !end.write_failed && !end.closing {
            let send = Operation::Send { queue: &mut end.queue, bytes_max: 1 << 20 };
            end.sending = true;
            if let Some(completion) = self.driver.submit(token(number), send) {
                end.complete(completion);
            }
        }
    }

    /// Shuts down our write half, if everything is sent.
    fn shut(&mut self, number: usize) {
        let end = &mut self.ends[number];
        if end.queue.pending() == 0 && !end.sending && !end.failed && !end.closing {
            end.shut = true;
            self.submit(number, Operation::ShutdownWrite);
        }
    }

    fn close(&mut self, number: usize, reset: bool) {
        let end = &mut self.ends[number];
        if !std::mem::replace(&mut end.closing, true)
            && let Some(completion) = self.driver.submit(token(number), Operation::Close { reset })
        {
            end.complete(completion);
        }
    }

    /// All peers read and write no more; every connection must end.
    fn end(mut self) {
        self.driver.pause_receives(false);
        (0..self.ends.len()).for_each(|number| self.submit(number, Operation::Receive(true)));
        self.ends.iter_mut().for_each(End::end);
        self.turns_until("everything has arrived", |end| {
            end.read(usize::MAX);
            end.closing || end.failed || (end.ended && (end.write_failed || end.queue.pending() == 0))
        });
        for number in 0..self.ends.len() {
            self.close(number, false);
        }
        self.turns_until("everything is closed", |end| end.closed);
        for end in &mut self.ends {
            end.read(usize::MAX);
            end.check();
        }
        let Self { driver, pool, ends } = self;
        drop((ends, driver));
        assert_eq!(pool.ledger().used(), 0, "memory is left");
    }

    fn turns_until(&mut self, what: &str, mut is_so: impl FnMut(&mut End) -> bool) {
        for turn in 0..TURNS_MAX {
            // Evaluate all: `is_so` may read from the peer.
            let left = self.ends.iter_mut().map(&mut is_so).filter(|is_so| !is_so).count();
            if left == 0 {
                return;
            }
            if turn > TURNS_MAX / 2 {
                // Nothing here waits for time, but the kernel may complete work asynchronously.
                std::thread::sleep(Duration::from_millis(1));
            }
            self.turn();
        }
        let starved: Vec<_> = self.ends.iter_mut().filter_map(|end| (!is_so(end)).then(|| end.to_string())).collect();
        panic!("it never happened that {what}: {starved:#?}");
    }
}

impl End {
    fn new(number: usize, pool: &Pool, peer: UnixStream) -> Self {
        Self {
            number,
            queue: Outbound::new(pool),
            peer: Some(peer),
            written: 0,
            received: 0,
            queued: 0,
            read: 0,
            kept: Vec::new(),
            sending: false,
            write_failed: false,
            peer_ended: false,
            shut: false,
            ended: false,
            failed: false,
            closing: false,
            closed: false,
        }
    }

    /// The peer writes as much as its socket buffer accepts.
    fn write(&mut self, length: usize) {
        let bytes: Vec<_> = (self.written..self.written + length).map(|at| byte(self.number, false, at)).collect();
        if let Some(peer) = &mut self.peer
            && !self.peer_ended
        {
            self.written += peer.write(&bytes).unwrap_or(0);
        }
    }

    /// The peer reads available bytes, at most `most`.
    fn read(&mut self, most: usize) {
        let mut space = [0; 16 * 1024];
        let mut left = most;
        while left > 0
            && let Some(peer) = &mut self.peer
            && let wanted = left.min(space.len())
            && let Ok(length @ 1..) = peer.read(&mut space[..wanted])
        {
            let expected = (self.read..).map(|at| byte(self.number, true, at));
            assert!(
                space[..length].iter().copied().zip(expected).all(|(a, b)| a == b),
                "other bytes were sent: {self}"
            );
            self.read += length;
            left -= length;
        }
        assert!(self.read <= self.queued, "more was sent than was queued: {self}");
    }

    /// The peer shuts down its write half.
    fn end(&mut self) {
        if let Some(peer) = &self.peer {
            self.peer_ended = true;
            // Fails if the connection is closed.
            let _ = peer.shutdown(std::net::Shutdown::Write);
        }
    }

    fn complete(&mut self, completion: Completion) {
        assert!(!self.closed, "a completion after `Closed`: {completion:?} {self}");
        let is_gone = self.peer.is_none();
        match completion {
            Completion::Received(bytes) => {
                assert!(!self.ended && !self.failed && !bytes.is_empty(), "bytes after the end: {self}");
                assert!(is(self.number, self.received, &bytes), "other bytes were received: {self}");
                self.kept.truncate(KEPT_MAX);
                self.kept.push((self.received, bytes.clone()));
                self.received += bytes.len();
                assert!(self.received <= self.written, "more is received than was written: {self}");
            }
            Completion::Ended => {
                assert!(!self.ended && (self.peer_ended || is_gone), "an end: {self}");
                assert!(self.received == self.written, "an end in front of bytes: {self}");
                self.ended = true;
            }
            Completion::Failed(error) => {
                assert!(!self.failed && is_gone, "a failure, {error}: {self}");
                self.failed = true;
            }
            Completion::Sent(sent) => {
                assert!(std::mem::take(&mut self.sending), "nothing is being sent: {self}");
                match sent {
                    Ok(count) => self.queue.advance(count as u64),
                    Err(error) => {
                        assert!(is_gone, "sending failed, {error}: {self}");
                        self.write_failed = true;
                    }
                }
            }
            Completion::Closed => {
                assert!(self.closing, "a close without a request: {self}");
                self.closed = true;
            }
            completion => panic!("unexpected {completion:?}: {self}"),
        }
    }

    fn check(&mut self) {
        for (at, bytes) in self.kept.drain(..) {
            assert!(is(self.number, at, &bytes), "a kept view has changed");
        }
        self.queue.clear();
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { number, written, received, queued, read, peer_ended, ended, failed, closing, .. } = self;
        write!(f, "socket {number}: {received} of {written} bytes received, {read} of {queued} read by the peer, ")?;
        write!(f, "sending {}, peer gone {}, peer ended {peer_ended}, ", self.sending, self.peer.is_none())?;
        write!(f, "ended {ended}, failed {failed}, closing {closing}")
    }
}

/// Whether `bytes` are the peer's bytes from offset `from` on.
fn is(number: usize, from: usize, bytes: &[u8]) -> bool {
    bytes.iter().zip(from..).all(|(byte, at)| *byte == self::byte(number, false, at))
}

/// The byte at an offset of a stream, which identifies the stream and the offset.
const fn byte(number: usize, ours: bool, at: usize) -> u8 {
    (at % 251) as u8 ^ (at / 251) as u8 ^ (number * 2 + ours as usize) as u8
}

const fn token(number: usize) -> Token {
    Token { slot: number as u32, generation: 1 }
}

/// Twice the initial number of provided buffers.
const SOCKETS_MAX: usize = 16;

const STEPS_MAX: usize = 200;

/// The maximum number of kept views of a socket.
const KEPT_MAX: usize = 8;

/// Far more turns than any run needs.
const TURNS_MAX: usize = 4000;
