//! `RawPeer`: a peer without an event loop, which uses a driver's operations one by one and records the completions.
//!
//! Scenarios use it for actions that no application of ours would take: reset, be silent, send half a record. It is
//! also the smallest user of a driver, and tests the driver without an engine that might compensate for its errors.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tidegate_buffer::{Outbound, Pool};
use tidegate_sys::{Address, Completion, Driver, Operation, Side, Socket, SocketOptions, Token};

/// The peer. Clones are the same peer.
#[derive(Clone)]
pub(crate) struct RawPeer(Rc<RefCell<Inner>>);

struct Inner {
    driver: Box<dyn Driver>,
    pool: Pool,
    ends: Vec<End>,
}

/// The state of one of its sockets.
struct End {
    queue: Outbound,
    /// A send is in flight; the driver uses the queue's memory until it completes.
    sending: bool,
    /// The socket failed: bytes that are not sent yet are dropped.
    broken: bool,
    /// Accepting is paused.
    pauses: bool,
    completions: Completions,
}

/// The completions of a socket, accumulated.
#[derive(Debug, Clone, Default)]
pub(crate) struct Completions {
    pub(crate) connected: Option<Result<(), io::ErrorKind>>,
    pub(crate) received: Vec<u8>,
    pub(crate) sent: usize,
    /// How often the driver reported the end of the other side.
    pub(crate) ended: usize,
    pub(crate) failed: Vec<io::ErrorKind>,
    /// Connections that were accepted, by their numbers.
    pub(crate) accepted: Vec<(usize, Address)>,
    pub(crate) closed: bool,
}

impl RawPeer {
    pub(crate) fn new(driver: Box<dyn Driver>, pool: Pool) -> Self {
        Self(Rc::new(RefCell::new(Inner { driver, pool, ends: Vec::new() })))
    }

    /// Begins to connect. Returns the number of the socket.
    pub(crate) fn connect(&self, address: &Address) -> usize {
        self.connect_with(address, &SocketOptions::default())
    }

    pub(crate) fn connect_with(&self, address: &Address, options: &SocketOptions) -> usize {
        self.0.borrow_mut().begin(Operation::Connect { address, local: None, options })
    }

    /// Begins to listen, and to receive from accepted connections.
    pub(crate) fn listen(&self, socket: Socket) -> usize {
        self.0.borrow_mut().begin(Operation::Listen(socket))
    }

    pub(crate) fn receive(&self, end: usize, on: bool) {
        self.0.borrow_mut().submit(end, Operation::Receive(on));
    }

    /// Resumes or pauses accepting.
    pub(crate) fn accept(&self, end: usize, on: bool) {
        self.0.borrow_mut().ends[end].pauses = !on;
        self.0.borrow_mut().submit(end, Operation::Accept(on));
    }

    /// Sends the pending bytes and then these.
    pub(crate) fn send(&self, end: usize, bytes: &[u8]) {
        let inner = &mut *self.0.borrow_mut();
        inner.ends[end].queue.write(bytes);
        inner.ends[end].queue.flush();
        inner.flush(end);
    }

    pub(crate) fn shutdown_write(&self, end: usize) {
        self.0.borrow_mut().submit(end, Operation::ShutdownWrite);
    }

    /// Closes a socket, and drops its pending bytes.
    pub(crate) fn close(&self, end: usize, reset: bool) {
        self.0.borrow_mut().submit(end, Operation::Close { reset });
    }

    pub(crate) fn completions(&self, end: usize) -> Completions {
        self.0.borrow().ends[end].completions.clone()
    }

    /// Reads the accumulated completions without copying them.
    pub(crate) fn inspect<T>(&self, end: usize, inspect: impl FnOnce(&Completions) -> T) -> T {
        inspect(&self.0.borrow().ends[end].completions)
    }

    /// Bytes that wait to be sent.
    pub(crate) fn pending(&self, end: usize) -> u64 {
        self.0.borrow().ends[end].queue.pending()
    }

    pub(crate) fn address(&self, end: usize, side: Side) -> io::Result<Address> {
        self.0.borrow().driver.address(token(end), side)
    }

