//! The completion driver: io_uring.
//!
//! | part | file |
//! |---|---|
//! | the states of an operation | `operation.rs` |
//! | the interface to a kernel, and the real kernel | `kernel.rs`, `ring.rs` |
//! | the requests of a socket: arming, cancelling, closing | `arm.rs` |
//! | accepting | `accept.rs` |
//! | receiving on light sockets, into provided buffers | `receive.rs` |
//! | receiving on heavy sockets, by system calls | `direct_io.rs` |
//! | datagram sockets, by system calls | `datagram.rs` |
//! | sending: small sends through the ring, large ones by system calls | `send.rs` |
//! | the table of sockets | `table.rs` |
//! | kernel faults, injected for tests | `faulty_kernel.rs` |
//!
//! The driver queues the loop's operations, and submits them with the next call that waits for events. At that moment
//! `arm_socket` decides which requests are armed, and no other place does, except for sends and for receives that
//! waited for a buffer. A connection that stops and resumes receiving within one turn therefore costs nothing.
//!
//! Three rules of the kernel, and where the driver keeps them:
//! - An operation in flight owns its memory. Buffers belong to the ring; the queue lends the bytes of a send
//!   (`send.rs`).
//! - A cancelled operation may still complete, so a socket is closed when its last operation has ended (`release`).
//! - A receive ends when no buffer is left. That is no error: it is armed again once buffers were given back.

mod accept;
mod arm;
mod datagram;
mod direct_io;
#[cfg(tidegate_injected)]
mod faulty_kernel;
mod kernel;
mod operation;
mod receive;
mod ring;
mod send;
mod table;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use tidegate_buffer::injected::{self, Bug};
use tidegate_buffer::{Address, Credentials, Datagram, Membership, Pool, ReceiveHint, Slice};

use self::arm::is_busy;
use self::direct_io::DirectIo;
use self::kernel::{Event, Kernel, Request};
use self::operation::{Kind, NO_SOCKET, Transition, name, parse};
use self::receive::Buffers;
use self::ring::Ring;
use self::send::Sends;
use self::table::{Flags, SocketKind, Sockets};
use crate::datagram::{DatagramIo, set_membership};
use crate::driver::{Completion, Driver, Operation, Side, Token};
use crate::passed_descriptors::{self, PassedDescriptors};
use crate::ready::Class;
use crate::socket;
use crate::wake::{Wake, Waker};

/// The driver on io_uring. It is made on the thread that uses it.
pub struct Uring(UringDriver<RingBackend>);

/// The kernel that the driver uses: the real one.
#[cfg(not(tidegate_injected))]
type RingBackend = Ring;

/// In a build with injected bugs, a wrapper that injects faults of the kernel.
#[cfg(tidegate_injected)]
type RingBackend = faulty_kernel::FaultyKernel<Ring>;

impl Uring {
    /// Checks that the system has an io_uring that this driver can use.
    ///
    /// # Errors
    /// Those of [`new`](Self::new): a ring is set up and dropped.
    pub fn probe() -> io::Result<()> {
        Ring::new(1).map(drop)
    }

    /// Creates a driver that receives into memory of `pool`.
    ///
    /// # Errors
    /// Those of the system: `PermissionDenied` if a sandbox forbids io_uring, `Unsupported` if the kernel has no
    /// io_uring or is older than Linux 6.0.
    pub fn new(pool: &Pool) -> io::Result<Self> {
        let buffers = Buffers::new(pool);
        let ring = Ring::new(buffers.count().next_power_of_two())?;
        #[cfg(tidegate_injected)]
        let ring = RingBackend::new(ring);
        UringDriver::new(ring, buffers, DirectIo::new(pool)).map(Self)
    }
}

