//! Random operations in random order: every byte arrives once and in order, every end is reported once.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use tidegate_buffer::Outbound;
use tidegate_sys::{Completion, Operation, Token};

use crate::driver::harness::{Family, Harness, PATIENCE, reset};
use crate::driver::which::Which;

pub(crate) fn random_operations_lose_nothing(driver: Which) {
    for seed in 1..=SEEDS {
        println!("{driver}, seed {seed}");
        let mut world = World::new(driver, Random(seed));
        for _ in 0..STEPS {
            world.step();
        }
        world.finish();
        let pool = world.harness.pool.clone();
        drop(world);
        assert_eq!(pool.ledger().used(), 0, "{driver}, seed {seed}");
    }
}

/// A driver, and streams of it with their peers.
struct World {
    harness: Harness,
    random: Random,
    streams: BTreeMap<Token, Stream>,
    /// Sockets whose close was submitted and that are not closed yet.
    closing: Vec<Token>,
    free: Vec<Token>,
    paused: bool,
    exact: bool,
}

/// A stream, and the state of its two directions: how many bytes went in and came out.
struct Stream {
    peer: socket2::Socket,
    queue: Outbound,
    family: Family,
    wanted: bool,
    written: u64,
    received: u64,
    queued: u64,
    read: u64,
    /// A send is in flight, or waits until it can be tried again.
    waits: bool,
    peer_ended: bool,
    end_reported: bool,
    /// The end is to be reported apart from the bytes.
    watched: bool,
    shut: bool,
    /// It broke, or is going to: bytes that did not arrive are lost.
    broken: bool,
    failure_reported: bool,
    send_failed: bool,
}

impl World {
    fn new(driver: Which, random: Random) -> Self {
        let (harness, streams) = (Harness::on(driver), BTreeMap::new());
        let exact = !driver.runs_ahead();
        let mut world = Self { harness, random, streams, closing: Vec::new(), free: Vec::new(), paused: false, exact };
        (0..STREAMS).for_each(|_| world.open());
        world
    }

    fn open(&mut self) {
        let family = Family::BOTH[self.random.below(2)];
        let (near, peer) = family.pair();
        peer.set_nonblocking(true).unwrap();
        // Mostly the slot of a socket that has just closed.
        let token = match self.free.pop() {
            Some(old) => self.harness.adopt_again(old, near),
            None => self.harness.adopt(near),
        };
        let queue = Outbound::new(&self.harness.pool);
        let stream = Stream {
            peer,
            queue,
            family,
            wanted: false,
            written: 0,
            received: 0,
            queued: 0,
            read: 0,
            waits: false,
            peer_ended: false,
            end_reported: false,
            watched: false,
            shut: false,
            broken: false,
            failure_reported: false,
            send_failed: false,
        };
        self.streams.insert(token, stream);
    }

    fn step(&mut self) {
        let index = self.random.below(self.streams.len());
        let token = *self.streams.keys().nth(index).unwrap();
        let stream = self.streams.get_mut(&token).unwrap();
        match self.random.below(100) {
            0..25 => stream.peer_writes(&mut self.random),
            25..45 => stream.peer_reads(self.random.length()),
            45..58 => {
                stream.wanted = self.random.below(3) > 0;
                self.harness.driver.submit(token, Operation::Receive(stream.wanted));
            }
            58..73 => {
                if !stream.shut {
                    let length = self.random.length();
                    let bytes: Vec<_> = (stream.queued..).take(length).map(byte).collect();
                    match self.random.below(2) {
                        0 => stream.queue.write(&bytes),
                        _ => stream.queue.link_bytes(bytes.into()),
                    }
                    stream.queue.flush();
                    stream.queued += length as u64;
                }
                self.send(token);
            }
            73 => {
                self.paused = self.random.below(3) == 0;
                self.harness.driver.pause_receives(self.paused);
            }
            74 => {
                stream.peer_ended = true;
                let _ = stream.peer.shutdown(Shutdown::Write);
            }
            75 if stream.queue.is_empty() && !stream.waits => {
                stream.shut = true;
                self.harness.driver.submit(token, Operation::ShutdownWrite);
            }
            76 if stream.family == Family::Tcp => {
                stream.broken = true;
                stream.peer.set_linger(Some(Duration::ZERO)).unwrap();
                stream.peer = Family::Unix.pair().0;
                stream.peer.set_nonblocking(true).unwrap();
            }
            77 => self.close(token),
            78 => self.harness.driver.waker().wake(),
            79 => {
                stream.watched = true;
                self.harness.driver.watch_end(token);
            }
            _ => {
                let events = self.random.below(12);
                self.turn(Duration::ZERO, events);
            }
        }
    }

    fn send(&mut self, token: Token) {
        let Some(stream) = self.streams.get_mut(&token) else { return };
        let mut calls = 0;
        while !stream.waits && !stream.queue.is_empty() && calls < 4 {
            calls += 1;
            let bytes_max = [usize::MAX, 5000][self.random.below(2)];
            let queue = &mut stream.queue;
            match self.harness.driver.submit(token, Operation::Send { queue, bytes_max }) {
                None => stream.waits = true,
                Some(Completion::Sent(Ok(sent))) => stream.queue.advance(sent as u64),
                Some(Completion::Sent(Err(_))) => {
                    stream.breaks();
                    return;
                }
                Some(other) => panic!("{other:?}"),
            }
        }
    }

