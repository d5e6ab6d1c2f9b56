//! Random operations of a loop, its peers and the kernel. Bytes are complete and in order in both directions, each
//! socket gets the result of its connection and nothing after that, and no memory or descriptor is leaked. Each seed is
//! another run.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use tidegate_buffer::{FileRegion, Outbound, Pool, Slice};

use super::fake::{Fake, Faults};
use super::random::Random;
use super::{driver, look};
use crate::driver::{Completion, Operation, Token};
use crate::ready::Class;
use crate::socket::Socket;
use crate::uring::UringDriver;

#[test]
fn random_runs_deliver_every_byte_and_leak_nothing() {
    let given = std::env::var("TIDEGATE_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
    let file = Arc::new(file());
    for seed in given.map_or(0..SEEDS, |seed| seed..seed + 1) {
        let _replay = Replay(seed);
        Play::new(seed, file.clone()).run();
    }
}

/// Prints the seed when a run fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("this was TIDEGATE_SEED={}", self.0);
        }
    }
}

/// A connection, seen from both ends.
struct End {
    token: Token,
    fd: RawFd,
    /// Makes its bytes differ from those of other connections.
    salt: usize,
    peer: Option<UnixStream>,
    queue: Outbound,
    receiving: bool,
    /// It has been receiving since before the last wait.
    steady: bool,
    /// A send was submitted and has not completed.
    sending: bool,
    /// Bytes that the peer has written, and that the driver has reported.
    written: usize,
    received: usize,
    /// Bytes that were queued, and that the peer has read.
    queued: usize,
    read: usize,
    /// Our side has shut down its sending direction.
    shut: bool,
    peer_shut: bool,
    ended: bool,
    failed: bool,
    send_failed: bool,
    closing: bool,
    closed: bool,
}

struct Play {
    random: Random,
    pool: Pool,
    driver: UringDriver<Fake>,
    ends: Vec<End>,
    paused: bool,
    faulty: bool,
    /// Received slices that are kept for longer, each with its connection's salt and its offset.
    kept: Vec<(Slice, usize, usize)>,
    woken: bool,
    file: Arc<File>,
    opened: usize,
}

impl Play {
    fn new(seed: u64, file: Arc<File>) -> Self {
        let pool = Pool::new();
        let mut random = Random(seed);
        let driver = driver(&pool, random.bits());
        let (ends, kept) = (Vec::new(), Vec::new());
        Self { random, pool, driver, ends, paused: false, faulty: true, kept, woken: false, file, opened: 0 }
    }

    fn run(mut self) {
        self.open();
        for _ in 0..STEPS {
            if self.faulty {
                self.driver.kernel.faults = faults(&mut self.random);
            }
            self.step();
        }
        self.finish();
    }

    fn step(&mut self) {
        let end = self.random.below(self.ends.len());
        match self.random.below(32) {
            0 if self.ends.len() < ENDS_MAX => self.open(),
            1..=5 => self.peer_writes(end),
            6..=9 => drop(self.peer_reads(end)),
            10..=12 => self.switch(end),
            13..=16 => self.write(end),
            17 => self.pause_receives(),
            18 => self.shut(end),
            19 if self.random.below(3) == 0 => self.close(end),
            20 if self.random.below(3) == 0 => self.peer_disconnects(end),
            21 => self.wake(),
            _ => self.turn(),
        }
    }

    fn open(&mut self) {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        if self.random.below(2) == 0 {
            socket2::SockRef::from(&near).set_send_buffer_size(4096).unwrap();
        }
        self.opened += 1;
        // A slot is reused when its socket is closed.
        let free = self.ends.iter().position(|end| end.closed);
        let slot = free.unwrap_or(self.ends.len()) as u32;
        let token = Token { slot, generation: self.opened as u32 };
        let fd = near.as_raw_fd();
        let adopted = self.driver.submit(token, Operation::Adopt(Socket::from_stream(near).unwrap()));
        assert!(adopted.is_none());
        let end = End {
            token,
            fd,
            salt: self.opened * 7919,
            peer: Some(far),
            queue: Outbound::new(&self.pool),
            receiving: false,
            steady: false,
            sending: false,
            written: 0,
            received: 0,
            queued: 0,
            read: 0,
            shut: false,
            peer_shut: false,
            ended: false,
            failed: false,
            send_failed: false,
            closing: false,
            closed: false,
        };
        match free {
            Some(place) => self.ends[place] = end,
            None => self.ends.push(end),
        }
        let end = slot as usize;
        if self.random.below(4) > 0 {
            self.switch(end);
        }
    }

