//! `Wire`: a driver without a system below it. What it does in a kernel's stead is not counted.
//!
//! Every connection that receives is brought the same bytes, once each time that it is told to [`bring`](Peer::bring);
//! what is sent is taken whole. Its clock stands still until it is moved.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::{Gathered, Pool, Scratch};
use tidegate_sys::{Accepted, Address, Class, Completion, Driver, Operation, Side, Socket, Token, Wake, Waker};

use crate::counted::count_this;

/// Whoever is at the other end of all connections, and the time.
#[derive(Debug)]
pub(crate) struct Peer {
    brings: Cell<bool>,
    received: Cell<u64>,
    start: Instant,
    now: Cell<Instant>,
}

impl Peer {
    pub(crate) fn new() -> Rc<Self> {
        let start = Instant::now();
        Rc::new(Self { brings: Cell::new(false), received: Cell::new(0), start, now: Cell::new(start) })
    }

    /// Everybody who receives gets the bytes of the wire in the next turn.
    pub(crate) fn bring(&self) {
        self.brings.set(true);
    }

    /// How many bytes it was sent.
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
    /// What is brought.
    bytes: Vec<u8>,
    scratch: Scratch,
    listener: Option<Token>,
    /// Streams that were not accepted yet.
    arriving: u32,
    streams: Vec<Stream>,
    /// Which stream is next.
    turn: usize,
}

struct Stream {
    token: Token,
    receives: bool,
}

impl Wire {
    /// A wire on which so many streams come to whoever listens.
    pub(crate) fn new(peer: &Rc<Peer>, pool: &Pool, bytes: Vec<u8>, arriving: u32) -> Self {
        let scratch = Scratch::new(pool);
        let peer = peer.clone();
        Self { peer, bytes, scratch, listener: None, arriving, streams: Vec::new(), turn: usize::MAX }
    }

    fn accepted(&mut self) -> Option<(Token, Completion)> {
        let listener = self.listener?;
        self.arriving = self.arriving.checked_sub(1)?;
        let accepted = Accepted { socket: Socket::Simulated(u64::from(self.arriving)), peer: address() };
        Some((listener, Completion::Accepted(Ok(accepted))))
    }
}

impl Driver for Wire {
    fn name(&self) -> &'static str {
        "wire"
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::new(Nobody))
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        match operation {
            Operation::Send { queue, bytes_max } => {
                let mut parts = [const { MaybeUninit::uninit() }; PARTS];
                let sent = match queue.gather(&mut parts, bytes_max) {
                    Gathered::Parts(parts) => parts.iter().map(|part| part.len()).sum(),
                    Gathered::Nothing | Gathered::File(_) => 0,
                };
                self.peer.received.set(self.peer.received.get() + sent as u64);
                Some(Completion::Sent(Ok(sent)))
            }
            Operation::Receive(on) => {
                let stream = self.streams.iter_mut().find(|stream| stream.token == token)?;
                stream.receives = on;
                None
            }
            Operation::Adopt(_) => {
                self.streams.push(Stream { token, receives: false });
                None
            }
            Operation::Listen(_) => {
                self.listener = Some(token);
                None
            }
            Operation::Close { .. } => {
                self.streams.retain(|stream| stream.token != token);
                Some(Completion::Closed)
            }
            Operation::Accept(_) | Operation::ShutdownWrite => None,
            Operation::Connect { .. } => Some(Completion::Failed(io::ErrorKind::Unsupported.into())),
        }
    }

    fn wait(&mut self, _: Option<Duration>) -> io::Result<()> {
        self.turn = if self.peer.brings.take() { 0 } else { usize::MAX };
        Ok(())
    }

    fn next(&mut self, _: Class) -> Option<(Token, Completion)> {
        if self.arriving > 0 {
            return self.accepted();
        }
        let Stream { token, receives } = *self.streams.get(self.turn)?;
        self.turn += 1;
        if !receives {
            return None;
        }
        let space = self.scratch.space(self.bytes.len());
        count_this(|| space.copy_from_slice(&self.bytes));
        Some((token, Completion::Received(self.scratch.received(self.bytes.len()))))
    }

    fn hold_receives(&mut self, _: bool) {}

    fn now(&self) -> Instant {
        self.peer.now.get()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.peer.now.get().saturating_duration_since(self.peer.start)
    }

    fn address(&self, _: Token, _: Side) -> io::Result<Address> {
        Ok(address())
    }
}

pub(crate) fn address() -> Address {
    Address::Ip(([192, 0, 2, 1], 49152).into())
}

/// Its loop is turned by hand.
struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

/// Parts of one gathering write, as many as a real driver has.
const PARTS: usize = 1024;