/// The driver, generic over its kernel.
struct UringDriver<K: Kernel> {
    kernel: K,
    sockets: Sockets,
    buffers: Buffers,
    direct_io: DirectIo,
    /// The datagram sockets, if there are any.
    datagrams: Option<Box<DatagramIo>>,
    sends: Sends,
    /// Sockets whose requests have to be armed or cancelled before the next wait. Each is in here at most once.
    arm_queue: VecDeque<Token>,
    /// Completions that are reported before the kernel's next event, unless the socket is closed by then.
    due_completions: VecDeque<(Token, Completion)>,
    /// Events that a receive of the rest has passed over, in their order. They come before the kernel's next event.
    passed_events: VecDeque<Event>,
    /// Events that may still be read in this turn.
    events_left: usize,
    /// How many more times the driver may poll the kernel for events in this turn.
    polls_left: u32,
    /// Whether the last call of `next` tried kernel events before queued sockets: the two alternate.
    takes_event: bool,
    /// Whether a small send went by a system call since the last wait: the next one goes through the ring.
    sent_alone: bool,
    waker: Arc<EventWaker>,
    wakes: bool,
    receives_paused: bool,
    /// Sockets that would receive if receives were not paused.
    paused_sockets: Vec<Token>,
    /// The number of operations that the kernel has.
    in_flight: usize,
}

impl<K: Kernel> UringDriver<K> {
    fn new(mut kernel: K, mut buffers: Buffers, direct_io: DirectIo) -> io::Result<Self> {
        let waker = Arc::new(EventWaker(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?));
        buffers.give_back(&mut kernel);
        Ok(Self {
            kernel,
            sockets: Sockets::default(),
            buffers,
            direct_io,
            datagrams: None,
            sends: Sends::new(),
            arm_queue: VecDeque::new(),
            due_completions: VecDeque::new(),
            passed_events: VecDeque::new(),
            events_left: 0,
            polls_left: 0,
            takes_event: false,
            sent_alone: false,
            waker,
            wakes: false,
            receives_paused: false,
            paused_sockets: Vec::new(),
            in_flight: 0,
        })
    }

    /// Processes an event, and returns the completion to report, if there is one.
    fn complete(&mut self, event: Event) -> Option<(Token, Completion)> {
        let (slot, generation, kind) = parse(event.name);
        match kind {
            Kind::Cancel => return None,
            Kind::Wake if event.name == name(NO_SOCKET, Kind::Wake) => return self.woken(event),
            _ => {}
        }
        let token = self.sockets.token(slot, generation);
        let socket = token.and_then(|token| self.sockets.get_mut(token));
        let (Some(token), Some(socket)) = (token, socket) else {
            self.buffers.discard(event.buffer);
            return None;
        };
        if !socket.operations.step(kind, if event.more { Transition::More } else { Transition::Last }) {
            // The socket has no such operation: the kernel has repeated a terminal event.
            self.buffers.discard(event.buffer);
            return None;
        }
        self.in_flight -= usize::from(!event.more);
        if kind == Kind::Send {
            self.sends.give_back(&mut socket.lent);
        }
        if socket.flags.contains(Flags::CLOSING) {
            self.buffers.discard(event.buffer);
            return self.release(token).then_some((token, Completion::Closed));
        }
        let completion = match kind {
            Kind::Accept => self.acceptable(token, event),
            Kind::Receive => self.received(token, event),
            Kind::Send if injected::is_injected(Bug::SendDoneAtSubmit) => Some(Completion::Sent(Ok(0))),
            Kind::Send => self.sent(token, event),
            Kind::Writable => self.writable(token, event),
            Kind::HangUp => self.hung_up(token, event),
            Kind::Wake | Kind::Cancel => None,
        };
        completion.map(|completion| (token, completion))
    }

