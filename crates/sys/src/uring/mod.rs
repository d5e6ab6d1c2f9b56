//! The completion driver: io_uring.
//!
//! | what | where |
//! |---|---|
//! | the states of an operation | `operation.rs` |
//! | the seam to a kernel, and the real one behind it | `kernel.rs`, `ring.rs` |
//! | what sockets ask of it: arming, cancelling, letting go | `arm.rs` |
//! | accepting | `accept.rs` |
//! | receiving little, into buffers that are provided for it | `receive.rs` |
//! | receiving much, by calls | `direct_io.rs` |
//! | sending: little by the ring, much by calls | `send.rs` |
//! | sockets | `table.rs` |
//! | bad luck, for tests | `disturbed.rs` |
//!
//! What the loop asks for is queued, and submitted with the next call that asks the kernel for events. What is armed
//! and what is not is decided then as well, in `settle`, the one place that does: whoever stops receiving and goes on
//! in the same turn costs nothing.
//!
//! Three things that the kernel demands, and where they are kept:
//! - an operation in flight owns its memory: buffers belong to the ring, and what is sent is lent by its queue
//!   (`send.rs`);
//! - what was cancelled may still complete, so a socket is closed when its last operation has ended (`release`);
//! - where buffers are used up a receive ends, which is no error: it is armed again once they were given back.

mod accept;
mod arm;
mod direct_io;
#[cfg(tidegate_injected)]
mod disturbed;
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
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use tidegate_buffer::Pool;
use tidegate_buffer::injected::{self, Bug};

use self::arm::is_busy;
use self::direct_io::DirectIo;
use self::kernel::{Event, Kernel, Request};
use self::operation::{Kind, Transition, name, parse};
use self::receive::Buffers;
use self::ring::Ring;
use self::send::Sends;
use self::table::{Flags, Sockets};
use crate::address::Address;
use crate::driver::{Completion, Driver, Operation, Side, Token};
use crate::ready::Class;
use crate::socket;
use crate::wake::{Wake, Waker};

/// The driver on io_uring. It is made on the thread that uses it.
pub struct Uring(Machine<Beneath>);

/// What is beneath it: a real kernel.
#[cfg(not(tidegate_injected))]
type Beneath = Ring;

/// In a build for tests of tests, one that may have bad luck.
#[cfg(tidegate_injected)]
type Beneath = disturbed::Disturbed<Ring>;

impl Uring {
    /// Whether there is an io_uring, of a kind that this driver can use.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), which it makes and drops one to find.
    pub fn probe() -> io::Result<()> {
        Ring::new(1).map(drop)
    }

    /// A driver that receives into memory of `pool`.
    ///
    /// # Errors
    /// The system's: `PermissionDenied` where a sandbox forbids io_uring, `Unsupported` where the kernel has none or
    /// one that is older than Linux 6.0.
    pub fn new(pool: &Pool) -> io::Result<Self> {
        let buffers = Buffers::new(pool);
        let ring = Ring::new(buffers.count().next_power_of_two())?;
        #[cfg(tidegate_injected)]
        let ring = Beneath::new(ring);
        Machine::new(ring, buffers, DirectIo::new(pool)).map(Self)
    }
}

/// The driver, over a kernel.
struct Machine<K: Kernel> {
    kernel: K,
    sockets: Sockets,
    buffers: Buffers,
    bulk: DirectIo,
    sends: Sends,
    /// Sockets whose operations have to be looked at before the next wait. Each is in here at most once.
    line: VecDeque<Token>,
    /// Completions that come before the kernel's next event, unless the socket is closed by then.
    told: VecDeque<(Token, Completion)>,
    /// Events that may still be read in this turn.
    turn: usize,
    /// How often the kernel may still be asked for more events in this turn.
    looks: u32,
    /// Events of the kernel and queued sockets take turns.
    takes_event: bool,
    /// A send has gone by a call of its own since the kernel was last asked: the next one goes by the ring.
    sent_alone: bool,
    waker: Arc<EventWaker>,
    wakes: bool,
    receives_paused: bool,
    /// Sockets that would have received since receiving is held back.
    paused_sockets: Vec<Token>,
    /// Operations that the kernel has.
    in_flight: usize,
}

