//! A driver, its completions so far, and peers.
//!
//! No test asserts how long something takes. [`PATIENCE`] bounds every wait. To check that something does *not* happen,
//! a test waits for something else that was caused later: [`Harness::run_until_idle`].
//!
//! Drivers differ in when they report the result of a send, and that a socket is closed: at once or later. The harness
//! handles both. It also checks that a socket reports nothing but `Closed` after its close was submitted.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Type};
use tidegate_buffer::{Outbound, Pool};
use tidegate_sys::{Accepted, Address, Completion, Driver, ListenOptions, Operation, Socket, Token};

use crate::driver::which::Which;

/// A completion in a form that can be compared. Consecutive receives are merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    Accepted,
    AcceptFailed(Option<i32>),
    Connected(Result<(), io::ErrorKind>),
    Received(Vec<u8>),
    Ended,
    HungUp,
    Sent(Result<usize, io::ErrorKind>),
    Failed(io::ErrorKind),
    Closed,
    Woken,
}

pub(crate) struct Harness {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) pool: Pool,
    /// Accepted connections that the test has not taken yet.
    pub(crate) accepted: Vec<(Token, Accepted)>,
    /// The length of every receive, in order.
    pub(crate) receives: Vec<usize>,
    reports: BTreeMap<Token, Vec<Report>>,
    /// Sockets whose close was submitted, and whether they are closed.
    closing: BTreeMap<Token, bool>,
    paused: bool,
    slots: u32,
    fence: (Token, UnixStream),
}

impl Harness {
    pub(crate) fn on(driver: Which) -> Self {
        let pool = Pool::new();
        let mut driver = driver.make(&pool).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let fence = Token { slot: 0, generation: 1 };
        assert!(driver.submit(fence, Operation::Adopt(Socket::from_stream(near).unwrap())).is_none());
        driver.submit(fence, Operation::Receive(true));
        Self {
            driver,
            pool,
            accepted: Vec::new(),
            receives: Vec::new(),
            reports: BTreeMap::new(),
            closing: BTreeMap::new(),
            paused: false,
            slots: 1,
            fence: (fence, far),
        }
    }

    /// The token of a fresh slot.
    pub(crate) fn token(&mut self) -> Token {
        self.slots += 1;
        Token { slot: self.slots - 1, generation: 1 }
    }

    pub(crate) fn submit(&mut self, token: Token, operation: Operation<'_>) {
        if let Some(completion) = self.driver.submit(token, operation) {
            self.record(token, completion);
        }
    }

    pub(crate) fn receive(&mut self, token: Token, on: bool) {
        self.submit(token, Operation::Receive(on));
    }

    /// Stops receiving, and returns the completions that were in flight. Nothing more may be reported after that.
    pub(crate) fn pause(&mut self, token: Token) -> Vec<Report> {
        self.receive(token, false);
        self.run_until_idle();
        self.take(token)
    }

    /// Pauses or resumes receives on all sockets. [`run_until_idle`](Self::run_until_idle) takes it into account.
    pub(crate) fn pause_receives(&mut self, pause: bool) {
        self.driver.pause_receives(pause);
        self.paused = pause;
    }

    /// Submits the close of a socket.
    pub(crate) fn start_close(&mut self, token: Token, reset: bool) {
        self.closing.insert(token, false);
        self.submit(token, Operation::Close { reset });
    }

    /// Whether a socket whose close was submitted is closed.
    pub(crate) fn is_closed(&self, token: Token) -> bool {
        self.closing[&token]
    }

    /// Closes a socket, and runs until it is closed.
    pub(crate) fn close(&mut self, token: Token, reset: bool) {
        self.start_close(token, reset);
        self.until(|harness| harness.is_closed(token).then_some(()));
    }

    /// Adopts a socket into the slot of a closed one.
    pub(crate) fn adopt_again(&mut self, old: Token, socket: impl Into<std::os::fd::OwnedFd>) -> Token {
        assert!(self.is_closed(old), "{old:?} is not free");
        let token = Token { generation: old.generation + 1, ..old };
        let refused = self.driver.submit(token, Operation::Adopt(Socket::from_stream(socket).unwrap()));
        assert!(refused.is_none(), "{refused:?}");
        token
    }

