//! `Wire`: a driver over byte vectors, for one connection, with a clock that the test advances.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::injected::{self, Bug};
use tidegate_buffer::{Gathered, Outbound, Pool, RECEIVE_BYTES_MAX, ReceiveHint, Scratch};
use tidegate_sys::{Accepted, Address, Class, Completion, Driver, Operation, Side, Socket, Token, Wake, Waker};

/// The state that the test and the driver share.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedWire(Rc<RefCell<WireState>>);

/// Both ends of the connection, and the time.
#[derive(Debug)]
pub(crate) struct WireState {
    pub(crate) now: Instant,
    /// How long the loop would have slept in its last wait.
    pub(crate) sleep: Option<Duration>,
    /// Bytes on their way to the connection.
    pub(crate) inbound: Vec<u8>,
    /// Bytes that the connection has written.
    pub(crate) outbound: Vec<u8>,
    /// How many more bytes the peer takes.
    pub(crate) window: usize,
    /// How many of the bytes taken by the peer are unacknowledged, if the system reports that.
    pub(crate) unread: Option<u64>,
    pub(crate) peer_ended: bool,
    pub(crate) we_ended: bool,
    pub(crate) reset: bool,
    pub(crate) receiving: bool,
    /// Whether the connection was closed, and if so, whether by a reset.
    pub(crate) closed: Option<bool>,
    /// Counts operations submitted to the driver and completions from it.
    pub(crate) activity: u64,
    start: Instant,
    blocked: bool,
    end_reported: bool,
    is_watched: bool,
    reset_reported: bool,
    receives_paused: bool,
    receive_hint: Option<ReceiveHint>,
}

impl SharedWire {
    pub(crate) fn read<T>(&self, read: impl FnOnce(&WireState) -> T) -> T {
        read(&self.0.borrow())
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut WireState) -> T) -> T {
        change(&mut self.0.borrow_mut())
    }
}

impl Default for WireState {
    fn default() -> Self {
        let start = Instant::now();
        Self {
            now: start,
            sleep: None,
            inbound: Vec::new(),
            outbound: Vec::new(),
            window: usize::MAX,
            unread: None,
            peer_ended: false,
            we_ended: false,
            reset: false,
            receiving: false,
            closed: None,
            activity: 0,
            start,
            blocked: false,
            end_reported: false,
            is_watched: false,
            reset_reported: false,
            receives_paused: false,
            receive_hint: None,
        }
    }
}

/// The driver.
#[derive(Debug)]
pub(crate) struct Wire {
    state: SharedWire,
    scratch: Scratch,
    /// A listener that has not accepted the one stream yet.
    listener: Option<Token>,
    token: Option<Token>,
    /// How many more completions this turn may return.
    turn: u32,
}

impl Wire {
    pub(crate) fn new(state: SharedWire, pool: &Pool) -> Self {
        Self { state, scratch: Scratch::new(pool), listener: None, token: None, turn: 0 }
    }
}

impl Driver for Wire {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::new(NoWake))
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        if let Operation::Listen(_) = operation {
            self.listener = Some(token);
            return None;
        }
        if let Operation::Connect { .. } = operation {
            // Fail at once, so that a test need not wait for the connect time-out.
            return Some(Completion::Failed(io::ErrorKind::Unsupported.into()));
        }
        if !matches!(operation, Operation::Adopt(_)) && self.token != Some(token) {
            return matches!(operation, Operation::Close { .. }).then_some(Completion::Closed);
        }
        let mut ends = self.state.0.borrow_mut();
        ends.activity += 1;
        match operation {
            Operation::Adopt(_) => self.token = Some(token),
            Operation::Receive(on) => ends.receiving = on,
            Operation::Send { queue, bytes_max } => return ends.send(queue, bytes_max).map(Completion::Sent),
            Operation::ShutdownWrite => ends.we_ended = true,
            Operation::Close { reset } => {
                (ends.closed, ends.receiving, self.token) = (Some(reset), false, None);
                return Some(Completion::Closed);
            }
            // `Listen` and `Connect` are handled above; a loop never submits `Accept` for the one stream.
            Operation::Listen(_)
            | Operation::Accept(_)
            | Operation::Connect { .. }
            | Operation::Bind { .. }
            | Operation::Transmit(_) => {
                return Some(Completion::Failed(io::ErrorKind::Unsupported.into()));
            }
        }
        None
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.turn = COMPLETIONS_PER_TURN;
        self.state.change(|ends| ends.sleep = timeout);
        Ok(())
    }

    fn next(&mut self, _: Class) -> Option<(Token, Completion)> {
        if let Some(listener) = self.listener.take() {
            let accepted = Accepted { socket: Socket::Simulated(0), peer: peer() };
            return Some((listener, Completion::Accepted(Ok(accepted))));
        }
        let token = self.token?;
        self.turn = self.turn.checked_sub(1)?;
        let completion = self.state.0.borrow_mut().next(&mut self.scratch)?;
        Some((token, completion))
    }

    fn has_ready(&self) -> bool {
        false
    }

    fn pause_receives(&mut self, pause: bool) {
        self.state.change(|ends| ends.receives_paused = pause);
    }

    fn has_input(&mut self, _: Token) -> bool {
        self.state.read(|ends| ends.receiving && !ends.reset && !ends.inbound.is_empty())
    }

    fn watch_end(&mut self, _: Token) {
        self.state.change(|ends| ends.is_watched = true);
    }

    fn hint_receive(&mut self, _: Token, hint: ReceiveHint) {
        self.state.change(|ends| ends.receive_hint = Some(hint));
    }

    fn unacknowledged(&self, _: Token) -> Option<u64> {
        self.state.read(|ends| ends.unread)
    }

    fn now(&self) -> Instant {
        self.state.read(|ends| ends.now)
    }

    /// The first of January 1970 when the test begins.
    fn system_time(&self) -> SystemTime {
        self.state.read(|ends| SystemTime::UNIX_EPOCH + ends.now.saturating_duration_since(ends.start))
    }

    fn address(&self, _: Token, side: Side) -> io::Result<Address> {
        let last = if side == Side::Local { 2 } else { 1 };
        Ok(Address::Ip(([192, 0, 2, last], 7000).into()))
    }
}

