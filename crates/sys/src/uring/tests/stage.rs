//! A driver over the fake kernel, its completions, and peers: for tests of one claim each.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tidegate_buffer::{Outbound, Pool, Slice};

use super::driver;
use super::fake::Fake;
use crate::driver::{Completion, Operation, Token};
use crate::ready::Class;
use crate::socket::Socket;
use crate::uring::UringDriver;
use crate::uring::kernel::Event;
use crate::uring::operation::{Kind, name};

/// A completion in a form that can be compared. Consecutive receives are merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    Accepted,
    AcceptFailed(Option<i32>),
    Connected(Result<(), ErrorKind>),
    Received(Vec<u8>),
    Ended,
    HungUp,
    Sent(Result<usize, ErrorKind>),
    Failed(ErrorKind),
    Closed,
    Woken,
}

pub(super) struct Stage {
    pub(super) pool: Pool,
    pub(super) driver: UringDriver<Fake>,
    pub(super) accepted: Vec<OwnedFd>,
    /// Views of the received bytes, if they are to be kept.
    pub(super) kept: Option<Vec<Slice>>,
    reports: BTreeMap<Token, Vec<Report>>,
    slots: u32,
}

impl Stage {
    pub(super) fn new() -> Self {
        let pool = Pool::new();
        let driver = driver(&pool, 1);
        Self { pool, driver, accepted: Vec::new(), kept: None, reports: BTreeMap::new(), slots: 0 }
    }

    pub(super) fn token(&mut self) -> Token {
        self.slots += 1;
        Token { slot: self.slots - 1, generation: 1 }
    }

    pub(super) fn adopt(&mut self, near: impl Into<OwnedFd>) -> Token {
        let token = self.token();
        self.submit(token, Operation::Adopt(Socket::from_stream(near).unwrap()));
        token
    }

    /// A stream and its non-blocking peer.
    pub(super) fn pair(&mut self) -> (Token, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        (self.adopt(near), far)
    }

    /// A stream that receives, and its peer.
    pub(super) fn receiving(&mut self) -> (Token, UnixStream) {
        let (token, peer) = self.pair();
        self.submit(token, Operation::Receive(true));
        self.run_until_idle();
        (token, peer)
    }

    pub(super) fn fd(&self, token: Token) -> RawFd {
        self.driver.sockets.get(token).expect("the socket is open").descriptor.as_raw_fd()
    }

    pub(super) fn queue(&self, bytes: &[u8]) -> Outbound {
        let mut queue = Outbound::new(&self.pool);
        queue.write(bytes);
        queue.flush();
        queue
    }

    pub(super) fn submit(&mut self, token: Token, operation: Operation<'_>) {
        if let Some(completion) = self.driver.submit(token, operation) {
            self.record(token, completion);
        }
    }

    pub(super) fn receive(&mut self, token: Token, on: bool) {
        self.submit(token, Operation::Receive(on));
    }

    pub(super) fn send(&mut self, token: Token, queue: &mut Outbound) {
        self.submit(token, Operation::Send { queue, bytes_max: usize::MAX });
    }

    pub(super) fn close(&mut self, token: Token) {
        self.submit(token, Operation::Close { reset: false });
    }

    pub(super) fn write(&mut self, token: Token, mut peer: &UnixStream, bytes: &[u8]) {
        peer.write_all(bytes).unwrap();
        let fd = self.fd(token);
        self.driver.kernel.notify(fd);
    }

    /// Closes the peer. If it has unread bytes, that breaks the connection.
    pub(super) fn close_peer(&mut self, token: Token, peer: UnixStream) {
        drop(peer);
        let fd = self.fd(token);
        self.driver.kernel.notify(fd);
    }

    /// One turn, with a wait that may block.
    pub(super) fn turn(&mut self) {
        self.driver.wait(None).unwrap();
        self.take_in();
    }

    /// One turn in which the kernel takes requests, and completes nothing.
    pub(super) fn idle_turn(&mut self) {
        self.driver.kernel.idles = true;
        self.turn();
        self.driver.kernel.idles = false;
    }

    pub(super) fn take_in(&mut self) {
        while let Some((token, completion)) = self.next() {
            self.record(token, completion);
        }
    }

    /// The next completion of the turn, those of heavy sockets last.
    pub(super) fn next(&mut self) -> Option<(Token, Completion)> {
        Class::ALL.into_iter().find_map(|class| self.driver.next(class))
    }

    /// Runs turns until the kernel would sleep.
    pub(super) fn run_until_idle(&mut self) {
        for _ in 0..TURNS_MAX {
            self.turn();
            if self.driver.kernel.slept {
                return;
            }
        }
        panic!("the driver does not become idle: {:?}", self.reports);
    }

    /// Injects an event of this operation, before the events of the kernel.
    pub(super) fn inject(&mut self, token: Token, kind: Kind, result: i32, more: bool) {
        let name = name(token, kind);
        self.driver.kernel.inject(Event { name, result, more, buffer: None, nonempty: false });
    }

    pub(super) fn reports(&self, token: Token) -> &[Report] {
        self.reports.get(&token).map_or(&[], Vec::as_slice)
    }

    /// The completions of a socket since the last call.
    pub(super) fn take(&mut self, token: Token) -> Vec<Report> {
        self.reports.remove(&token).unwrap_or_default()
    }

    fn record(&mut self, token: Token, completion: Completion) {
        let report = match completion {
            Completion::Received(slice) => {
                if let Some(kept) = &mut self.kept {
                    kept.push(slice.clone());
                }
                if let Some(Report::Received(before)) = self.reports.entry(token).or_default().last_mut() {
                    before.extend_from_slice(&slice);
                    return;
                }
                Report::Received(slice.to_vec())
            }
            Completion::Accepted(Ok(accepted)) => {
                let Socket::Descriptor(stream) = accepted.socket else { panic!("a simulated socket") };
                self.accepted.push(stream);
                Report::Accepted
            }
            Completion::Accepted(Err(error)) => Report::AcceptFailed(error.raw_os_error()),
            Completion::Ended => Report::Ended,
            Completion::HungUp => Report::HungUp,
            Completion::Sent(sent) => Report::Sent(sent.map_err(|error| error.kind())),
            Completion::Failed(error) => Report::Failed(error.kind()),
            Completion::Closed => Report::Closed,
            Completion::Woken => Report::Woken,
            Completion::Datagrams(_) | Completion::Transmitted(_) | Completion::DatagramErrors(_) => {
                unreachable!("the fake kernel has no datagrams: {completion:?}")
            }
            Completion::Connected(result) => Report::Connected(result.map_err(|error| error.kind())),
        };
        self.reports.entry(token).or_default().push(report);
    }
}

/// Bytes in which all parts differ.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// The bytes that the peer can read now.
pub(super) fn read(mut peer: &UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match std::io::Read::read_to_end(&mut peer, &mut bytes) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
        _ => bytes,
    }
}

/// Whether the other end is closed.
pub(super) fn is_closed(mut peer: &UnixStream) -> bool {
    !matches!(std::io::Read::read(&mut peer, &mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

pub(super) const ZERO: Option<Duration> = Some(Duration::ZERO);

const TURNS_MAX: usize = 200;
