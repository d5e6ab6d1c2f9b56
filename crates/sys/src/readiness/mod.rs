//! The readiness driver: epoll through mio, edge-triggered, every socket registered once for both directions.
//!
//! An event only sets flags of its socket and queues the socket (`ready.rs`). Then the driver polls the queued sockets
//! one after the other, light ones first, and each returns one completion at a time. So a turn is fair and bounded, and
//! one function decides each report: `poll_socket`.
//!
//! Three rules of edge-triggered events, and where the driver keeps them:
//! - A short receive means that the socket is drained, **unless a hang-up was reported with it**. A FIN that arrives
//!   together with data is never reported again, so the driver then reads on (`receive.rs`).
//! - A short send means that the kernel's buffer is full, and that an edge follows when it has room (`send.rs`).
//! - Nothing is ever re-armed: a socket that stops receiving only ignores its flag.
//!
//! A receive is also short where a peer has passed descriptors over a Unix socket. A stream that keeps descriptors reads on
//! until nothing is left. On others the bytes behind the descriptors wait for the peer's next bytes, so only such a peer
//! has to wait: another system call after every receive would cost all other peers.

mod datagram;
mod receive;
mod send;
mod table;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll};
use tidegate_buffer::{Address, Credentials, Datagram, Membership, Pool, ReceiveHint, Slice};

use self::table::{Flags, Sockets};
use crate::datagram::{DatagramIo, set_membership};
use crate::driver::{Completion, Driver, Operation, Side, Token};
use crate::gather::IoVectors;
use crate::options::SocketOptions;
use crate::passed_descriptors::{self, PassedDescriptors};
use crate::ready::{Class, ReadyQueue};
use crate::receive_space::ReceiveSpace;
use crate::socket::{self, Socket};
use crate::wake::{Wake, Waker};

/// The driver on epoll.
pub struct Readiness {
    poll: Poll,
    events: Events,
    waker: Arc<EventWaker>,
    sockets: Sockets,
    ready: ReadyQueue<Token>,
    woken: bool,
    /// Readable sockets whose receives are paused; `None` while receives are not paused.
    paused_sockets: Option<Vec<Token>>,
    receive_space: ReceiveSpace,
    pool: Pool,
    /// The datagram sockets, if there are any.
    datagrams: Option<Box<DatagramIo>>,
    vectors: IoVectors,
}