    fn close(&mut self, token: Token) {
        // The peer and the queued bytes are dropped now or when the socket is closed.
        let stream = self.streams.remove(&token).unwrap();
        self.harness.start_close(token, self.random.below(2) == 0);
        if self.random.below(2) == 0 && stream.family == Family::Tcp {
            reset(stream.peer);
        }
        self.closing.push(token);
        self.free_closed();
        self.open();
    }

    /// Moves closed sockets to the free slots.
    fn free_closed(&mut self) {
        let closed = self.closing.extract_if(.., |token| self.harness.is_closed(*token));
        self.free.extend(closed);
    }

    fn turn(&mut self, timeout: Duration, events_max: usize) {
        self.harness.driver.wait(Some(timeout)).unwrap();
        for _ in 0..events_max {
            let Some((token, completion)) = self.harness.next() else { break };
            self.complete(token, completion);
        }
        self.free_closed();
    }

    fn complete(&mut self, token: Token, completion: Completion) {
        let Some(stream) = self.streams.get_mut(&token) else { return self.harness.record(token, completion) };
        let is_wanted = stream.wanted && !self.paused;
        let is_answer = matches!(completion, Completion::Sent(_)) && stream.waits;
        assert!(!stream.failure_reported || is_answer, "after its failure: {completion:?}");
        match completion {
            Completion::Received(bytes) => {
                assert!(!stream.end_reported, "bytes after the end");
                assert!(is_wanted || !self.exact, "unwanted bytes");
                assert!(bytes.iter().copied().eq((stream.received..).take(bytes.len()).map(byte)), "other bytes");
                stream.received += bytes.len() as u64;
            }
            Completion::Ended => {
                assert!(!stream.end_reported && stream.peer_ended, "a false end: {stream:?}");
                assert!(stream.received == stream.written || stream.broken, "an end before all bytes");
                stream.end_reported = true;
            }
            Completion::HungUp => {
                assert!(stream.watched && (stream.peer_ended || stream.broken), "a false end: {stream:?}");
                stream.watched = false;
            }
            Completion::Sent(Ok(sent)) => {
                stream.waits = false;
                stream.queue.advance(sent as u64);
                self.send(token);
            }
            Completion::Sent(Err(_)) => stream.breaks(),
            Completion::Failed(error) => {
                assert!(stream.broken, "{error}");
                stream.failure_reported = true;
            }
            other => panic!("{other:?}"),
        }
    }

    /// Runs until all streams that are not broken have received all bytes.
    fn finish(&mut self) {
        self.paused = false;
        self.harness.driver.pause_receives(false);
        for (token, stream) in &mut self.streams {
            stream.wanted = true;
            self.harness.driver.submit(*token, Operation::Receive(true));
        }
        let tokens: Vec<_> = self.streams.keys().copied().collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            for token in &tokens {
                self.streams.get_mut(token).unwrap().peer_reads(1 << 20);
                self.send(*token);
            }
            let unfinished = self.streams.iter().find(|(_, stream)| !stream.is_finished());
            let Some((token, stream)) = unfinished else { break };
            assert!(Instant::now() < deadline, "{token:?} waits for ever: {stream:?}");
            self.turn(Duration::from_millis(1), usize::MAX);
        }
        while !self.closing.is_empty() {
            assert!(Instant::now() < deadline, "{:?} are never closed", self.closing);
            self.turn(Duration::from_millis(1), usize::MAX);
        }
    }
}

impl Stream {
    fn peer_writes(&mut self, random: &mut Random) {
        if self.peer_ended || self.broken {
            return;
        }
        let bytes: Vec<_> = (self.written..).take(random.length()).map(byte).collect();
        match self.peer.write(&bytes) {
            Ok(written) => self.written += written as u64,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    fn peer_reads(&mut self, length: usize) {
        if self.broken {
            return;
        }
        let mut bytes = vec![0; length];
        match self.peer.read(&mut bytes) {
            Ok(read) => {
                assert!(bytes[..read].iter().copied().eq((self.read..).take(read).map(byte)), "other bytes");
                self.read += read as u64;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    /// Handles a failed send, which must have a broken connection as its cause.
    fn breaks(&mut self) {
        assert!(self.broken || self.shut, "a send failed");
        self.queue = Outbound::new(&tidegate_buffer::Pool::new());
        self.shut = true;
        self.waits = false;
        self.send_failed = true;
    }

    fn is_finished(&self) -> bool {
        if self.broken {
            return self.failure_reported || self.end_reported;
        }
        self.received == self.written
            && self.read == self.queued
            && self.end_reported == self.peer_ended
            && !(self.watched && self.peer_ended)
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { written, received, queued, read, waits, peer_ended, end_reported, shut, broken, .. } = self;
        let Self { failure_reported, send_failed, .. } = self;
        write!(f, "received {received} of {written}, the peer read {read} of {queued}, waits: {waits}, ")?;
        write!(f, "peer ended: {peer_ended}, reported: {end_reported}, shut: {shut}, broken: {broken}, ")?;
        write!(f, "failure reported by receiving: {failure_reported}, by sending: {send_failed}")
    }
}

/// The byte at an offset of any stream.
fn byte(place: u64) -> u8 {
    (place.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// Random numbers (xorshift), the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }

    /// A length that is mostly small and sometimes large.
    fn length(&mut self) -> usize {
        let most = [20, 1000, 5000, 30_000][self.below(4)];
        1 + self.below(most)
    }
}

const SEEDS: u64 = 30;
const STEPS: usize = 3000;
const STREAMS: usize = 20;