    pub(crate) fn adopt(&mut self, socket: impl Into<std::os::fd::OwnedFd>) -> Token {
        let token = self.token();
        let refused = self.driver.submit(token, Operation::Adopt(Socket::from_stream(socket).unwrap()));
        assert!(refused.is_none(), "{refused:?}");
        token
    }

    pub(crate) fn listen(&mut self, address: &Address) -> (Token, Address) {
        self.listen_with(address, ListenOptions::default().backlog)
    }

    pub(crate) fn listen_with(&mut self, address: &Address, backlog: u32) -> (Token, Address) {
        let options = ListenOptions { backlog, ..ListenOptions::default() };
        let socket = Socket::listen(address, &options).unwrap();
        let address = socket.address(tidegate_sys::Side::Local).unwrap();
        let token = self.token();
        assert!(self.driver.submit(token, Operation::Listen(socket)).is_none());
        (token, address)
    }

    /// A stream of the driver, and its blocking peer.
    pub(crate) fn pair(&mut self, family: Family) -> (Token, socket2::Socket) {
        let (near, far) = family.pair();
        (self.adopt(near), far)
    }

    /// One turn: waits at most until `deadline`, and takes all completions of the turn.
    pub(crate) fn turn(&mut self, deadline: Instant) -> usize {
        self.driver.wait(Some(deadline.saturating_duration_since(Instant::now()))).unwrap();
        self.rest_of_turn()
    }