impl Readiness {
    /// Creates a driver that receives into memory of `pool`.
    ///
    /// # Errors
    /// Those of the system, if there is no descriptor left.
    pub fn new(pool: &Pool) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(EventWaker(mio::Waker::new(poll.registry(), WAKER)?));
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS_PER_POLL_MAX),
            waker,
            sockets: Sockets::default(),
            ready: ReadyQueue::default(),
            woken: false,
            paused_sockets: None,
            receive_space: ReceiveSpace::new(pool),
            pool: pool.clone(),
            datagrams: None,
            vectors: IoVectors::new(),
        })
    }

    /// Takes over a descriptor, and closes it if epoll refuses it.
    fn register(&mut self, token: Token, descriptor: OwnedFd, flags: Flags) -> io::Result<()> {
        let interest = if flags.contains(Flags::LISTENER) { Interest::READABLE } else { BOTH };
        self.poll.registry().register(&mut SourceFd(&descriptor.as_raw_fd()), to_mio(token), interest)?;
        self.sockets.insert(token, descriptor, flags);
        Ok(())
    }

    fn adopt(&mut self, token: Token, socket: Socket, flags: Flags) -> Option<Completion> {
        let Socket::Descriptor(descriptor) = socket else {
            return Some(Completion::Failed(io::ErrorKind::Unsupported.into()));
        };
        self.register(token, descriptor, flags).err().map(Completion::Failed)
    }

    fn connect(
        &mut self,
        token: Token,
        address: &Address,
        local: Option<&Address>,
        options: &SocketOptions,
    ) -> Option<Completion> {
        let started = socket::connect(address, local, options).and_then(|(descriptor, pending)| {
            let flags = if pending { Flags::CONNECTING } else { Flags::NONE };
            self.register(token, descriptor, flags).map(|()| pending)
        });
        match started {
            Ok(true) => None,
            Ok(false) => Some(Completion::Connected(Ok(()))),
            Err(error) => Some(Completion::Connected(Err(error))),
        }
    }

    /// Switches receiving or accepting on or off. Queues the socket if it is switched on and ready.
    fn switch(&mut self, token: Token, flag: Flags, on: bool) {
        let Some(socket) = self.sockets.get_mut(token) else { return };
        socket.flags.set(flag, on);
        let is_ready = on && socket.flags.intersects(Flags::READABLE.union(Flags::ERROR));
        if is_ready || socket.flags.is_end_due() {
            enqueue(&mut self.ready, socket, token);
        }
    }

    fn close(&mut self, token: Token, reset: bool) {
        let Some(socket) = self.sockets.remove(token) else { return };
        self.receive_space.forget(token);
        if socket.flags.contains(Flags::DATAGRAM) {
            self.forget_datagrams(token);
        } else if reset {
            // A linger time of zero makes close send RST. If it cannot be set, an orderly close has to do.
            let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
        }
        // Closing the last descriptor removes it from the poller; the listener of a server may have clones.
        let _ = self.poll.registry().deregister(&mut SourceFd(&socket.as_raw_fd()));
    }

    /// Sets the flags that an epoll event reports.
    fn note(sockets: &mut Sockets, ready: &mut ReadyQueue<Token>, event: &Event) {
        let token = from_mio(event.token());
        let Some(socket) = sockets.get_mut(token) else { return };
        let flags = &mut socket.flags;
        if event.is_readable() {
            flags.set(Flags::READABLE, true);
        }
        if event.is_read_closed() || event.is_priority() {
            flags.set(Flags::HUNG_UP, true);
        }
        if event.is_read_closed() {
            flags.set(Flags::PEER_ENDED, true);
        }
        if event.is_error() {
            flags.set(Flags::ERROR, true);
        }
        if event.is_writable() || event.is_write_closed() {
            flags.set(Flags::WRITABLE, true);
        }
        enqueue(ready, socket, token);
    }

    /// The only place that decides a socket's report, if any. A socket that may have more to report is queued again.
    fn poll_socket(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        let flags = &mut socket.flags;
        flags.set(Flags::QUEUED, false);
        if flags.contains(Flags::LISTENER) {
            let is_datagram = flags.contains(Flags::CONNECTING);
            return if is_datagram { self.poll_datagrams(token) } else { self.accept(token) };
        }
        if flags.contains(Flags::CONNECTING) {
            // WRITABLE stays set: a send that was requested before the connection was made waits for it.
            let is_decided = flags.intersects(Flags::WRITABLE.union(Flags::ERROR).union(Flags::HUNG_UP));
            return if is_decided { self.connected(token) } else { None };
        }
        if flags.take(Flags::WRITABLE) && flags.take(Flags::SEND_BLOCKED) {
            enqueue(&mut self.ready, socket, token);
            return Some(Completion::Sent(Ok(0)));
        }
        let may_receive = flags.contains(Flags::RECEIVING) && !flags.intersects(Flags::ENDED.union(Flags::FAILED));
        if may_receive && flags.intersects(Flags::READABLE.union(Flags::ERROR)) {
            match &mut self.paused_sockets {
                None => return self.receive(token),
                // A failure is reported at once, before bytes that arrived, since it gives memory back.
                Some(_) if flags.contains(Flags::ERROR) => {}
                Some(_) if flags.contains(Flags::RECV_PAUSED) => return None,
                Some(paused) => {
                    flags.set(Flags::RECV_PAUSED, true);
                    paused.push(token);
                    return None;
                }
            }
        }
        if flags.contains(Flags::ERROR) && !flags.contains(Flags::FAILED) {
            flags.set(Flags::FAILED, true);
            let error = rustix::net::sockopt::socket_error(&socket.descriptor);
            let error = error.ok().and_then(Result::err).unwrap_or(rustix::io::Errno::CONNRESET);
            return Some(Completion::Failed(error.into()));
        }
        if flags.is_end_due() {
            flags.set(Flags::WATCHED, false);
            return Some(Completion::HungUp);
        }
        None
    }

    fn connected(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        let result = match rustix::net::sockopt::socket_error(&socket.descriptor) {
            Ok(result) => result,
            Err(errno) => Err(errno),
        };
        socket.flags.set(Flags::CONNECTING, false);
        if result.is_err() {
            socket.flags.set(Flags::FAILED, true);
        }
        enqueue(&mut self.ready, socket, token);
        Some(Completion::Connected(result.map_err(Into::into)))
    }

    fn accept(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        if !socket.flags.contains(Flags::READABLE) || !socket.flags.contains(Flags::ACCEPTING) {
            return None;
        }
        let accepted = socket::accept(&socket.descriptor).transpose();
        match &accepted {
            None => socket.flags.set(Flags::READABLE, false),
            // Still readable, and not queued: an immediate retry would fail again, for as long as the cause lasts.
            Some(Err(_)) => {}
            Some(Ok(_)) => enqueue(&mut self.ready, socket, token),
        }
        accepted.map(Completion::Accepted)
    }
}

