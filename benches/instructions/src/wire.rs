//! `Wire`: a driver without a kernel. The work that a kernel would do is not counted.
//!
//! Each call of [`deliver`](Peer::deliver) delivers the same bytes to every connection that receives; sends complete in
//! full. On a connection that the loop makes, each HTTP/1.1 request is answered by other bytes, in the turn after it.
//! The clock advances only on request. The driver's work for one connection does not depend on the number of
//! connections.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::{FRAME_RECEIVE_BYTES, Gathered, HEADROOM_BYTES, Pool, Scratch};
use tidegate_sys::{Accepted, Address, Class, Completion, Driver, Operation, Side, Socket, Token, Wake, Waker};

use crate::counted::leave_out;

/// The peer of all connections, and the clock.
#[derive(Debug)]
pub(crate) struct Peer {
    /// How many streams receive the bytes of the wire in the next turn.
    deliveries: Cell<usize>,
    /// How many streams end in the next turn, the oldest first.
    ends: Cell<usize>,
    /// How many streams have not been accepted yet.
    arriving: Cell<u32>,
    /// How the driver closes.
    closing: Cell<Closing>,
    /// Whether the loop has paused receives.
    paused: Cell<bool>,
    received: Cell<u64>,
    /// Other bytes to deliver from the next turn on.
    bytes: RefCell<Option<Vec<u8>>>,
    /// The answer to a request on a connection that the loop has made.
    answer: Cell<&'static [u8]>,
    start: Instant,
    now: Cell<Instant>,
}

/// When the driver reports that a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// At once, as epoll does.
    AtOnce,
    /// As a completion of the same turn, as io_uring does.
    Later,
    /// Not before the setting changes.
    Never,
}

impl Peer {
    pub(crate) fn new() -> Rc<Self> {
        let start = Instant::now();
        Rc::new(Self {
            deliveries: Cell::new(0),
            ends: Cell::new(0),
            arriving: Cell::new(0),
            closing: Cell::new(Closing::AtOnce),
            paused: Cell::new(false),
            received: Cell::new(0),
            bytes: RefCell::default(),
            answer: Cell::new(b""),
            start,
            now: Cell::new(start),
        })
    }

    /// Delivers the bytes of the wire to every receiving stream in the next turn.
    pub(crate) fn deliver(&self) {
        self.deliver_to(usize::MAX);
    }

    /// Changes the bytes of the wire, from the next turn on.
    pub(crate) fn set_bytes(&self, bytes: &[u8]) {
        self.bytes.replace(Some(bytes.to_vec()));
    }

    /// Sets the answer to each request on a connection that the loop has made.
    pub(crate) fn answer(&self, bytes: &'static [u8]) {
        self.answer.set(bytes);
    }

    /// Delivers the bytes of the wire to so many streams in the next turn.
    pub(crate) fn deliver_to(&self, streams: usize) {
        self.deliveries.set(streams);
    }

    /// Ends so many streams in the next turn, the oldest first.
    pub(crate) fn end(&self, streams: usize) {
        self.ends.set(streams);
    }

    /// Adds so many arriving streams.
    pub(crate) fn arrive(&self, streams: u32) {
        self.arriving.set(self.arriving.get() + streams);
    }

    /// Sets how the driver closes from now on.
    pub(crate) fn close(&self, closing: Closing) {
        self.closing.set(closing);
    }

    /// Whether the loop has paused receives.
    pub(crate) fn has_paused_receives(&self) -> bool {
        self.paused.get()
    }

    /// The number of bytes that it was sent on connections that the loop has not made.
    pub(crate) fn received(&self) -> u64 {
        self.received.get()
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }
}

/// The driver.
pub(crate) struct Wire {
    peer: Rc<Peer>,
    /// The bytes that are delivered.
    bytes: Vec<u8>,
    scratch: Scratch,
    listener: Option<Token>,
    /// By slot.
    streams: Vec<Option<Stream>>,
    /// In order of arrival.
    oldest: VecDeque<Token>,
    /// Completions of this turn.
    completions: VecDeque<(Token, Completion)>,
    /// Streams that receive bytes in this turn.
    delivered: VecDeque<Token>,
    /// Streams that receive answers in this turn, and in the next one, and how many.
    answered: VecDeque<(Token, usize)>,
    to_answer: VecDeque<(Token, usize)>,
    /// Closed streams whose last completion is delayed.
    closed: Vec<Token>,
}

struct Stream {
    token: Token,
    receives: bool,
    /// The loop has made the connection.
    is_answered: bool,
}

impl Wire {
    /// A wire with `arriving` streams for the listener to accept.
    pub(crate) fn new(peer: &Rc<Peer>, pool: &Pool, bytes: Vec<u8>, arriving: u32) -> Self {
        peer.arrive(arriving);
        Self {
            peer: peer.clone(),
            bytes,
            scratch: Scratch::with_room(pool, HEADROOM_BYTES, FRAME_RECEIVE_BYTES),
            listener: None,
            streams: Vec::new(),
            oldest: VecDeque::new(),
            completions: VecDeque::new(),
            delivered: VecDeque::new(),
            answered: VecDeque::new(),
            to_answer: VecDeque::new(),
            closed: Vec::new(),
        }
    }