    /// Handles a poll for writability: the connect has ended, or there is room to send.
    fn writable(&mut self, token: Token, event: Event) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        if !socket.flags.contains(Flags::CONNECTING) {
            return self.has_room(token, event);
        }
        // A ring reports the event that woke the poll. A vsock socket whose request was sent wakes it before the peer has answered.
        let is_early = event.result >= 0 && !socket::is_connect_decided(&socket.descriptor);
        if is_early || event.was_cancelled() {
            // The event carries no result of the connect, so the poll is armed again.
            self.enqueue(token);
            return None;
        }
        socket.flags.set(Flags::CONNECTING, false);
        let result = match event.result {
            0.. => rustix::net::sockopt::socket_error(&socket.descriptor).unwrap_or_else(Err),
            errno => Err(rustix::io::Errno::from_raw_os_error(-errno)),
        };
        socket.flags.set(Flags::FAILED, result.is_err());
        self.enqueue(token);
        Some(Completion::Connected(result.map_err(Into::into)))
    }

    /// Handles the poll of a connection that does not receive: both sides have ended it, or it broke.
    fn hung_up(&mut self, token: Token, event: Event) -> Option<Completion> {
        if !event.more && (event.result >= 0 || event.was_cancelled()) {
            // The kernel has ended the poll without a cancellation.
            self.enqueue(token);
        }
        let socket = self.sockets.get_mut(token)?;
        let broke = event.result > 0 && event.result & i32::from(libc::POLLERR) != 0;
        let ended = event.result > 0 && event.result & i32::from(libc::POLLRDHUP) != 0;
        if broke || ended {
            socket.flags.set(Flags::HUNG_UP, true);
        }
        if !broke {
            if ended {
                self.enqueue(token);
            }
            return None;
        }
        // A connection that receives gets the bytes that arrived first, and then the error.
        let (flags, receives) = (socket.flags, !socket.operations.is_idle(Kind::Receive));
        if self.wants(flags) || receives && !flags.contains(Flags::ENDED) {
            return None;
        }
        self.failed(token)
    }

    fn failed(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        if socket.flags.contains(Flags::FAILED) {
            return None;
        }
        socket.flags.set(Flags::FAILED, true);
        let error = rustix::net::sockopt::socket_error(&socket.descriptor);
        let error = error.ok().and_then(Result::err).unwrap_or(rustix::io::Errno::CONNRESET);
        Some(Completion::Failed(error.into()))
    }

    fn woken(&mut self, event: Event) -> Option<(Token, Completion)> {
        if !event.more {
            self.in_flight -= usize::from(std::mem::take(&mut self.wakes));
        }
        self.waker.drain_eventfd();
        Some((NO_SOCKET, Completion::Woken))
    }

    /// Arms the poll of the waker, unless it is armed.
    fn arm_waker(&mut self) -> io::Result<()> {
        if !self.wakes {
            let request = Request::Poll { fd: self.waker.0.as_raw_fd(), events: libc::POLLIN, multishot: true };
            self.kernel.push(request, name(NO_SOCKET, Kind::Wake))?;
            self.in_flight += 1;
            self.wakes = true;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.provide();
        let armed = match self.arm_waker().and_then(|()| self.arm_all()) {
            Ok(()) => true,
            // The kernel takes no more requests for now: its completions are read first.
            Err(error) if is_busy(&error) => false,
            Err(error) => return Err(error),
        };
        let starves = !self.receives_paused && !self.buffers.suffice();
        let may_block = armed
            && self.due_completions.is_empty()
            && self.passed_events.is_empty()
            && self.arm_queue.is_empty()
            && self.direct_io.ready.is_empty()
            && !starves;
        let waited = self.kernel.wait(if may_block { timeout } else { Some(Duration::ZERO) });
        if self.kernel.queued() == 0 {
            self.sends.submitted();
        }
        self.direct_io.ready.begin_turn();
        (self.events_left, self.polls_left, self.sent_alone) = (EVENTS_PER_TURN_MAX, POLLS_AGAIN_PER_TURN_MAX, false);
        waited
    }

    fn next(&mut self, class: Class) -> Option<(Token, Completion)> {
        self.buffers.reclaim();
        if class == Class::Light { self.next_light() } else { self.next_queued(class) }
    }

    /// The next completion of a light socket. Reads every event of the kernel on the way; an event of a socket of
    /// another class only queues that socket. One call makes the kernel do the work of about twenty sockets, so the
    /// driver calls again while work is left.
    fn next_light(&mut self) -> Option<(Token, Completion)> {
        while let Some((token, completion)) = self.due_completions.pop_front() {
            let is_open = |socket: &table::SocketEntry| !socket.flags.contains(Flags::CLOSING);
            if self.sockets.get(token).is_some_and(is_open) {
                return Some((token, completion));
            }
        }
        if injected::is_injected(Bug::DirectReceiveReordered)
            && let Some(overtakes) = self.next_queued(Class::Heavy)
        {
            return Some(overtakes);
        }
        loop {
            // The two sources alternate, so a turn that ends early has served both.
            self.takes_event = !self.takes_event;
            let next = match self.takes_event {
                true => self.next_event().or_else(|| self.next_queued(Class::Light)),
                false => self.next_queued(Class::Light).or_else(|| self.next_event()),
            };
            if next.is_some() || self.events_left == 0 || !self.poll_again() {
                return next;
            }
        }
    }

    fn next_event(&mut self) -> Option<(Token, Completion)> {
        while self.events_left > 0
            && let Some(event) = self.take_event()
        {
            self.events_left -= 1;
            if let Some(completion) = self.complete(event) {
                return Some(completion);
            }
        }
        None
    }

    fn take_event(&mut self) -> Option<Event> {
        self.passed_events.pop_front().or_else(|| self.kernel.next())
    }

    fn next_queued(&mut self, class: Class) -> Option<(Token, Completion)> {
        while let Some(token) = self.direct_io.ready.next(class) {
            if let Some(completion) = self.poll_socket(token) {
                return Some(completion);
            }
        }
        None
    }

    /// Makes the kernel do its deferred work, and submits the queued requests, so that the sends of light sockets do
    /// not wait for the heavy sockets of this turn. Returns whether that brought events.
    fn poll_again(&mut self) -> bool {
        let would_wait = self.direct_io.ready.has_heavy() && self.kernel.queued() > 0;
        if self.polls_left == 0 || !(would_wait || self.kernel.has_deferred_work()) {
            return false;
        }
        (self.polls_left, self.sent_alone) = (self.polls_left - 1, false);
        self.provide();
        // If the failure lasts, the next wait returns it.
        let looked = self.kernel.wait(Some(Duration::ZERO));
        if self.kernel.queued() == 0 {
            self.sends.submitted();
        }
        looked.is_ok() && self.kernel.completions() > 0
    }

    /// Whether the kernel, or a buffer of the ring whose event was not read yet, may have bytes of the peer.
    fn has_input(&mut self, token: Token) -> bool {
        let Some(socket) = self.sockets.get(token) else { return false };
        let over = Flags::ENDED.union(Flags::FAILED).union(Flags::CLOSING).union(Flags::CONNECTING);
        if !socket.flags.contains(Flags::RECEIVING) || socket.flags.intersects(over) {
            return false;
        }
        self.kernel.completions() > 0 || !self.passed_events.is_empty() || socket::has_input(socket.descriptor.as_fd())
    }

    fn receive_rest(&mut self, token: Token) -> Option<Slice> {
        if self.receives_paused {
            return None;
        }
        // A call must not overtake a receive that the ring has.
        if self.ring_receives(token) {
            // The kernel posts the events of all bytes that have arrived. If the call fails, the events that are there
            // are read.
            let _ = self.kernel.wait(Some(Duration::ZERO));
            if self.kernel.queued() == 0 {
                self.sends.submitted();
            }
            self.passed_events.extend(std::iter::from_fn(|| self.kernel.next()));
            let receive = name(token, Kind::Receive);
            while let Some(place) = self.passed_events.iter().position(|event| event.name == receive)
                && let Some(event) = self.passed_events.remove(place)
            {
                // The buffer before has been copied, or is shared: then the ring gets other memory.
                self.buffers.reclaim();
                if let Some((_, Completion::Received(bytes))) = self.complete(event) {
                    return Some(bytes);
                }
            }
            if self.ring_receives(token) {
                return None;
            }
        }
        let socket = self.sockets.get(token)?;
        self.direct_io.receive_space.receive_rest(token, &socket.descriptor)
    }

    /// Whether the ring has a receive of the socket, not only a poll.
    fn ring_receives(&self, token: Token) -> bool {
        let receives = |socket: &table::SocketEntry| {
            !socket.flags.contains(Flags::POLLED) && !socket.operations.is_idle(Kind::Receive)
        };
        self.sockets.get(token).is_some_and(receives)
    }

    fn pause_receives(&mut self, pause: bool) {
        if std::mem::replace(&mut self.receives_paused, pause) && !pause {
            for token in std::mem::take(&mut self.paused_sockets) {
                if let Some(socket) = self.sockets.get_mut(token) {
                    socket.flags.set(Flags::RECV_PAUSED, false);
                    self.enqueue(token);
                }
            }
        }
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        match operation {
            Operation::Listen(socket) => self.adopt(token, socket, SocketKind::Listener, Flags::RECEIVING),
            Operation::Adopt(socket) => self.adopt(token, socket, SocketKind::Stream, Flags::READABLE),
            Operation::Connect { address, local, options } => self.connect(token, address, local, options),
            Operation::Bind { socket, options } => self.bind(token, socket, options),
            Operation::Transmit(transmits) => self.transmit(token, transmits),
            Operation::Accept(on) | Operation::Receive(on) => {
                self.switch(token, on);
                None
            }
            Operation::Send { queue, bytes_max } => self.send(token, queue, bytes_max),
            Operation::ShutdownWrite => {
                if let Some(socket) = self.sockets.get(token) {
                    // It fails only if the connection has broken, which is reported by another completion.
                    let _ = rustix::net::shutdown(&socket.descriptor, rustix::net::Shutdown::Write);
                }
                None
            }
            Operation::Close { reset } => self.close(token, reset),
        }
    }
}