    fn peer_writes(&mut self, end: usize) {
        let length = match self.random.below(4) {
            0 => 1 + self.random.below(20_000),
            1 => 1 + self.random.below(5_000),
            _ => 1 + self.random.below(100),
        };
        let end = &mut self.ends[end];
        let Some(peer) = &mut end.peer else { return };
        if end.peer_shut {
            return;
        }
        // The write fails if the near end is closed or the buffer is full.
        end.written += peer.write(&pattern(end.salt, end.written, length)).unwrap_or(0);
        self.driver.kernel.notify(end.fd);
    }

    /// The peer reads some of its bytes. Returns whether there were any.
    fn peer_reads(&mut self, end: usize) -> bool {
        let mut space = vec![0; 1 + self.random.below(40_000)];
        let end = &mut self.ends[end];
        let Some(peer) = &mut end.peer else { return false };
        match peer.read(&mut space) {
            Ok(0) => assert!(end.shut || end.closing, "the stream ended without a shutdown"),
            Ok(length) => {
                assert!(end.read + length <= end.queued, "the peer read more than was sent");
                assert!(space[..length] == pattern(end.salt, end.read, length), "other bytes were sent");
                end.read += length;
                self.driver.kernel.notify(end.fd);
                return true;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => assert!(end.closing, "{error}"),
        }
        false
    }

    fn switch(&mut self, end: usize) {
        let end = &mut self.ends[end];
        if !end.closing {
            end.receiving = !end.receiving;
            assert!(self.driver.submit(end.token, Operation::Receive(end.receiving)).is_none());
        }
    }

    /// Queues bytes or files at random, and sends them.
    fn write(&mut self, place: usize) {
        let kinds = self.random.below(5);
        let end = &mut self.ends[place];
        if end.closing || end.shut || end.send_failed || end.queued - end.read > UNREAD_MAX {
            return;
        }
        for _ in 0..1 + kinds {
            let length_max = [20, 3_000, 3_000, 9_000][self.random.below(4)];
            let length = 1 + self.random.below(length_max);
            let bytes = pattern(end.salt, end.queued, length);
            match self.random.below(4) {
                0 => {
                    let (file, offset) = (self.file.clone(), ((end.salt + end.queued) % PERIOD) as u64);
                    end.queue.link_file(FileRegion { file, offset, length: length as u64 });
                }
                1 => end.queue.link_bytes(bytes.into()),
                _ => end.queue.write(&bytes),
            }
            end.queued += length;
        }
        end.queue.flush();
        self.send(place);
    }

    fn send(&mut self, place: usize) {
        let end = &mut self.ends[place];
        let idle = !end.sending && !end.closing && !end.send_failed && !end.queue.is_empty();
        if idle {
            let bytes_max = [usize::MAX, 10_000, 512 * 1024][self.random.below(3)];
            end.sending = true;
            if let Some(sent) = self.driver.submit(end.token, Operation::Send { queue: &mut end.queue, bytes_max }) {
                let token = end.token;
                self.complete(token, sent);
            }
        }
    }

    fn pause_receives(&mut self) {
        self.paused = !self.paused;
        self.driver.pause_receives(self.paused);
    }

    fn shut(&mut self, end: usize) {
        let end = &mut self.ends[end];
        if !end.closing && end.queue.is_empty() && !end.sending {
            end.shut = true;
            assert!(self.driver.submit(end.token, Operation::ShutdownWrite).is_none());
        }
    }

    fn close(&mut self, end: usize) {
        let reset = self.random.below(2) == 0;
        let end = &mut self.ends[end];
        if end.closing {
            return;
        }
        end.closing = true;
        // The queue is cleared even if a send is in flight, and its memory may be reused.
        end.queue.clear();
        if let Some(closed) = self.driver.submit(end.token, Operation::Close { reset }) {
            let token = end.token;
            self.complete(token, closed);
        }
    }

    /// The peer shuts down its sending side, or closes, perhaps with unread bytes.
    fn peer_disconnects(&mut self, end: usize) {
        let whole = self.random.below(2) == 0;
        let end = &mut self.ends[end];
        let Some(peer) = &end.peer else { return };
        let _ = peer.shutdown(Shutdown::Write);
        end.peer_shut = true;
        if whole {
            end.peer = None;
        }
        self.driver.kernel.notify(end.fd);
    }

    fn wake(&mut self) {
        crate::wake::Wake::wake(&*self.driver.waker);
        self.woken = true;
        let waker = self.driver.waker.0.as_raw_fd();
        self.driver.kernel.notify(waker);
    }

    fn next(&mut self) -> Option<(Token, Completion)> {
        Class::ALL.into_iter().find_map(|class| self.driver.next(class))
    }

    fn turn(&mut self) {
        let timeout = [None, Some(Duration::ZERO), Some(Duration::from_secs(1))][self.random.below(3)];
        for end in &mut self.ends {
            end.steady = end.receiving && !self.paused;
        }
        self.driver.wait(timeout).unwrap();
        let mut completions = 0;
        while let Some((token, completion)) = self.next() {
            completions += 1;
            assert!(completions < 10_000, "the turn does not end");
            self.complete(token, completion);
        }
        for (slice, salt, from) in &self.kept {
            assert!(**slice == pattern(*salt, *from, slice.len()), "bytes changed while they were kept");
        }
        if self.random.below(3) == 0 {
            self.kept.clear();
        }
        if self.driver.kernel.slept {
            assert_eq!(completions, 0, "it slept although completions were due");
            self.assert_idle();
        }
    }

    fn complete(&mut self, token: Token, completion: Completion) {
        if let Completion::Woken = completion {
            self.woken = false;
            return;
        }
        let place = token.slot as usize;
        let end = &mut self.ends[place];
        assert_eq!(end.token, token, "a completion for a previous occupant");
        assert!(!end.closed, "a completion after `Closed`: {completion:?}");
        assert!(!end.closing || matches!(completion, Completion::Closed), "{completion:?} of a socket that was closed");
        match completion {
            Completion::Received(slice) => self.received(place, &slice),
            Completion::Ended => {
                assert!(end.peer_shut && !end.ended && !end.failed);
                assert_eq!(end.received, end.written, "the end came before all bytes");
                end.ended = true;
            }
            Completion::Sent(sent) => {
                assert!(end.sending, "{sent:?} without a send");
                end.sending = false;
                match sent {
                    Ok(sent) => {
                        end.queue.advance(sent as u64);
                        self.send(place);
                    }
                    Err(error) => {
                        assert!(end.peer.is_none(), "{error}");
                        end.send_failed = true;
                        end.queue.clear();
                    }
                }
            }
            Completion::Failed(error) => {
                assert!(end.peer.is_none() && !end.failed, "{error}");
                let receives = end.steady && end.receiving && !self.paused;
                assert!(!receives || end.received == end.written, "the failure came before all bytes");
                end.failed = true;
            }
            Completion::Closed => {
                assert!(end.closing, "the loop has not closed it");
                assert_eq!(self.driver.kernel.in_flight(end.fd), 0, "closed while the kernel had a request of it");
                (end.closed, end.fd) = (true, -1);
            }
            other => panic!("{other:?}"),
        }
    }

    fn received(&mut self, place: usize, slice: &Slice) {
        let end = &mut self.ends[place];
        assert!(!end.ended && !end.failed, "bytes after the end");
        assert!(end.received + slice.len() <= end.written, "more bytes than were written");
        assert!(**slice == pattern(end.salt, end.received, slice.len()), "other bytes were received");
        if self.random.below(4) == 0 {
            self.kept.push((slice.clone(), end.salt, end.received));
        }
        end.received += slice.len();
        // Operations that a dispatch may cause.
        match self.random.below(12) {
            0 => self.switch(place),
            1 => self.write(place),
            2 if self.random.below(8) == 0 => self.close(place),
            3 if self.random.below(4) == 0 => self.pause_receives(),
            _ => {}
        }
    }

    /// Asserts the invariants of a kernel that would sleep.
    fn assert_idle(&self) {
        assert!(!self.woken, "a wake-up was lost");
        for end in &self.ends {
            let about = || format!("slot {}, {} of {} bytes received", end.token.slot, end.received, end.written);
            if end.closing {
                assert!(end.closed, "`Closed` was not reported, {}", about());
                continue;
            }
            let polled = look(end.fd, libc::POLLOUT);
            if end.sending {
                assert_eq!(polled & libc::POLLOUT, 0, "a send was forgotten, {}", about());
            }
            // A socket whose receives are paused may have to receive the earlier bytes first.
            let waits = end.receiving && self.paused;
            assert!(polled & libc::POLLERR == 0 || end.failed || waits, "a failure was not reported, {}", about());
            if end.receiving && !self.paused && !end.failed {
                assert_eq!(end.received, end.written, "bytes were not reported, {}", about());
                assert_eq!(end.ended, end.peer_shut, "the end was not reported, {}", about());
            }
        }
    }

    /// Lets all connections finish, and then closes everything.
    fn finish(mut self) {
        if std::mem::take(&mut self.paused) {
            self.driver.pause_receives(false);
        }
        for end in 0..self.ends.len() {
            if !self.ends[end].receiving {
                self.switch(end);
            }
        }
        self.run_until_idle();
        for end in &self.ends {
            let lost = end.peer.is_none() || end.closing;
            assert!(lost || end.read == end.queued && end.queue.is_empty(), "{} of {}", end.read, end.queued);
            assert!(end.failed || end.closing || end.received == end.written);
        }
        self.driver.kernel.faults = Faults::default();
        for _ in 0..2 {
            // The wait after a report takes the reported buffer back.
            self.driver.wait(Some(Duration::ZERO)).unwrap();
            assert!(self.next().is_none());
        }
        assert_eq!(self.driver.kernel.ring(), usize::from(self.driver.buffers.count()), "buffers are missing");
        self.drop_driver();
    }

    fn run_until_idle(&mut self) {
        self.faulty = false;
        for _ in 0..2000 {
            let mut moves = false;
            for end in 0..self.ends.len() {
                moves |= self.peer_reads(end);
            }
            // No connection pauses any more.
            for end in 0..self.ends.len() {
                if !self.ends[end].receiving {
                    self.switch(end);
                }
            }
            if std::mem::take(&mut self.paused) {
                self.driver.pause_receives(false);
            }
            self.turn();
            if self.driver.kernel.slept && !moves {
                return;
            }
        }
        panic!("the driver does not become idle");
    }

    /// Closes some sockets, and drops the driver with the others in the middle of their operations.
    fn drop_driver(mut self) {
        self.driver.kernel.faults = faults(&mut self.random);
        for end in 0..self.ends.len() {
            match self.random.below(3) {
                0 => self.close(end),
                1 => self.write(end),
                _ => self.peer_writes(end),
            }
        }
        let Self { pool, driver, ends, kept, .. } = self;
        let peers: Vec<_> = ends.into_iter().filter_map(|end| end.peer).collect();
        drop(kept);
        drop(driver);
        assert_eq!(pool.ledger().used(), 0, "memory was leaked");
        for mut peer in peers {
            let mut rest = Vec::new();
            match peer.read_to_end(&mut rest) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("a descriptor was left open"),
                _ => {}
            }
        }
    }
}