impl<K: Kernel> Machine<K> {
    fn new(mut kernel: K, mut buffers: Buffers, bulk: DirectIo) -> io::Result<Self> {
        let waker = Arc::new(EventWaker(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?));
        buffers.give_back(&mut kernel);
        Ok(Self {
            kernel,
            sockets: Sockets::default(),
            buffers,
            bulk,
            sends: Sends::new(),
            line: VecDeque::new(),
            told: VecDeque::new(),
            turn: 0,
            looks: 0,
            takes_event: false,
            sent_alone: false,
            waker,
            wakes: false,
            receives_paused: false,
            paused_sockets: Vec::new(),
            in_flight: 0,
        })
    }

    /// Takes an event in, and says what is told of it, if anything.
    fn complete(&mut self, event: Event) -> Option<(Token, Completion)> {
        let (slot, generation, kind) = parse(event.name);
        match kind {
            Kind::Cancel => return None,
            Kind::Wake if event.name == name(NOBODY, Kind::Wake) => return self.woken(event),
            _ => {}
        }
        let token = self.sockets.token(slot, generation);
        let socket = token.and_then(|token| self.sockets.get_mut(token));
        let (Some(token), Some(socket)) = (token, socket) else {
            self.buffers.discard(event.buffer);
            return None;
        };
        if !socket.operations.step(kind, if event.more { Transition::More } else { Transition::Last }) {
            // A kernel that repeats itself is not believed.
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
            Kind::Send if injected::is_injected(Bug::SendBelieved) => Some(Completion::Sent(Ok(0))),
            Kind::Send => self.sent(token, event),
            Kind::Writable => self.writable(token, event),
            Kind::HangUp => self.hung_up(token, event),
            Kind::Wake | Kind::Cancel => None,
        };
        completion.map(|completion| (token, completion))
    }

