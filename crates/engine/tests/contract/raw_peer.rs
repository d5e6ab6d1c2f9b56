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

use crate::multiplexer::Frame;
use crate::stack::{MakeTransport, Transport};

/// The peer. Clones are the same peer.
#[derive(Clone)]
pub(crate) struct RawPeer(Rc<RefCell<Inner>>);

struct Inner {
    driver: Box<dyn Driver>,
    pool: Pool,
    ends: Vec<End>,
    make_transport: Option<MakeTransport>,
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
    /// The transport below its bytes; `None` without one.
    transport: Option<Box<dyn Transport>>,
    /// The scenario wants it to receive. A handshake is received in any case.
    receives: bool,
    /// Plain bytes that wait for the handshake, or the end of all of them.
    waits: u64,
    /// The end of the plain bytes waits for the handshake.
    ends: bool,
    completions: Completions,
    /// The frames of so many received bytes.
    frames: (usize, Rc<[Frame]>),
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
    pub(crate) fn new(driver: Box<dyn Driver>, pool: Pool, make_transport: Option<MakeTransport>) -> Self {
        Self(Rc::new(RefCell::new(Inner { driver, pool, ends: Vec::new(), make_transport })))
    }

    /// Begins to connect. Returns the number of the socket.
    pub(crate) fn connect(&self, address: &Address) -> usize {
        self.connect_with(address, &SocketOptions::default())
    }

    pub(crate) fn connect_with(&self, address: &Address, options: &SocketOptions) -> usize {
        let inner = &mut *self.0.borrow_mut();
        let transport = inner.make_transport.map(|make| make());
        inner.begin(Operation::Connect { address, local: None, options }, transport)
    }

    /// The same without a handshake, and without the steps after it.
    pub(crate) fn connect_bare(&self, address: &Address) -> usize {
        let options = &SocketOptions::default();
        self.0.borrow_mut().begin(Operation::Connect { address, local: None, options }, None)
    }

    /// Begins to listen, and to receive from accepted connections.
    pub(crate) fn listen(&self, socket: Socket) -> usize {
        self.0.borrow_mut().begin(Operation::Listen(socket), None)
    }

    pub(crate) fn receive(&self, end: usize, on: bool) {
        let inner = &mut *self.0.borrow_mut();
        inner.ends[end].receives = on;
        if inner.ends[end].is_established() {
            inner.submit(end, Operation::Receive(on));
        }
    }

    /// Whether it has no handshake that is not complete.
    pub(crate) fn is_established(&self, end: usize) -> bool {
        self.0.borrow().ends[end].is_established()
    }

    /// Resumes or pauses accepting.
    pub(crate) fn accept(&self, end: usize, on: bool) {
        self.0.borrow_mut().ends[end].pauses = !on;
        self.0.borrow_mut().submit(end, Operation::Accept(on));
    }

    /// Sends the pending bytes and then these.
    pub(crate) fn send(&self, end: usize, bytes: &[u8]) {
        let inner = &mut *self.0.borrow_mut();
        match &mut inner.ends[end].transport {
            Some(transport) => {
                transport.write(bytes);
                inner.ends[end].waits += bytes.len() as u64;
                inner.carry(end);
            }
            None => inner.write(end, bytes),
        }
    }

    /// Ends the plain bytes of this side, if there is something below them.
    pub(crate) fn end_plain(&self, end: usize) {
        let inner = &mut *self.0.borrow_mut();
        if inner.ends[end].transport.is_some() {
            inner.ends[end].ends = true;
            inner.ends[end].waits += 1;
            inner.carry(end);
        }
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

    /// The frames of the received bytes, which `parse` returns. They are parsed again only if bytes have arrived: a scenario
    /// asks at each step.
    pub(crate) fn frames(&self, end: usize, parse: impl FnOnce(&[u8]) -> Vec<Frame>) -> Rc<[Frame]> {
        let End { completions, frames, .. } = &mut self.0.borrow_mut().ends[end];
        if frames.0 < completions.received.len() {
            *frames = (completions.received.len(), parse(&completions.received).into());
        }
        frames.1.clone()
    }

    /// Bytes that wait to be sent.
    pub(crate) fn pending(&self, end: usize) -> u64 {
        let end = &self.0.borrow().ends[end];
        end.queue.pending() + if end.broken { 0 } else { end.waits }
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

    fn begin(&mut self, operation: Operation<'_>, transport: Option<Box<dyn Transport>>) -> usize {
        let end = self.ends.len();
        self.ends.push(End {
            queue: Outbound::new(&self.pool),
            sending: false,
            broken: false,
            pauses: false,
            transport,
            receives: false,
            waits: 0,
            ends: false,
            completions: Completions::default(),
            frames: (0, Rc::default()),
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
                let new = self.begin(Operation::Adopt(accepted.socket), None);
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
                let is_connected = result.is_ok();
                completions.connected = Some(result.map_err(|error| error.kind()));
                self.carry(end);
                if is_connected && !self.ends[end].is_established() {
                    self.submit(end, Operation::Receive(true));
                }
                self.flush(end);
            }
            Completion::Received(bytes) => self.received(end, &bytes),
            Completion::Ended => {
                completions.ended += 1;
                self.ends[end].forget_waiting();
            }
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
                self.ends[end].forget_waiting();
            }
            // It watches for no end.
            Completion::HungUp | Completion::Woken => {}
            Completion::Datagrams(_) | Completion::Transmitted(_) | Completion::DatagramErrors(_) => {
                unreachable!("it has no datagrams")
            }
        }
    }

    fn received(&mut self, number: usize, bytes: &[u8]) {
        let end = &mut self.ends[number];
        let was_established = end.is_established();
        let Some(transport) = &mut end.transport else {
            return end.completions.received.extend_from_slice(bytes);
        };
        match transport.receive(bytes) {
            Ok(plain) => end.completions.received.extend_from_slice(&plain),
            Err(error) => panic!("the server has sent bytes that are no part of the protocol: {error}"),
        }
        self.carry(number);
        let end = &self.ends[number];
        if !was_established && end.is_established() && !end.receives {
            self.submit(number, Operation::Receive(false));
        }
    }

    /// Moves the transport's output to the queue.
    fn carry(&mut self, number: usize) {
        let end = &mut self.ends[number];
        let Some(transport) = &mut end.transport else { return };
        let is_established = transport.is_established();
        if is_established && std::mem::take(&mut end.ends) {
            transport.close();
        }
        let wire = transport.outgoing();
        if is_established || end.completions.ended > 0 {
            end.waits = 0;
        }
        self.write(number, &wire);
    }

    fn write(&mut self, end: usize, wire: &[u8]) {
        self.ends[end].queue.write(wire);
        self.ends[end].queue.flush();
        self.flush(end);
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

impl End {
    /// The server has ended: a handshake that is not complete never will be.
    fn forget_waiting(&mut self) {
        if !self.is_established() {
            self.waits = 0;
        }
    }

    fn is_established(&self) -> bool {
        self.transport.as_ref().is_none_or(|transport| transport.is_established())
    }
}

const fn token(end: usize) -> Token {
    Token { slot: end as u32, generation: 1 }
}

/// A driver with more completions than this continues in the next turn.
const TURNS_MAX: usize = 1000;