    /// The first completion of the next turn that has any. Leaves the others.
    pub(crate) fn first(&mut self) -> (Token, Completion) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "no completion");
            self.driver.wait(Some(PATIENCE)).unwrap();
            if let Some(first) = self.next() {
                return first;
            }
        }
    }

    /// The next completion of the turn, those of heavy sockets last.
    pub(crate) fn next(&mut self) -> Option<(Token, Completion)> {
        self.driver.next_of_any()
    }

    /// Takes the remaining completions of a turn.
    pub(crate) fn rest_of_turn(&mut self) -> usize {
        let mut completions = 0;
        while let Some((token, completion)) = self.next() {
            completions += 1;
            self.record(token, completion);
        }
        completions
    }

    /// Runs turns until `found` returns a value.
    pub(crate) fn until<T>(&mut self, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "it does not happen; reports so far: {:?}", self.reports);
            self.turn(deadline);
        }
    }

    /// Runs until the socket of `token` has reported `what`, and returns all its reports.
    pub(crate) fn until_report(&mut self, token: Token, what: &Report) -> Vec<Report> {
        self.until(|harness| harness.reports(token).contains(what).then(|| harness.take(token)))
    }

    /// Runs until a connection was accepted.
    pub(crate) fn until_accepted(&mut self) -> (Token, Accepted) {
        self.until(|harness| (!harness.accepted.is_empty()).then(|| harness.accepted.remove(0)))
    }

    /// Runs until the socket of `token` has received `length` bytes and reported nothing else.
    pub(crate) fn until_received(&mut self, token: Token, length: usize) -> Vec<u8> {
        self.until(|harness| match harness.reports(token) {
            [Report::Received(bytes)] if bytes.len() >= length => Some(bytes.clone()),
            [] | [Report::Received(_)] => None,
            other => panic!("only bytes were expected: {other:?}"),
        });
        match self.take(token).pop() {
            Some(Report::Received(bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Runs until everything that was caused before has had time to be reported.
    pub(crate) fn run_until_idle(&mut self) {
        if self.paused {
            return self.run_until_idle_paused();
        }
        for round in 0..3 {
            let (token, mut far) = (self.fence.0, &self.fence.1);
            far.write_all(&[round]).unwrap();
            self.until(|harness| (!harness.reports(token).is_empty()).then(|| harness.take(token)));
        }
    }

    /// The fence is a socket as well, so while receives are paused the waker replaces it.
    fn run_until_idle_paused(&mut self) {
        for _ in 0..3 {
            self.driver.waker().wake();
            self.until(|harness| {
                let mut lists = harness.reports.values_mut();
                let woken = lists.any(|list| list.pop_if(|last| *last == Report::Woken).is_some());
                woken.then_some(())
            });
        }
    }

    /// The reports of the socket of `token` that were not taken yet.
    pub(crate) fn reports(&self, token: Token) -> &[Report] {
        self.reports.get(&token).map_or(&[], Vec::as_slice)
    }

    /// Takes the reports of the socket of `token`.
    pub(crate) fn take(&mut self, token: Token) -> Vec<Report> {
        self.reports.remove(&token).unwrap_or_default()
    }

    /// Takes the reports of all sockets.
    pub(crate) fn take_all(&mut self) -> BTreeMap<Token, Vec<Report>> {
        self.reports.retain(|_, reports| !reports.is_empty());
        std::mem::take(&mut self.reports)
    }

    /// The number of received bytes that were not taken yet.
    pub(crate) fn bytes_received(&self) -> usize {
        let length = |report: &Report| if let Report::Received(bytes) = report { bytes.len() } else { 0 };
        self.reports.values().flatten().map(length).sum()
    }

    /// Sends once, and returns the result, or `None` if the send waits for room.
    pub(crate) fn send(&mut self, token: Token, queue: &mut Outbound, bytes_max: usize) -> Option<io::Result<usize>> {
        let sent = match self.driver.submit(token, Operation::Send { queue, bytes_max }) {
            Some(Completion::Sent(sent)) => sent,
            Some(other) => panic!("sending ended in {other:?}"),
            None => {
                self.run_until_idle();
                self.sent(token, |sent| !matches!(sent, Ok(0)))?
            }
        };
        if let Ok(sent) = sent {
            assert!(sent <= bytes_max.max(1), "sent {sent} bytes of at most {bytes_max}");
            queue.advance(sent as u64);
        }
        Some(sent)
    }

    /// Takes the first result of a send that matches `such`.
    pub(crate) fn sent(
        &mut self,
        token: Token,
        such: impl Fn(&Result<usize, io::ErrorKind>) -> bool,
    ) -> Option<io::Result<usize>> {
        let reports = self.reports.get_mut(&token)?;
        let place = reports.iter().position(|report| matches!(report, Report::Sent(sent) if such(sent)))?;
        let Report::Sent(sent) = reports.remove(place) else { return None };
        Some(sent.map_err(Into::into))
    }

    /// Sends all bytes of `queue`. Returns how often it had to wait.
    pub(crate) fn send_all(&mut self, token: Token, queue: &mut Outbound, bytes_max: usize) -> io::Result<usize> {
        let mut resumed = 0;
        while !queue.is_empty() {
            match self.send(token, queue, bytes_max) {
                Some(Ok(sent)) => assert!(sent > 0, "nothing was sent although there was room"),
                Some(Err(error)) => return Err(error),
                None => {
                    let sent = self.until(|harness| harness.sent(token, |_| true))?;
                    queue.advance(sent as u64);
                    resumed += 1;
                }
            }
        }
        Ok(resumed)
    }

    /// Sends from `queue` until a send waits for room. Returns how many bytes the kernel took.
    pub(crate) fn send_until_blocked(&mut self, token: Token, queue: &mut Outbound) -> usize {
        let mut taken = 0;
        while let Some(sent) = self.send(token, queue, usize::MAX) {
            taken += sent.unwrap();
            assert!(!queue.is_empty(), "the kernel took all of it");
        }
        taken
    }

    /// The same until the kernel takes no more, as the peer reads nothing. A kernel that paces takes more bytes a little
    /// later, until the window of the peer is full.
    pub(crate) fn send_until_full(&mut self, token: Token, queue: &mut Outbound) -> usize {
        let mut taken = self.send_until_blocked(token, queue);
        while let Some(sent) = self.sent_later(token) {
            queue.advance(sent as u64);
            taken += sent + self.send_until_blocked(token, queue);
        }
        taken
    }

    /// The result of a send that has waited, if it comes before the kernel is quiet.
    fn sent_later(&mut self, token: Token) -> Option<usize> {
        (0..QUIET_WAITS).find_map(|_| {
            self.turn(Instant::now() + QUIET_WAIT);
            self.sent(token, |_| true).map(Result::unwrap)
        })
    }

    pub(crate) fn record(&mut self, token: Token, completion: Completion) {
        if let Some(closed) = self.closing.get_mut(&token) {
            let first = matches!(completion, Completion::Closed) && !std::mem::replace(closed, true);
            assert!(first, "a completion of a socket that is closing: {completion:?}");
            return;
        }
        let kind = |error: io::Error| error.kind();
        let report = match completion {
            Completion::Accepted(Ok(accepted)) => {
                self.accepted.push((token, accepted));
                Report::Accepted
            }
            Completion::Accepted(Err(error)) => Report::AcceptFailed(error.raw_os_error()),
            Completion::Connected(result) => Report::Connected(result.map_err(kind)),
            Completion::Received(bytes) => {
                assert!(!bytes.is_empty());
                self.receives.push(bytes.len());
                if let Some(Report::Received(before)) = self.reports.entry(token).or_default().last_mut() {
                    before.extend_from_slice(&bytes);
                    return;
                }
                Report::Received(bytes.to_vec())
            }
            Completion::Ended => Report::Ended,
            Completion::HungUp => Report::HungUp,
            Completion::Sent(result) => Report::Sent(result.map_err(kind)),
            Completion::Failed(error) => Report::Failed(error.kind()),
            Completion::Closed => Report::Closed,
            Completion::Woken => Report::Woken,
            Completion::Datagrams(_) | Completion::Transmitted(_) | Completion::DatagramErrors(_) => {
                unreachable!("tests of datagrams have a harness of their own: {completion:?}")
            }
        };
        self.reports.entry(token).or_default().push(report);
    }
}

/// The transport of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Tcp,
    Unix,
}

impl Family {
    pub(crate) const BOTH: [Self; 2] = [Self::Tcp, Self::Unix];

    /// Two streams that are connected to each other. Their buffers are large and have a known size, so that written
    /// bytes fit without a reader.
    pub(crate) fn pair(self) -> (socket2::Socket, socket2::Socket) {
        let (near, far) = match self {
            Self::Unix => socket2::Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap(),
            Self::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                socket2::SockRef::from(&listener).set_recv_buffer_size(BUFFER_BYTES).unwrap();
                let far = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                far.set_send_buffer_size(BUFFER_BYTES).unwrap();
                far.connect(&listener.local_addr().unwrap().into()).unwrap();
                far.set_tcp_nodelay(true).unwrap();
                (listener.accept().unwrap().0.into(), far)
            }
        };
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        far.set_write_timeout(Some(PATIENCE)).unwrap();
        (near, far)
    }
}

/// Resets a connection: the other side gets RST.
pub(crate) fn reset(peer: socket2::Socket) {
    peer.set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
}

/// Reads until the end, or until `length` bytes were read.
pub(crate) fn read(mut peer: &socket2::Socket, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    Read::take(&mut peer, length as u64).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Bytes in which all parts differ.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

pub(crate) fn assert_same(actual: &[u8], expected: &[u8]) {
    assert_eq!(actual.len(), expected.len());
    let difference = actual.iter().zip(expected).position(|(actual, expected)| actual != expected);
    assert_eq!(difference, None, "the first byte that differs");
}

/// The address of a Unix socket as `socket2` has it.
pub(crate) fn unix(path: &Path) -> SockAddr {
    SockAddr::unix(path).unwrap()
}

pub(crate) fn any_port() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

/// Calls until no signal has interrupted the call: the kernel interrupts a call with a time-out to run the work of a ring.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// How long an expected event may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The size that the kernel is requested to use for large buffers.
const BUFFER_BYTES: usize = 1 << 20;

/// A kernel is quiet that reports nothing in so many waits.
const QUIET_WAITS: u32 = 20;

const QUIET_WAIT: Duration = Duration::from_millis(10);