    fn stream(&mut self, token: Token) -> Option<&mut Stream> {
        self.streams.get_mut(token.slot as usize)?.as_mut().filter(|stream| stream.token == token)
    }

    fn adopt(&mut self, token: Token, is_answered: bool) {
        let slot = token.slot as usize;
        if slot >= self.streams.len() {
            self.streams.resize_with(slot + 1, || None);
        }
        self.streams[slot] = Some(Stream { token, receives: false, is_answered });
        self.oldest.push_back(token);
    }

    fn sent(&mut self, token: Token, bytes: usize, heads: usize) {
        if self.stream(token).is_some_and(|stream| stream.is_answered) {
            self.to_answer.push_back((token, heads));
        } else {
            self.peer.received.set(self.peer.received.get() + bytes as u64);
        }
    }

    fn close(&mut self, token: Token) -> Option<Completion> {
        if self.stream(token).is_some() {
            self.streams[token.slot as usize] = None;
        }
        match self.peer.closing.get() {
            Closing::AtOnce => return Some(Completion::Closed),
            Closing::Later => self.completions.push_back((token, Completion::Closed)),
            Closing::Never => self.closed.push(token),
        }
        None
    }

    /// Queues the completions of this turn.
    fn begin_turn(&mut self) {
        if let Some(bytes) = self.peer.bytes.take() {
            self.bytes = bytes;
        }
        if let Some(listener) = self.listener {
            for number in 0..self.peer.arriving.take() {
                let accepted = Accepted { socket: Socket::Simulated(u64::from(number)), peer: address() };
                self.completions.push_back((listener, Completion::Accepted(Ok(accepted))));
            }
        }
        for _ in 0..self.peer.ends.take() {
            let token = self.oldest.pop_front().expect("there are enough streams");
            self.completions.push_back((token, Completion::Ended));
        }
        if self.peer.closing.get() != Closing::Never {
            self.completions.extend(self.closed.drain(..).map(|token| (token, Completion::Closed)));
        }
        let receiving = self.streams.iter().flatten().filter(|stream| stream.receives && !stream.is_answered);
        let receiving = receiving.map(|stream| stream.token);
        self.delivered.extend(receiving.take(self.peer.deliveries.take()));
        self.answered.append(&mut self.to_answer);
    }
}

impl Driver for Wire {
    fn name(&self) -> &'static str {
        "wire"
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::new(NullWake))
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        match operation {
            Operation::Send { queue, bytes_max } => {
                let mut parts = [const { MaybeUninit::uninit() }; PARTS];
                let (sent, heads) = match queue.gather(&mut parts, bytes_max) {
                    Gathered::Parts(parts) | Gathered::PartsBeforeFile(parts) => {
                        (parts.iter().map(|part| part.len()).sum(), leave_out(|| heads(parts)))
                    }
                    Gathered::Nothing | Gathered::File(_) => (0, 0),
                };
                leave_out(|| self.sent(token, sent, heads));
                Some(Completion::Sent(Ok(sent)))
            }
            Operation::Receive(on) => {
                self.stream(token)?.receives = on;
                None
            }
            Operation::Adopt(_) => {
                leave_out(|| self.adopt(token, false));
                None
            }
            Operation::Listen(_) => {
                self.listener = Some(token);
                None
            }
            Operation::Close { .. } => leave_out(|| self.close(token)),
            Operation::Accept(_) | Operation::ShutdownWrite | Operation::Bind { .. } | Operation::Transmit(_) => None,
            Operation::Connect { .. } => {
                self.adopt(token, true);
                self.completions.push_back((token, Completion::Connected(Ok(()))));
                None
            }
        }
    }

    fn wait(&mut self, _: Option<Duration>) -> io::Result<()> {
        leave_out(|| self.begin_turn());
        Ok(())
    }

    fn next(&mut self, _: Class) -> Option<(Token, Completion)> {
        if let Some(completion) = self.completions.pop_front() {
            return Some(completion);
        }
        let (token, bytes, times) = match self.answered.pop_front() {
            Some((token, times)) => (token, self.peer.answer.get(), times),
            None => (self.delivered.pop_front()?, &*self.bytes, 1),
        };
        let length = bytes.len() * times;
        let space = self.scratch.space(length);
        leave_out(|| space.chunks_mut(bytes.len().max(1)).for_each(|space| space.copy_from_slice(bytes)));
        Some((token, Completion::Received(self.scratch.received(length))))
    }

    fn has_ready(&self) -> bool {
        false
    }

    fn pause_receives(&mut self, paused: bool) {
        self.peer.paused.set(paused);
    }

    fn now(&self) -> Instant {
        self.peer.now.get()
    }

    fn system_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.peer.now.get().saturating_duration_since(self.peer.start)
    }

    fn address(&self, _: Token, _: Side) -> io::Result<Address> {
        Ok(address())
    }
}

/// How many heads end in the sent bytes.
fn heads(parts: &[IoSlice<'_>]) -> usize {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    bytes.windows(4).filter(|end| *end == b"\r\n\r\n").count()
}

pub(crate) fn address() -> Address {
    Address::Ip(([192, 0, 2, 1], 49152).into())
}

/// Does nothing: the job itself turns the loop.
pub(crate) struct NullWake;

impl Wake for NullWake {
    fn wake(&self) {}
}

/// The parts of one gathering write, as many as in a real driver.
const PARTS: usize = 1024;