impl WireState {
    fn next(&mut self, scratch: &mut Scratch) -> Option<Completion> {
        let completion = if self.reset {
            if std::mem::replace(&mut self.reset_reported, true) {
                return None;
            }
            Completion::Failed(io::ErrorKind::ConnectionReset.into())
        } else if self.blocked && self.window > 0 {
            self.blocked = false;
            Completion::Sent(Ok(0))
        } else if self.is_watched && self.peer_ended && (!self.receiving || self.end_reported) {
            self.is_watched = false;
            Completion::HungUp
        } else if !self.receiving || self.receives_paused {
            return None;
        } else if self.inbound.is_empty() {
            if !self.peer_ended || std::mem::replace(&mut self.end_reported, true) {
                return None;
            }
            Completion::Ended
        } else {
            let hint = self.receive_hint.take();
            let space = scratch.space(hint.map_or(usize::MAX, |hint| hint.receive_bytes(RECEIVE_BYTES_MAX)));
            let length = self.inbound.len().min(space.len());
            space[..length].copy_from_slice(&self.inbound[..length]);
            self.inbound.drain(..length);
            Completion::Received(scratch.received(length))
        };
        self.activity += 1;
        Some(completion)
    }

    /// Sends as much as the peer takes. If it takes nothing, returns `None`, and a completion follows later.
    fn send(&mut self, queue: &Outbound, bytes_max: usize) -> Option<io::Result<usize>> {
        if self.reset {
            return Some(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.window == 0 {
            self.blocked = true;
            return None;
        }
        let sent = match copy_front(queue, bytes_max.min(self.window), &mut self.outbound) {
            Ok(sent) => sent,
            Err(error) => return Some(Err(error)),
        };
        if self.window != usize::MAX {
            self.window -= sent;
        }
        Some(Ok(sent))
    }
}

/// Copies the bytes to send next, at most `bytes_max`, as one gathering write does. Returns how many.
pub(crate) fn copy_front(queue: &Outbound, bytes_max: usize, to: &mut Vec<u8>) -> io::Result<usize> {
    let mut parts = [const { std::mem::MaybeUninit::uninit() }; PARTS];
    let before = to.len();
    match queue.gather(&mut parts, bytes_max) {
        Gathered::Nothing => {}
        Gathered::Parts(parts) | Gathered::PartsBeforeFile(parts) => {
            parts.iter().for_each(|part| to.extend_from_slice(part));
            if injected::is_injected(Bug::PartsBeyondLimitLost) && parts.len() == PARTS {
                return Ok(queue.pending() as usize);
            }
        }
        Gathered::File(region) => {
            let wanted = usize::try_from(region.length).unwrap_or(usize::MAX).min(bytes_max).min(FILE_PIECE_BYTES);
            to.resize(before + wanted, 0);
            let read = std::os::unix::fs::FileExt::read_at(&*region.file, &mut to[before..], region.offset);
            to.truncate(before + *read.as_ref().unwrap_or(&0));
            if injected::is_injected(Bug::ShortFile) {
                to.resize(before + wanted, 0);
            } else if read? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
    Ok(to.len() - before)
}

/// The address of the peer.
pub(crate) fn peer() -> Address {
    Address::Ip(([192, 0, 2, 1], 49152).into())
}

/// The test turns the loop itself, so no wake-up is needed.
struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

const COMPLETIONS_PER_TURN: u32 = 64;

/// Parts of one gathering write.
const PARTS: usize = 64;

const FILE_PIECE_BYTES: usize = 64 * 1024;