    pub(crate) fn pool(&self) -> Pool {
        self.0.borrow().pool.clone()
    }

    /// Closes all open sockets.
    pub(crate) fn close_all(&self) {
        let count = self.0.borrow().ends.len();
        (0..count).filter(|end| !self.inspect(*end, |seen| seen.closed)).for_each(|end| self.close(end, true));
    }

    /// Takes the completions that the driver has now.
    pub(crate) fn turn(&self) {
        let inner = &mut *self.0.borrow_mut();
        for _ in 0..TURNS_MAX {
            inner.driver.wait(Some(Duration::ZERO)).expect("waiting does not fail");
            let mut silent = true;
            while let Some((token, completion)) = inner.next() {
                silent = false;
                if let Some(end) = inner.ends.get(token.slot as usize).map(|_| token.slot as usize) {
                    inner.complete(end, completion);
                }
            }
            if silent {
                return;
            }
        }
    }
}

impl Inner {
    fn next(&mut self) -> Option<(Token, Completion)> {
        self.driver.next_of_any()
    }

    fn begin(&mut self, operation: Operation<'_>) -> usize {
        let end = self.ends.len();
        self.ends.push(End {
            queue: Outbound::new(&self.pool),
            sending: false,
            broken: false,
            pauses: false,
            completions: Completions::default(),
        });
        self.submit(end, operation);
        end
    }

    fn submit(&mut self, end: usize, operation: Operation<'_>) {
        if let Some(completion) = self.driver.submit(token(end), operation) {
            self.complete(end, completion);
        }
    }

    fn complete(&mut self, end: usize, completion: Completion) {
        let completions = &mut self.ends[end].completions;
        match completion {
            Completion::Accepted(Ok(accepted)) => {
                let new = self.begin(Operation::Adopt(accepted.socket));
                self.ends[end].completions.accepted.push((new, accepted.peer));
                self.submit(new, Operation::Receive(true));
            }
            Completion::Accepted(Err(error)) => {
                completions.failed.push(error.kind());
                // Retried, as a server does that waits for free descriptors.
                if !self.ends[end].pauses {
                    self.submit(end, Operation::Accept(true));
                }
            }
            Completion::Connected(result) => {
                completions.connected = Some(result.map_err(|error| error.kind()));
                self.flush(end);
            }
            Completion::Received(bytes) => completions.received.extend_from_slice(&bytes),
            Completion::Ended => completions.ended += 1,
            Completion::Sent(Ok(count)) => {
                completions.sent += count;
                self.ends[end].queue.advance(count as u64);
                self.sent(end);
                self.flush(end);
            }
            Completion::Sent(Err(error)) => {
                completions.failed.push(error.kind());
                self.ends[end].broken = true;
                self.sent(end);
            }
            Completion::Failed(error) => {
                completions.failed.push(error.kind());
                self.ends[end].broken = true;
                self.forget_unsent(end);
            }
            Completion::Closed => {
                completions.closed = true;
                self.ends[end].queue.clear();
            }
            Completion::Woken => {}
        }
    }

    /// No send is in flight any more.
    fn sent(&mut self, end: usize) {
        self.ends[end].sending = false;
        self.forget_unsent(end);
    }

    fn forget_unsent(&mut self, end: usize) {
        let end = &mut self.ends[end];
        if end.broken && !end.sending {
            end.queue.clear();
        }
    }

    /// Sends while the driver takes bytes.
    fn flush(&mut self, end: usize) {
        while self.ends[end].queue.has_flushed() && !self.ends[end].sending {
            let Self { driver, ends, .. } = self;
            let operation = Operation::Send { queue: &mut ends[end].queue, bytes_max: 1 << 20 };
            match driver.submit(token(end), operation) {
                None => ends[end].sending = true,
                Some(Completion::Sent(Ok(count))) => {
                    ends[end].completions.sent += count;
                    ends[end].queue.advance(count as u64);
                }
                Some(completion) => return self.complete(end, completion),
            }
        }
    }
}

const fn token(end: usize) -> Token {
    Token { slot: end as u32, generation: 1 }
}

/// A driver with more completions than this continues in the next turn.
const TURNS_MAX: usize = 1000;