    /// A connection is made, or there is room to send.
    fn writable(&mut self, token: Token, event: Event) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        if !socket.flags.contains(Flags::CONNECTING) {
            return self.has_room(token, event);
        }
        if event.came_to_nothing() {
            // It says nothing of the connection, and is asked for again.
            self.line_up(token);
            return None;
        }
        socket.flags.set(Flags::CONNECTING, false);
        let result = match event.result {
            0.. => rustix::net::sockopt::socket_error(&socket.descriptor).unwrap_or_else(Err),
            errno => Err(rustix::io::Errno::from_raw_os_error(-errno)),
        };
        socket.flags.set(Flags::FAILED, result.is_err());
        self.line_up(token);
        Some(Completion::Connected(result.map_err(Into::into)))
    }

    /// A connection that is not received from has ended on both sides, or broke.
    fn hung_up(&mut self, token: Token, event: Event) -> Option<Completion> {
        if !event.more && (event.result >= 0 || event.came_to_nothing()) {
            // The kernel has let go of it without having been asked to.
            self.line_up(token);
        }
        let socket = self.sockets.get_mut(token)?;
        let broke = event.result > 0 && event.result & i32::from(libc::POLLERR) != 0;
        if !broke {
            return None;
        }
        socket.flags.set(Flags::HUNG_UP, true);
        // Who receives gets what came before first, and then the error.
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
        Some((NOBODY, Completion::Woken))
    }

    /// Listens to the waker.
    fn mind_waker(&mut self) -> io::Result<()> {
        if !self.wakes {
            let request = Request::Poll { fd: self.waker.0.as_raw_fd(), events: libc::POLLIN, multishot: true };
            self.kernel.push(request, name(NOBODY, Kind::Wake))?;
            self.in_flight += 1;
            self.wakes = true;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.provide();
        let armed = match self.mind_waker().and_then(|()| self.arm_all()) {
            Ok(()) => true,
            // Where the kernel takes no more for now, what it has completed is read first.
            Err(error) if is_busy(&error) => false,
            Err(error) => return Err(error),
        };
        let starves = !self.receives_paused && !self.buffers.suffice();
        let rests = armed && self.told.is_empty() && self.line.is_empty() && self.bulk.ready.is_empty() && !starves;
        let waited = self.kernel.wait(if rests { timeout } else { Some(Duration::ZERO) });
        if self.kernel.queued() == 0 {
            self.sends.submitted();
        }
        self.bulk.ready.begin_turn();
        (self.turn, self.looks, self.sent_alone) = (EVENTS_PER_TURN_MAX, LOOKS_PER_TURN_MAX, false);
        waited
    }

    fn next(&mut self, class: Class) -> Option<(Token, Completion)> {
        self.buffers.reclaim();
        if class == Class::Light { self.next_light() } else { self.next_queued(class) }
    }

    /// What the kernel has completed, all of it: of other classes that only queues the sockets. The kernel does the
    /// work of some twenty sockets when it is asked, so it is asked again while work is left.
    fn next_light(&mut self) -> Option<(Token, Completion)> {
        while let Some((token, completion)) = self.told.pop_front() {
            let is_open = |socket: &table::Entry| !socket.flags.contains(Flags::CLOSING);
            if self.sockets.get(token).is_some_and(is_open) {
                return Some((token, completion));
            }
        }
        if injected::is_injected(Bug::CallOvertakes)
            && let Some(overtakes) = self.next_queued(Class::Heavy)
        {
            return Some(overtakes);
        }
        loop {
            // In turns: a turn that is cut short in one of both comes to the other as well.
            self.takes_event = !self.takes_event;
            let next = match self.takes_event {
                true => self.next_event().or_else(|| self.next_queued(Class::Light)),
                false => self.next_queued(Class::Light).or_else(|| self.next_event()),
            };
            if next.is_some() || self.turn == 0 || !self.look_again() {
                return next;
            }
        }
    }

    fn next_event(&mut self) -> Option<(Token, Completion)> {
        while self.turn > 0
            && let Some(event) = self.kernel.next()
        {
            self.turn -= 1;
            if let Some(completion) = self.complete(event) {
                return Some(completion);
            }
        }
        None
    }

    fn next_queued(&mut self, class: Class) -> Option<(Token, Completion)> {
        while let Some(token) = self.bulk.ready.next(class) {
            if let Some(attended) = self.poll_socket(token) {
                return Some(attended);
            }
        }
        None
    }

    /// Has the kernel do what it has put off, and submits what is queued: what light sockets send does not wait for the
    /// heavy ones of this turn. Returns whether that brought events.
    fn look_again(&mut self) -> bool {
        let would_wait = self.bulk.ready.has_heavy() && self.kernel.queued() > 0;
        if self.looks == 0 || !(would_wait || self.kernel.has_deferred_work()) {
            return false;
        }
        (self.looks, self.sent_alone) = (self.looks - 1, false);
        self.provide();
        // A failure that lasts is the next wait's.
        let looked = self.kernel.wait(Some(Duration::ZERO));
        if self.kernel.queued() == 0 {
            self.sends.submitted();
        }
        looked.is_ok() && self.kernel.completions() > 0
    }

    /// Whether bytes lie in the kernel, or perhaps in a buffer of the ring that was not looked at yet.
    fn has_input(&mut self, token: Token) -> bool {
        let Some(socket) = self.sockets.get(token) else { return false };
        let over = Flags::ENDED.union(Flags::FAILED).union(Flags::CLOSING).union(Flags::CONNECTING);
        if !socket.flags.contains(Flags::RECEIVING) || socket.flags.intersects(over) {
            return false;
        }
        self.kernel.completions() > 0 || socket::has_input(socket.descriptor.as_fd())
    }

    fn hold_receives(&mut self, hold: bool) {
        if std::mem::replace(&mut self.receives_paused, hold) && !hold {
            for token in std::mem::take(&mut self.paused_sockets) {
                if let Some(socket) = self.sockets.get_mut(token) {
                    socket.paused = false;
                    self.line_up(token);
                }
            }
        }
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        match operation {
            Operation::Listen(socket) => self.adopt(token, socket, Flags::LISTENER.union(Flags::RECEIVING)),
            Operation::Adopt(socket) => self.adopt(token, socket, Flags::READABLE),
            Operation::Connect { address, local, options } => self.connect(token, address, local, options),
            Operation::Accept(on) | Operation::Receive(on) => {
                self.switch(token, on);
                None
            }
            Operation::Send { queue, bytes_max } => self.send(token, queue, bytes_max),
            Operation::ShutdownWrite => {
                if let Some(socket) = self.sockets.get(token) {
                    // It fails only where the connection is broken already, which is told in another way.
                    let _ = rustix::net::shutdown(&socket.descriptor, rustix::net::Shutdown::Write);
                }
                None
            }
            Operation::Close { reset } => self.close(token, reset),
        }
    }
}

