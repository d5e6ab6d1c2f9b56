//! The state that the kernels of a simulated network keep for their sockets.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tidegate_buffer::ReceiveHint;
use tidegate_sys::{Address, Load, Token};

/// The owner of a socket: the number of a driver, and the socket's token there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) driver: usize,
    pub(super) token: Token,
}

/// The source host and the destination host.
pub(super) type Route = (IpAddr, IpAddr);

/// One end of a stream.
///
/// Sent bytes pass through four places: `unsent` here, the agenda while they travel, `inbound` of the other end, and
/// the driver's scratch. The send buffer bounds the first two, the receive buffer the second and third.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) local: Address,
    pub(super) remote: Address,
    /// From the host of this end to that of the other one.
    pub(super) route: Route,
    /// The other end; none until the connection request has arrived there.
    pub(super) peer: Option<u64>,
    /// None until a driver has adopted the end, and after it was closed.
    pub(super) owner: Option<Owner>,
    /// The driver that has accepted the end.
    pub(super) accepted_by: Option<usize>,
    /// The end is in the ready queue of its driver.
    pub(super) queued: bool,
    pub(super) load: Load,
    pub(super) connecting: bool,
    /// The result of connecting, until it is reported.
    pub(super) outcome: Option<Result<(), io::ErrorKind>>,

    /// Bytes that the other end has no room for yet.
    pub(super) unsent: VecDeque<u8>,
    /// Bytes that were transmitted and have not arrived.
    pub(super) travelling: usize,
    /// Bytes that were transmitted and that the other end has not acknowledged.
    pub(super) unacknowledged: usize,
    /// When the line is free for the next segment.
    pub(super) free_at: Duration,
    /// When the last segment arrives: no later one may overtake it.
    pub(super) last_arrival: Duration,
    /// The size of the send buffer, which holds unsent and unacknowledged bytes.
    pub(super) send_buffer: usize,
    /// A send was submitted, and its completion was not reported yet.
    pub(super) in_flight: bool,
    /// The bytes of that send, if they were taken and only the completion is late.
    pub(super) taken: Option<usize>,
    /// The completion of that send is due.
    pub(super) send_is_due: bool,
    /// The driver must report when sending can be tried again.
    pub(super) blocked: bool,
    /// A fault blocks sending, whatever room there is.
    pub(super) stalled: bool,
    /// The sending side is shut down; unsent bytes still leave.
    pub(super) shut: bool,
    pub(super) fin_left: bool,

    /// Bytes that have arrived and were not read.
    pub(super) inbound: VecDeque<u8>,
    /// How the loop wants the next receive sized.
    pub(super) receive_hint: Option<ReceiveHint>,
    pub(super) fin_received: bool,
    /// The FIN came with the last bytes, and is reported with them.
    pub(super) fin_joined: bool,
    pub(super) end_reported: bool,
    /// The owner wants to know when the stream ends, also while it does not receive.
    pub(super) is_watched: bool,
    pub(super) receiving: bool,
    /// Receiving was stopped, and one completion may still come.
    pub(super) one_more: bool,
    /// The stream was reset.
    pub(super) broken: bool,
    pub(super) break_reported: bool,
    /// The owner has closed the end; unsent bytes still leave.
    pub(super) closed: bool,
}

impl Endpoint {
    pub(super) fn new(local: Address, remote: Address, route: Route) -> Self {
        let load = Load::default();
        Self {
            local,
            remote,
            route,
            peer: None,
            owner: None,
            accepted_by: None,
            queued: false,
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
            receive_hint: None,
            fin_received: false,
            fin_joined: false,
            end_reported: false,
            is_watched: false,
            receiving: false,
            one_more: false,
            broken: false,
            break_reported: false,
            closed: false,
        }
    }

    /// Whether connecting has no result yet.
    pub(super) const fn is_connect_pending(&self) -> bool {
        self.connecting && self.outcome.is_none()
    }

    /// Room in the send buffer.
    pub(super) fn room(&self) -> usize {
        self.send_buffer.saturating_sub(self.unsent.len() + self.unacknowledged)
    }

    /// Whether a blocked sender may continue. As in a kernel this takes a minimum of room: a third of the buffer.
    pub(super) fn is_writable_again(&self) -> bool {
        let waits = self.blocked && !self.stalled && !self.connecting && self.taken.is_none();
        waits && (self.broken || self.room() >= (self.send_buffer / 3).max(1))
    }

    /// Whether the driver may report received bytes: the loop receives, or a late completion is still possible.
    pub(super) const fn may_receive(&self, paused: bool) -> bool {
        (self.receiving && !paused) || self.one_more
    }

    /// Whether there is a completion to report.
    pub(super) fn is_ready(&self, paused: bool) -> bool {
        if self.connecting {
            return self.outcome.is_some();
        }
        let breaks = self.broken && !self.break_reported;
        self.send_is_due
            || self.is_writable_again()
            || breaks
            || self.is_end_due()
            || (self.may_receive(paused) && self.is_readable())
    }

    /// Whether there are bytes to receive, or the end.
    pub(super) fn is_readable(&self) -> bool {
        !self.broken && !self.connecting && (!self.inbound.is_empty() || (self.fin_received && !self.end_reported))
    }

    /// Whether the end of the stream is to be reported apart from its bytes.
    pub(super) const fn is_end_due(&self) -> bool {
        self.is_watched && !self.broken && (self.end_reported || (self.fin_received && !self.receiving))
    }

    /// Breaks the stream at once, and discards all bytes.
    pub(super) fn break_stream(&mut self) {
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
    pub(super) queued: bool,
    pub(super) accepting: bool,
    /// Accepting was stopped, and one completion may still come.
    pub(super) one_more: bool,
    /// Ends that wait to be accepted.
    pub(super) backlog: VecDeque<u64>,
}

impl Listener {
    pub(super) const fn new(address: Address, ip: IpAddr) -> Self {
        Self { address, ip, owner: None, queued: false, accepting: true, one_more: false, backlog: VecDeque::new() }
    }
}

impl Listener {
    pub(super) fn is_ready(&self) -> bool {
        (self.accepting || self.one_more) && !self.backlog.is_empty()
    }
}

/// The size of a send buffer.
pub(super) const SEND_BUFFER_BYTES: usize = 48 * 1024;

/// The size of a receive buffer.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 64 * 1024;

/// The largest segment.
pub(super) const SEGMENT_BYTES: usize = 16 * 1024;

/// The size of a listener's backlog.
pub(super) const BACKLOG_MAX: usize = 128;