impl Driver for Readiness {
    fn name(&self) -> &'static str {
        "epoll"
    }

    fn waker(&self) -> Waker {
        Waker::new(self.waker.clone())
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        match operation {
            Operation::Listen(socket) => self.adopt(token, socket, Flags::LISTENER.union(Flags::ACCEPTING)),
            Operation::Adopt(socket) => self.adopt(token, socket, Flags::NONE),
            Operation::Connect { address, local, options } => self.connect(token, address, local, options),
            Operation::Bind { socket, options } => self.bind(token, socket, options),
            Operation::Transmit(transmits) => self.transmit(token, transmits),
            Operation::Accept(on) => {
                self.switch(token, Flags::ACCEPTING, on);
                None
            }
            Operation::Receive(on) => {
                self.switch(token, Flags::RECEIVING, on);
                None
            }
            Operation::Send { queue, bytes_max } => self.send(token, queue, bytes_max),
            Operation::ShutdownWrite => {
                if let Some(socket) = self.sockets.get_mut(token) {
                    // It fails only if the connection has broken, which is reported by another completion.
                    let _ = rustix::net::shutdown(&socket.descriptor, rustix::net::Shutdown::Write);
                }
                None
            }
            Operation::Close { reset } => {
                self.close(token, reset);
                Some(Completion::Closed)
            }
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut timeout = if self.ready.is_empty() { timeout } else { Some(Duration::ZERO) };
        // Events of more heavy sockets than one call reports may precede that of a light socket.
        for _ in 0..POLLS_PER_TURN_MAX {
            if let Err(error) = self.poll.poll(&mut self.events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                return Err(error);
            }
            let mut events = 0;
            for event in &self.events {
                events += 1;
                if event.token() == WAKER {
                    self.woken = true;
                } else {
                    Self::note(&mut self.sockets, &mut self.ready, event);
                }
            }
            self.events.clear();
            timeout = Some(Duration::ZERO);
            if events < EVENTS_PER_POLL_MAX {
                break;
            }
        }
        self.ready.begin_turn();
        Ok(())
    }

    fn next(&mut self, class: Class) -> Option<(Token, Completion)> {
        if std::mem::take(&mut self.woken) {
            return Some((NO_SOCKET, Completion::Woken));
        }
        while let Some(token) = self.ready.next(class) {
            if let Some(completion) = self.poll_socket(token) {
                return Some((token, completion));
            }
        }
        None
    }

    fn watch_end(&mut self, token: Token) {
        let Some(socket) = self.sockets.get_mut(token) else { return };
        socket.flags.set(Flags::WATCHED, true);
        if socket.flags.is_end_due() {
            enqueue(&mut self.ready, socket, token);
        }
    }

    fn hint_receive(&mut self, token: Token, hint: ReceiveHint) {
        self.receive_space.hint(token, hint);
    }

    fn note_work(&mut self, token: Token) {
        if let Some(socket) = self.sockets.get_mut(token) {
            socket.load.note_work();
        }
    }

    fn unacknowledged(&self, token: Token) -> Option<u64> {
        socket::unacknowledged(self.sockets.get(token)?.descriptor.as_fd())
    }

    fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn has_input(&mut self, token: Token) -> bool {
        let receives = |flags: Flags| {
            flags.contains(Flags::RECEIVING)
                && !flags.intersects(Flags::ENDED.union(Flags::FAILED).union(Flags::CONNECTING))
        };
        self.sockets
            .get(token)
            .is_some_and(|socket| receives(socket.flags) && socket::has_input(socket.descriptor.as_fd()))
    }

    fn give_back(&mut self, batch: Vec<Datagram>) {
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.give_back(batch);
        }
    }

    fn datagram_drops(&self, token: Token) -> u64 {
        self.datagrams.as_ref().map_or(0, |datagrams| datagrams.drops(token.slot))
    }

    fn receive_rest(&mut self, token: Token) -> Option<Slice> {
        let socket = self.sockets.get(token).filter(|_| self.paused_sockets.is_none())?;
        self.receive_space.receive_rest(token, &socket.descriptor)
    }

    fn pause_receives(&mut self, pause: bool) {
        if pause {
            self.paused_sockets.get_or_insert_default();
        } else if let Some(paused) = self.paused_sockets.take() {
            for token in paused {
                // Some were closed meanwhile, and their slots may have other occupants.
                let Some(socket) = self.sockets.get_mut(token) else { continue };
                if socket.flags.take(Flags::RECV_PAUSED) {
                    enqueue(&mut self.ready, socket, token);
                }
            }
        }
    }

    fn address(&self, token: Token, side: Side) -> io::Result<Address> {
        let socket = self.sockets.get(token).ok_or(io::ErrorKind::NotConnected)?;
        socket::address_of(socket.descriptor.as_fd(), side)
    }

    fn credentials(&self, token: Token) -> io::Result<Credentials> {
        let socket = self.sockets.get(token).ok_or(io::ErrorKind::NotConnected)?;
        socket::peer_credentials(socket.descriptor.as_fd())
    }

    fn set_membership(&mut self, token: Token, membership: &Membership) -> io::Result<()> {
        let socket = self.sockets.get(token).ok_or(io::ErrorKind::NotConnected)?;
        set_membership(socket.descriptor.as_fd(), membership)
    }

    fn keep_descriptors(&mut self, token: Token, descriptors_max: u8) -> io::Result<()> {
        let socket = self.sockets.get_mut(token).ok_or(io::ErrorKind::NotConnected)?;
        self.receive_space.keep_descriptors(token, &socket.descriptor, descriptors_max)?;
        // A receive stops before the next bytes that have descriptors, as the last one may have done.
        socket.flags.set(Flags::HUNG_UP.union(Flags::READABLE), true);
        enqueue(&mut self.ready, socket, token);
        Ok(())
    }

    fn take_descriptors(&mut self, token: Token) -> PassedDescriptors {
        self.receive_space.take_descriptors(token)
    }

    fn send_descriptors(&mut self, token: Token, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let socket = self.sockets.get(token).ok_or(io::ErrorKind::NotConnected)?;
        passed_descriptors::send(socket.descriptor.as_fd(), bytes, descriptors)
    }
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readiness").field("ready", &self.ready.len()).finish_non_exhaustive()
    }
}

