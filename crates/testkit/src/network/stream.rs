//! What the kernels of a simulated network know of their sockets.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tidegate_sys::{Address, Token};

/// Who has a socket: a driver, by its number, and what the socket is called there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) desk: usize,
    pub(super) token: Token,
}

/// One end of a stream.
///
/// What is sent passes through four places: `unsent` here, the agenda while it travels, `inbound` of the other end,
/// and the driver's scratch. The first two are bounded by the send buffer, the second and third by the receive buffer.
#[derive(Debug)]
pub(super) struct End {
    pub(super) local: Address,
    pub(super) remote: Address,
    /// From which host to which.
    pub(super) route: (IpAddr, IpAddr),
    /// The other end; none until the network has found it.
    pub(super) peer: Option<u64>,
    /// None until it was adopted, and after it was closed.
    pub(super) owner: Option<Owner>,
    pub(super) lined_up: bool,
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
    pub(super) end_told: bool,
    pub(super) receiving: bool,
    /// It was reset.
    pub(super) broken: bool,
    pub(super) break_told: bool,
    /// Nobody has it any more; what is unsent still leaves.
    pub(super) closed: bool,
}

impl End {
    pub(super) const fn new(local: Address, remote: Address, route: (IpAddr, IpAddr)) -> Self {
        Self {
            local,
            remote,
            route,
            peer: None,
            owner: None,
            lined_up: false,
            connecting: false,
            outcome: None,
            unsent: VecDeque::new(),
            travelling: 0,
            unacknowledged: 0,
            free_at: Duration::ZERO,
            last_arrival: Duration::ZERO,
            blocked: false,
            stalled: false,
            shut: false,
            fin_left: false,
            inbound: VecDeque::new(),
            fin_came: false,
            end_told: false,
            receiving: false,
            broken: false,
            break_told: false,
            closed: false,
        }
    }

    /// Room in the send buffer.
    pub(super) fn room(&self) -> usize {
        SEND_BUFFER_BYTES.saturating_sub(self.unsent.len() + self.unacknowledged)
    }

    /// Whether who was told to wait may be told to go on. As in a kernel there has to be some room, not just any.
    pub(super) fn is_writable_again(&self) -> bool {
        self.blocked && !self.stalled && !self.connecting && (self.broken || self.room() >= SEND_BUFFER_BYTES / 3)
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
    /// Ends that wait to be accepted.
    pub(super) backlog: VecDeque<u64>,
}

impl Listener {
    pub(super) const fn new(address: Address, ip: IpAddr) -> Self {
        Self { address, ip, owner: None, lined_up: false, accepting: true, backlog: VecDeque::new() }
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