impl<K: Kernel> Drop for UringDriver<K> {
    /// Memory is freed only after the kernel has released it: cancels every operation, and waits until all have ended.
    fn drop(&mut self) {
        let tokens: Vec<_> = self.sockets.tokens().collect();
        for token in tokens {
            self.close(token, false);
        }
        let (mut cancels_waker, mut fruitless_waits) = (self.wakes, 0);
        while fruitless_waits < SHUTDOWN_WAITS_MAX {
            if cancels_waker {
                let cancel = Request::Cancel { name: name(NO_SOCKET, Kind::Wake) };
                cancels_waker = self.kernel.push(cancel, name(NO_SOCKET, Kind::Cancel)).is_err();
            }
            let _ = self.arm_all();
            let in_flight = self.in_flight;
            if in_flight == 0 {
                return;
            }
            let _ = self.kernel.wait(Some(SHUTDOWN_WAIT));
            while let Some(event) = self.take_event() {
                self.complete(event);
            }
            fruitless_waits += u32::from(self.in_flight == in_flight);
        }
        // The kernel may still write to this memory, so it is leaked.
        self.kernel.leak();
        self.buffers.leak();
        self.sends.leak();
    }
}

impl Driver for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn waker(&self) -> Waker {
        Waker::new(self.0.waker.clone())
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        self.0.submit(token, operation)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.wait(timeout)
    }

    fn next(&mut self, class: Class) -> Option<(Token, Completion)> {
        self.0.next(class)
    }

    fn has_ready(&self) -> bool {
        !self.0.direct_io.ready.is_empty()
    }

    fn has_input(&mut self, token: Token) -> bool {
        self.0.has_input(token)
    }

    fn give_back(&mut self, batch: Vec<Datagram>) {
        self.0.give_back(batch);
    }

    fn datagram_drops(&self, token: Token) -> u64 {
        self.0.datagrams.as_ref().map_or(0, |datagrams| datagrams.drops(token.slot))
    }

    fn receive_rest(&mut self, token: Token) -> Option<Slice> {
        self.0.receive_rest(token)
    }

    fn watch_end(&mut self, token: Token) {
        self.0.watch_end(token);
    }

    fn note_work(&mut self, token: Token) {
        if let Some(socket) = self.0.sockets.get_mut(token) {
            socket.load.note_work();
        }
    }

    fn hint_receive(&mut self, token: Token, hint: ReceiveHint) {
        // The ring would bring as much as its buffers hold, before the loop can stop it.
        if hint.bytes_max < u32::MAX
            && let Some(socket) = self.0.sockets.get_mut(token)
            && socket.flags.raise(Flags::HEAVY)
        {
            self.0.enqueue(token);
        }
        self.0.direct_io.receive_space.hint(token, hint);
    }

    fn unacknowledged(&self, token: Token) -> Option<u64> {
        socket::unacknowledged(self.0.sockets.get(token)?.descriptor.as_fd())
    }

    fn is_sending(&self, token: Token) -> bool {
        self.0.sockets.get(token).is_some_and(|socket| !socket.operations.is_idle(Kind::Send))
    }

    fn pause_receives(&mut self, pause: bool) {
        self.0.pause_receives(pause);
    }

    fn address(&self, token: Token, side: Side) -> io::Result<Address> {
        let socket = self.0.sockets.get(token).ok_or(io::ErrorKind::NotConnected)?;
        socket::address_of(socket.descriptor.as_fd(), side)
    }

    fn credentials(&self, token: Token) -> io::Result<Credentials> {
        let socket = self.0.sockets.get(token).ok_or(io::ErrorKind::NotConnected)?;
        socket::peer_credentials(socket.descriptor.as_fd())
    }

    fn set_membership(&mut self, token: Token, membership: &Membership) -> io::Result<()> {
        let socket = self.0.sockets.get(token).ok_or(io::ErrorKind::NotConnected)?;
        set_membership(socket.descriptor.as_fd(), membership)
    }

    fn keep_descriptors(&mut self, token: Token, descriptors_max: u8) -> io::Result<()> {
        let driver = &mut self.0;
        let socket = driver.sockets.get_mut(token).ok_or(io::ErrorKind::NotConnected)?;
        driver.direct_io.receive_space.keep_descriptors(token, &socket.descriptor, descriptors_max)?;
        // A receive stops before the next bytes that have descriptors. The ring would close the descriptors: the socket
        // receives by calls, which drain it, so it stays heavy.
        socket.flags.set(Flags::HUNG_UP, true);
        if socket.flags.raise(Flags::HEAVY) {
            driver.enqueue(token);
        }
        Ok(())
    }

    fn take_descriptors(&mut self, token: Token) -> PassedDescriptors {
        self.0.direct_io.receive_space.take_descriptors(token)
    }

    fn send_descriptors(&mut self, token: Token, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let socket = self.0.sockets.get(token).ok_or(io::ErrorKind::NotConnected)?;
        passed_descriptors::send(socket.descriptor.as_fd(), bytes, descriptors)
    }
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring").field("in_flight", &self.0.in_flight).finish_non_exhaustive()
    }
}

/// Leaks something that the kernel has not released. A static keeps its address, so that leak checkers do not report
/// it.
fn leak<T>(what: T) {
    static LEFT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let place = std::ptr::from_mut(Box::leak(Box::new(what))).expose_provenance();
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(place);
}

struct EventWaker(OwnedFd);

impl EventWaker {
    /// Resets the counter, so that polls report nothing until the waker is used again.
    fn drain_eventfd(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl Wake for EventWaker {
    fn wake(&self) {
        // It fails only if the counter would overflow, and then a wake-up is pending.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// The most events that are read in one turn; the others keep their place.
const EVENTS_PER_TURN_MAX: usize = 2048;

/// How often the driver polls the kernel for more events in one turn, in which the kernel does the work of 1,280
/// sockets.
const POLLS_AGAIN_PER_TURN_MAX: u32 = 64;

/// How long a dropped driver waits for the kernel: so many waits during which no operation ends, and the length of one.
const SHUTDOWN_WAITS_MAX: u32 = 100;
const SHUTDOWN_WAIT: Duration = Duration::from_millis(10);