/// A few faults of random kinds.
fn faults(random: &mut Random) -> Faults {
    let mut some = || if random.below(3) == 0 { random.below(4) as u32 } else { 0 };
    Faults {
        refuse: some(),
        interrupt: some(),
        delay: 2 * some(),
        shorten: some(),
        lose: some(),
        starve: some(),
        late: some(),
        repeat: some(),
        invent: some(),
        renotify: some(),
    }
}

/// The bytes of a stream from an offset on. They repeat, so that a file can contain all of them.
fn pattern(salt: usize, from: usize, length: usize) -> Vec<u8> {
    let first = (salt + from) % PERIOD;
    (first..first + length).map(byte).collect()
}

fn byte(at: usize) -> u8 {
    ((at % PERIOD) as u32).wrapping_mul(2_654_435_761).to_be_bytes()[1]
}

fn file() -> File {
    let mut file = tempfile();
    file.write_all(&(0..2 * PERIOD).map(byte).collect::<Vec<_>>()).unwrap();
    file
}

fn tempfile() -> File {
    rustix::fs::memfd_create("pattern", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into()
}

const SEEDS: u64 = 2000;

const STEPS: usize = 80;

const ENDS_MAX: usize = 5;

/// A prime, so that it is no multiple of a buffer's size.
const PERIOD: usize = 65_521;

/// The most bytes that may be queued and not read.
const UNREAD_MAX: usize = 200_000;