struct EventWaker(mio::Waker);

impl Wake for EventWaker {
    fn wake(&self) {
        // It fails only if the counter of the eventfd would overflow, and then a wake-up is pending.
        let _ = self.0.wake();
    }
}

/// Queues a socket, unless it is queued.
fn enqueue(ready: &mut ReadyQueue<Token>, socket: &mut table::SocketEntry, token: Token) {
    if !socket.flags.contains(Flags::QUEUED) {
        socket.flags.set(Flags::QUEUED, true);
        if socket.flags.contains(Flags::LISTENER) && !socket.flags.contains(Flags::CONNECTING) {
            ready.push_listener(token);
        } else {
            ready.push(token, socket.load);
        }
    }
}

const fn to_mio(token: Token) -> mio::Token {
    mio::Token((token.generation as usize) << 32 | token.slot as usize)
}

const fn from_mio(token: mio::Token) -> Token {
    Token { slot: token.0 as u32, generation: (token.0 >> 32) as u32 }
}

/// The token of the waker. No loop has a slot of this number.
const NO_SOCKET: Token = Token { slot: u32::MAX, generation: u32::MAX };
const WAKER: mio::Token = to_mio(NO_SOCKET);

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE).add(Interest::PRIORITY);

/// The most events that one call returns.
const EVENTS_PER_POLL_MAX: usize = 1024;

/// The most calls for events in one turn. Together they return events of as many sockets as a process usually has.
const POLLS_PER_TURN_MAX: u32 = 32;

const _: () = assert!(usize::BITS == 64, "a token fills 64 bits");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_convert_to_mio_and_back_unchanged() {
        for slot in [0, 1, u32::MAX - 1, u32::MAX] {
            for generation in [0, 1, u32::MAX] {
                let token = Token { slot, generation };
                assert_eq!(from_mio(to_mio(token)), token);
                assert_eq!(to_mio(token) == WAKER, token == NO_SOCKET);
            }
        }
    }
}