impl<K: Kernel> Drop for Machine<K> {
    /// Memory is given back only when the kernel has let go of it: everything is cancelled, and waited for.
    fn drop(&mut self) {
        let tokens: Vec<_> = self.sockets.tokens().collect();
        for token in tokens {
            self.close(token, false);
        }
        let (mut minds_waker, mut waits_in_vain) = (self.wakes, 0);
        while waits_in_vain < SHUTDOWN_WAITS_MAX {
            if minds_waker {
                let cancel = Request::Cancel { name: name(NOBODY, Kind::Wake) };
                minds_waker = self.kernel.push(cancel, name(NOBODY, Kind::Cancel)).is_err();
            }
            let _ = self.arm_all();
            let in_flight = self.in_flight;
            if in_flight == 0 {
                return;
            }
            let _ = self.kernel.wait(Some(SHUTDOWN_WAIT));
            while let Some(event) = self.kernel.next() {
                self.complete(event);
            }
            waits_in_vain += u32::from(self.in_flight == in_flight);
        }
        // It would be written to by somebody who does not know that it is gone.
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
        !self.0.bulk.ready.is_empty()
    }

    fn has_input(&mut self, token: Token) -> bool {
        self.0.has_input(token)
    }

    fn unacknowledged(&self, token: Token) -> Option<u64> {
        socket::unacknowledged(self.0.sockets.get(token)?.descriptor.as_fd())
    }

    fn is_sending(&self, token: Token) -> bool {
        self.0.sockets.get(token).is_some_and(|socket| !socket.operations.is_idle(Kind::Send))
    }

    fn pause_receives(&mut self, hold: bool) {
        self.0.hold_receives(hold);
    }

    fn address(&self, token: Token, side: Side) -> io::Result<Address> {
        let socket = self.0.sockets.get(token).ok_or(io::ErrorKind::NotConnected)?;
        socket::address_of(socket.descriptor.as_fd(), side)
    }
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring").field("in_flight", &self.0.in_flight).finish_non_exhaustive()
    }
}

/// Leaves something to a kernel that has not let go of it, for good. Whoever looks for leaks finds that it is known of.
fn leak<T>(what: T) {
    static LEFT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let place = std::ptr::from_mut(Box::leak(Box::new(what))).expose_provenance();
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(place);
}

struct EventWaker(OwnedFd);

impl EventWaker {
    /// Makes it silent until it is used again.
    fn drain_eventfd(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl Wake for EventWaker {
    fn wake(&self) {
        // It fails only if the counter overflows, and then a wake-up is under way already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// No loop has a slot of this number.
const NOBODY: Token = Token { slot: u32::MAX, generation: u32::MAX };

/// Events read in one turn; the others keep their place.
const EVENTS_PER_TURN_MAX: usize = 2048;

/// How often the kernel is asked for more events in one turn: it does the work of 1,280 sockets then.
const LOOKS_PER_TURN_MAX: u32 = 64;

/// How long the kernel may take to let go of anything.
const SHUTDOWN_WAITS_MAX: u32 = 100;
const SHUTDOWN_WAIT: Duration = Duration::from_millis(10);
