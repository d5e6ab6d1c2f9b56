//! What the kernels of a simulated network know of their sockets.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tidegate_sys::{Address, Load, Token};

/// Who has a socket: a driver, by its number, and what the socket is called there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) desk: usize,
    pub(super) token: Token,
}

/// From which host to which.
pub(super) type Route = (IpAddr, IpAddr);

/// One end of a stream.
///
/// What is sent passes through four places: `unsent` here, the agenda while it travels, `inbound` of the other end,
/// and the driver's scratch. The first two are bounded by the send buffer, the second and third by the receive buffer.
#[derive(Debug)]
pub(super) struct End {
    pub(super) local: Address,
    pub(super) remote: Address,
    /// From which host to which.
    pub(super) route: Route,
    /// The other end; none until the network has found it.
    pub(super) peer: Option<u64>,
    /// None until it was adopted, and after it was closed.
    pub(super) owner: Option<Owner>,
    /// The driver that has accepted it.
    pub(super) accepted_by: Option<usize>,
    pub(super) lined_up: bool,
    pub(super) load: Load,
    pub(super) connecting: bool,
    /// What connecting came to, until that is told.
    pub(super) outcome: Option<Result<(), io::ErrorKind>>,

    /// Bytes that the other end has no room for yet.
    pub(super) unsent: VecDeque<u8>,
    /// Bytes that left and have not arrived.
    pub(super) travelling: usize,
    /// Bytes that left and that the other end has not acknowledged.
    pub(super) unacknowledged: usize,
    /// When the line is free for the next segment.
    pub(super) free_at: Duration,
    /// When the last segment arrives: none may overtake it.
    pub(super) last_arrival: Duration,
    /// How many bytes it keeps that the other end has not acknowledged.
    pub(super) send_buffer: usize,
    /// A send was begun, and nothing was said of it yet.
    pub(super) in_flight: bool,
    /// The bytes of that send, if they were taken, and only saying so is late.
    pub(super) taken: Option<usize>,
    /// Now it is to be said.
    pub(super) send_is_due: bool,
    /// The driver promised to say when sending can be tried again.
    pub(super) blocked: bool,
    /// A fault holds it back, whatever room there is.
    pub(super) stalled: bool,
    /// Nothing more will be sent than what is there.
    pub(super) shut: bool,
    pub(super) fin_left: bool,

    /// Bytes that have arrived and were not read.
    pub(super) inbound: VecDeque<u8>,
    pub(super) fin_came: bool,
    /// It came with the last bytes, and is told with them.
    pub(super) fin_joined: bool,
    pub(super) end_told: bool,
    pub(super) receiving: bool,
    /// Receiving was stopped, and one completion is on its way.
    pub(super) one_more: bool,
    /// It was reset.
    pub(super) broken: bool,
    pub(super) break_told: bool,
    /// Nobody has it any more; what is unsent still leaves.
    pub(super) closed: bool,
}

impl End {
    pub(super) fn new(local: Address, remote: Address, route: Route) -> Self {
        let load = Load::default();
        Self {
            local,
            remote,
            route,
            peer: None,
            owner: None,
            accepted_by: None,
            lined_up: false,
            load,
            connecting: false,
            outcome: None,
            unsent: VecDeque::new(),
            travelling: 0,
            unacknowledged: 0,
            free_at: Duration::ZERO,
            last_arrival: Duration::ZERO,
            send_buffer: SEND_BUFFER_BYTES,
            in_flight: false,
            taken: None,
            send_is_due: false,
            blocked: false,
            stalled: false,
            shut: false,
            fin_left: false,
            inbound: VecDeque::new(),
            fin_came: false,
            fin_joined: false,
            end_told: false,
            receiving: false,
            one_more: false,
            broken: false,
            break_told: false,
            closed: false,
        }
    }

    /// Whether it is not known yet what connecting comes to.
    pub(super) const fn is_undecided(&self) -> bool {
        self.connecting && self.outcome.is_none()
    }

    /// Room in the send buffer.
    pub(super) fn room(&self) -> usize {
        self.send_buffer.saturating_sub(self.unsent.len() + self.unacknowledged)
    }

    /// Whether who was told to wait may be told to go on. As in a kernel there has to be some room, not just any.
    pub(super) fn is_writable_again(&self) -> bool {
        let waits = self.blocked && !self.stalled && !self.connecting && self.taken.is_none();
        waits && (self.broken || self.room() >= (self.send_buffer / 3).max(1))
    }

    /// Whether the loop wants what arrives, or cannot be spared it.
    pub(super) const fn may_receive(&self, held: bool) -> bool {
        (self.receiving && !held) || self.one_more
    }

    /// Whether there is anything to tell.
    pub(super) fn has_a_say(&self, held: bool) -> bool {
        if self.connecting {
            return self.outcome.is_some();
        }
        let breaks = self.broken && !self.break_told;
        self.send_is_due || self.is_writable_again() || breaks || (self.may_receive(held) && self.is_readable())
    }

    /// Whether there is something to receive, bytes or the end.
    pub(super) fn is_readable(&self) -> bool {
        !self.broken && !self.connecting && (!self.inbound.is_empty() || (self.fin_came && !self.end_told))
    }

    /// It is over, at once.
    pub(super) fn break_off(&mut self) {
        self.broken = true;
        self.inbound.clear();
        self.unsent.clear();
    }
}

/// A listener.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) address: Address,
    pub(super) ip: IpAddr,
    pub(super) owner: Option<Owner>,
    pub(super) lined_up: bool,
    pub(super) accepting: bool,
    /// Accepting was stopped, and one completion is on its way.
    pub(super) one_more: bool,
    /// Ends that wait to be accepted.
    pub(super) backlog: VecDeque<u64>,
}

impl Listener {
    pub(super) const fn new(address: Address, ip: IpAddr) -> Self {
        Self { address, ip, owner: None, lined_up: false, accepting: true, one_more: false, backlog: VecDeque::new() }
    }
}

impl Listener {
    pub(super) fn has_a_say(&self) -> bool {
        (self.accepting || self.one_more) && !self.backlog.is_empty()
    }
}

/// Bytes that a kernel keeps until the other end has acknowledged them.
pub(super) const SEND_BUFFER_BYTES: usize = 48 * 1024;

/// Bytes that a kernel keeps until they are read.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 64 * 1024;

/// Bytes that travel together.
pub(super) const SEGMENT_BYTES: usize = 16 * 1024;

/// Connections that wait to be accepted.
pub(super) const BACKLOG_MAX: usize = 128;
