//! `Link`: the parts of a connection other than its codec and its application.

use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use tidegate_buffer::injected::{self, Bug};
use tidegate_buffer::{Input, Outbound, Pool, Writability, WritePosition};
use tidegate_codec::{Fault, Lifecycle, Output, Pipeline};
use tidegate_sys::{Address, Token};

use super::closing::{WriteEvent, WriteSide};
use super::peer::{Peer, PeerAddress, unnamed};
use super::settings::Settings;
use crate::close_reason::CloseReason;
use crate::loop_core::Core;
use crate::peer_deadlines::Deadlines;
use crate::session::{Sessions, StreamId};
use crate::shaping::Shaping;
use crate::wheel::DeadlineTick;

/// Queue, input, state and timers of one connection; 104 bytes, and no other memory while nothing waits.
pub(crate) struct Link {
    pub(super) outbound: Outbound,
    pub(super) input: Input,
    pub(super) registration: Registration,
    /// Why the connection is being closed; `None` while it is open.
    pub(super) closing: Option<Rc<CloseReason>>,
    /// The watched write position, or [`NOT_WATCHED`]; a wire offset once `WIRE_OFFSET` is set.
    pub(super) watched: u64,
    /// The handler's deadline.
    pub(super) deadline: DeadlineTick,
    /// By when the peer has to take a byte, or to end the connection.
    pub(super) progress: DeadlineTick,
    /// How many bytes the peer had acknowledged at the last check, wrapping.
    pub(super) acknowledged: u32,
    pub(super) flags: u16,
    pub(super) level: Writability,
    /// The state of the sending side in the lowest three bits. Above: the turn in which the application last got a
    /// writable event, wrapping.
    pub(super) write_side_and_turn: u8,
}

/// The place of a connection among those of its listener, and its peer there. Dropping it gives the place back.
pub(super) struct Registration {
    settings: Rc<Settings>,
    peer: Peer,
}

impl Link {
    /// The read side is paused by the handler.
    pub(super) const PAUSED: u16 = 1;
    /// The driver receives.
    pub(super) const RECEIVING: u16 = 1 << 1;
    /// The peer has shut down its sending side.
    pub(super) const PEER_ENDED: u16 = 1 << 2;
    /// The codec yields no more messages, and the application knows.
    pub(super) const READ_CLOSED: u16 = 1 << 3;
    /// The driver has bytes of ours in flight, or waits until it can take some; or shaping holds the rest back.
    pub(super) const SENDING: u16 = 1 << 4;
    /// `watched` is a wire offset.
    pub(super) const WIRE_OFFSET: u16 = 1 << 6;
    /// The application has not been notified yet that the handshake is over.
    pub(super) const HANDSHAKE: u16 = 1 << 7;
    /// The level fell, so the application is to be notified when it rises.
    pub(super) const EDGE_DUE: u16 = 1 << 8;
    /// It is queued for another dispatch, or in the backlog.
    pub(super) const SCHEDULED: u16 = 1 << 9;
    /// The codec failed to write, or our side is shut down: the codec is not called to write again.
    const WRITE_FAILED: u16 = 1 << 10;
    /// The codec failed to read: it gets no more bytes.
    pub(super) const READ_FAILED: u16 = 1 << 11;
    /// The last dispatch left bytes that were read already and may be decoded.
    pub(super) const HAS_BACKLOG: u16 = 1 << 12;
    /// Of a stream: its input may be shorter than its session knows.
    pub(super) const CONSUMED: u16 = 1 << 13;
    /// Bytes have come since the deadlines of the peer were computed.
    pub(super) const RECEIVED: u16 = 1 << 14;
    /// The driver has taken bytes since then.
    pub(super) const SENT: u16 = 1 << 5;
    /// The connection is or was shaped.
    pub(super) const SHAPED: u16 = 1 << 15;

    pub(crate) fn new(settings: Rc<Settings>, peer: &Address, pool: &Pool) -> Self {
        if let Some(counts) = &settings.counts {
            counts.connections.fetch_add(1, Ordering::Relaxed);
            counts.accepted.fetch_add(1, Ordering::Relaxed);
        }
        let peer = Peer::new(peer, &settings.peers);
        Self::with_peer(settings, peer, pool)
    }

    /// The link of a stream, which has no socket.
    pub(crate) fn of_stream(settings: Rc<Settings>, stream: StreamId, outbound: Outbound) -> Self {
        settings.live.fetch_add(1, Ordering::Relaxed);
        let [_, session @ ..] = stream.session.to_be_bytes();
        Self::with_queue(settings, Peer::Stream { session, index: stream.index }, outbound)
    }

    fn with_peer(settings: Rc<Settings>, peer: Peer, pool: &Pool) -> Self {
        Self::with_queue(settings, peer, Outbound::new(pool))
    }

    #[inline]
    fn with_queue(settings: Rc<Settings>, peer: Peer, outbound: Outbound) -> Self {
        Self {
            outbound,
            input: Input::new(),
            registration: Registration { settings, peer },
            closing: None,
            watched: NOT_WATCHED,
            deadline: DeadlineTick::NEVER,
            progress: DeadlineTick::NEVER,
            acknowledged: 0,
            flags: 0,
            level: Writability::default(),
            write_side_and_turn: WriteSide::Open as u8,
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.registration.settings
    }

    pub(crate) fn shared_settings(&self) -> &Rc<Settings> {
        &self.registration.settings
    }

    pub(crate) fn outbound(&mut self) -> &mut Outbound {
        &mut self.outbound
    }

    /// The outbound queue and the input, both borrowed at once.
    #[inline]
    pub(super) fn queues(&mut self) -> (&mut Outbound, &mut Input) {
        (&mut self.outbound, &mut self.input)
    }

    /// Bytes of memory that its queues keep alive.
    pub(super) fn memory_bytes(&self) -> usize {
        self.outbound.memory_bytes() + self.input.memory_bytes()
    }

    /// Written bytes that were not sent.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.outbound.pending()
    }

    pub(super) fn outbound_is_empty(&self) -> bool {
        self.outbound.is_empty()
    }

    /// Sends bytes past the queue, and descriptors with them, if nothing waits in it.
    pub(crate) fn send_descriptors(
        &mut self,
        core: &mut Core,
        token: Token,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<usize> {
        if self.stream().is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if self.is_closing() || self.is_write_shut() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if !self.outbound.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sent = core.driver.send_descriptors(token, bytes, descriptors)?;
        core.counters.sent_bytes += sent as u64;
        Ok(sent)
    }

    /// The bytes that wait below all filters.
    pub(super) fn wire_cost(&self) -> u64 {
        self.outbound.cost()
    }

    /// The address of the peer; for a stream that of its session.
    #[inline]
    pub(crate) fn peer(&self, sessions: &Sessions) -> Address {
        match self.stream() {
            Some(stream) => sessions.of(stream).map_or_else(unnamed, |(_, peer)| peer),
            None => self.registration.address(),
        }
    }

    /// The peer's address for the streams of this session. It must not outlive the link.
    pub(crate) fn peer_address(&self) -> PeerAddress {
        PeerAddress::new(self.registration.peer, self.registration.settings.clone())
    }

    /// Whether this is the link of a stream.
    #[inline]
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.registration.peer, Peer::Stream { .. })
    }

    /// The stream that this is the link of, if it is that of a stream.
    #[inline]
    pub(crate) fn stream(&self) -> Option<StreamId> {
        self.registration.stream()
    }

    /// The session of this stream, which is closed, is found no more: its number may be another session's.
    pub(super) fn leave_session(&mut self) {
        self.registration.peer = Peer::Unnamed;
    }

    /// Begins to close in good order, unless the connection closes already.
    pub(crate) fn close_in_order(&mut self) {
        self.closing.get_or_insert_with(|| Rc::new(CloseReason::Done));
    }

    #[inline]
    pub(super) fn intersects(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(super) fn set(&mut self, flag: u16, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// Whether the connection is shaped, and the driver does not receive.
    #[inline]
    pub(super) fn is_shaped_and_not_receiving(&self) -> bool {
        self.flags & (Self::SHAPED | Self::RECEIVING) == Self::SHAPED
    }

    /// Sets or clears a flag and returns whether it was set.
    pub(super) fn replace(&mut self, flag: u16, on: bool) -> bool {
        let had = self.intersects(flag);
        self.set(flag, on);
        had
    }

    /// Bytes that the driver, or the session, has taken so far.
    pub(super) fn sent(&self) -> u64 {
        self.outbound.sent().0
    }

    /// So many bytes were taken. If that is progress, even within one large entry, the deadline starts anew.
    pub(super) fn note_progress(&mut self, sent: u64) {
        if self.progress.is_set() && self.proves_progress(sent) {
            self.progress = DeadlineTick::NEVER;
        }
    }

    /// Whether the driver takes bytes now, and may.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        !self.intersects(Self::SENDING | Self::WRITE_FAILED) && !self.is_ending()
    }

    /// Clears a flag and returns whether it was set.
    pub(super) fn take(&mut self, flag: u16) -> bool {
        let had = self.intersects(flag);
        self.set(flag, false);
        had
    }

    /// Takes note of how many sent bytes the peer has not acknowledged; returns whether it has acknowledged enough
    /// since the last check. Where the system does not report this, the bytes that the kernel took count.
    pub(super) fn update_acknowledged(&mut self, unacknowledged: Option<u64>) -> bool {
        let acknowledged = self.outbound.sent().0.wrapping_sub(unacknowledged.unwrap_or(0)) as u32;
        let more = acknowledged.wrapping_sub(std::mem::replace(&mut self.acknowledged, acknowledged));
        // A Unix socket counts its own overhead as well, so it may seem to have acknowledged less than before.
        more.cast_signed() >= self.progress_bytes_min().cast_signed()
    }

    /// Whether the peer must have acknowledged enough since the last check, after the kernel, whose buffer was full,
    /// has taken so many bytes.
    fn proves_progress(&self, sent: u64) -> bool {
        let taken = (self.outbound.sent().0 as u32).wrapping_sub(self.acknowledged);
        // No kernel buffers the rest of those. So numbers that wrap stay comparable.
        sent >= u64::from(self.progress_bytes_min()) || taken >= 2 * PROGRESS_BYTES_MAX
    }

    /// How many bytes the peer has to acknowledge from one check to the next.
    fn progress_bytes_min(&self) -> u32 {
        let limits = &self.registration.settings.limits;
        let bytes = limits.write_timeout.as_millis().saturating_mul(limits.write_rate_min.into()) / 1000;
        u32::try_from(bytes).unwrap_or(u32::MAX).clamp(1, PROGRESS_BYTES_MAX)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether the codec yields no more messages, and the application knows.
    #[inline]
    pub(crate) fn is_read_closed(&self) -> bool {
        self.intersects(Self::READ_CLOSED)
    }

    /// Whether the application sends no more.
    #[inline]
    pub(crate) fn is_write_shut(&self) -> bool {
        self.write_bits() > WriteSide::Open as u8
    }

    #[inline]
    fn write_bits(&self) -> u8 {
        self.write_side_and_turn & WRITE_SIDE_BITS
    }

    #[inline]
    pub(super) fn write_side(&self) -> WriteSide {
        WriteSide::from_bits(self.write_bits())
    }

    /// Of a stream whose peer has ended: whether it is open on this side, writable and not watched, nothing is unread, and
    /// no deadline is armed.
    #[inline]
    pub(super) fn is_answered(&self) -> bool {
        self.flags & !(Self::PEER_ENDED | Self::READ_CLOSED | Self::CONSUMED) == 0
            && !self.is_watching()
            && self.closing.is_none()
            && !self.is_write_shut()
            && self.level.is_writable()
            && self.input.is_empty()
            && !self.deadline.is_set()
            && !self.progress.is_set()
    }

    /// Whether the connection closes, or its sending side ends.
    #[inline]
    pub(super) fn is_ending(&self) -> bool {
        self.closing.is_some() || self.is_write_shut()
    }

    /// Whether our sending side is shut down.
    #[inline]
    pub(super) fn is_shut(&self) -> bool {
        self.write_bits() >= WriteSide::Shut as u8
    }

    /// Moves the sending side towards its end. Returns whether that changed its state.
    pub(super) fn advance_write_side(&mut self, event: WriteEvent) -> bool {
        let before = self.write_side();
        let after = before.after(event);
        self.write_side_and_turn = self.write_side_and_turn & !WRITE_SIDE_BITS | after as u8;
        after != before
    }

    /// Whether the codec is not called to write again.
    #[inline]
    pub(super) fn has_write_failed(&self) -> bool {
        self.intersects(Self::WRITE_FAILED)
    }

    /// The codec failed to write, or our side is shut down.
    pub(super) fn set_write_failed(&mut self) {
        self.set(Self::WRITE_FAILED, true);
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.level.is_writable()
    }

    /// The cost of the pending bytes, which is compared with the water marks.
    #[inline]
    pub(crate) fn cost(&self, codec: &impl Pipeline) -> u64 {
        self.outbound.cost() + codec.buffered_bytes() as u64
    }

    /// Compares the cost of the pending bytes with the water marks. The dispatch notifies the application of the edge,
    /// never this function.
    #[inline(always)]
    pub(crate) fn update_level(&mut self, codec: &impl Pipeline) {
        // With every message, and most of the time nothing changes.
        if !(self.is_writable() && self.cost(codec) <= self.registration.settings.limits.water.high) {
            self.change_level(self.cost(codec));
        }
    }

    #[cold]
    fn change_level(&mut self, cost: u64) {
        self.level.update(cost, &self.registration.settings.limits.water);
        self.note_level();
    }

    /// Whether so much waits that the application may send no more. That is never so while the connection is
    /// writable, since the high mark does not lie above the cap.
    #[inline]
    pub(crate) fn is_full(&self, codec: &impl Pipeline) -> bool {
        !self.is_writable() && self.cost(codec) > self.registration.settings.limits.water.cap
    }

    /// Whether the connection closes, or its sending side is shut down.
    #[inline(always)]
    pub(crate) fn is_sending_over(&self) -> bool {
        self.is_closing() || (self.is_write_shut() && !injected::is_injected(Bug::SentAfterShutdown))
    }

    pub(crate) fn block_writes(&mut self, block: bool) {
        self.level.set_blocked(block);
        self.note_level();
    }

    fn note_level(&mut self) {
        if !self.level.is_writable() {
            self.set(Self::EDGE_DUE, true);
        }
    }

    /// Whether the application may get a writable event in this turn: one, however often the connection is
    /// dispatched. Turns are compared modulo 32, so every 32nd may be taken for the one before it, which delays the
    /// event by one turn.
    pub(super) fn admits_edge(&mut self, turn: u64) -> bool {
        let now = (turn as u8) << WRITE_SIDE_BITS.count_ones() | self.write_bits();
        std::mem::replace(&mut self.write_side_and_turn, now) != now
    }

    /// Pauses or resumes; returns whether it was paused.
    pub(crate) fn pause(&mut self, pause: bool) -> bool {
        let paused = self.intersects(Self::PAUSED);
        self.set(Self::PAUSED, pause && !injected::is_injected(Bug::PauseIgnored));
        paused
    }

    /// Decoding resumes after a suspension.
    pub(crate) fn resume_codec<C: Pipeline>(&mut self, codec: &mut C, core: &Core) {
        let resumed = codec.on(Lifecycle::Resumed, &mut Output::new(&mut self.outbound, &core.pool, &core.time));
        self.close_on_error(resumed);
    }

    /// Begins to close if the codec failed. The codec gets no more bytes then.
    #[inline(never)]
    pub(super) fn close_on_error<E: Fault>(&mut self, result: Result<(), E>) {
        if let Err(fault) = result {
            self.set(Self::READ_FAILED, true);
            self.closing.get_or_insert_with(|| Rc::new(CloseReason::Protocol(Box::new(fault))));
        }
    }

    /// Whether a write position is watched.
    #[inline]
    pub(super) fn is_watching(&self) -> bool {
        self.watched != NOT_WATCHED
    }

    pub(super) fn stop_watching(&mut self) {
        self.watched = NOT_WATCHED;
    }

    pub(crate) fn watch(&mut self, position: WritePosition) {
        self.watched = position.0;
        self.set(Self::WIRE_OFFSET, false);
    }

    pub(crate) fn shut_write(&mut self) {
        self.advance_write_side(WriteEvent::Finish);
    }

    pub(crate) fn set_deadline(&mut self, tick: DeadlineTick) {
        self.deadline = tick;
    }

    /// Gives the connection deadlines of its own.
    pub(crate) fn set_deadlines(&self, core: &mut Core, token: Token, deadlines: Deadlines) {
        if !self.is_stream() {
            core.deadline_states.set_own(token.slot, deadlines);
        }
    }

    /// Shapes the connection from now on.
    pub(crate) fn set_shaping(&mut self, core: &mut Core, token: Token, shaping: &Shaping) {
        if !self.is_stream() {
            core.shaping.set(token.slot, shaping, core.time.now());
            self.set(Self::SHAPED, true);
        }
    }

    /// Clears the requests of a handler: another handler, with another codec, takes its place.
    pub(super) fn reset_for_next_handler(&mut self) {
        self.set(Self::PAUSED | Self::READ_CLOSED, false);
        if self.is_stream() && !self.input.is_empty() {
            // The next one may take them without receiving anything, and has to report that.
            self.set(Self::CONSUMED, true);
        }
        self.stop_watching();
        self.level.set_blocked(false);
        self.deadline = DeadlineTick::NEVER;
    }
}

impl Registration {
    #[inline]
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    #[inline]
    fn address(&self) -> Address {
        self.peer.address(&self.settings.peers)
    }

    /// The stream that it is, if it is a stream.
    #[inline]
    pub(super) fn stream(&self) -> Option<StreamId> {
        match self.peer {
            Peer::Stream { session: [high, middle, low], index } => {
                Some(StreamId { session: u32::from_be_bytes([0, high, middle, low]), index })
            }
            _ => None,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(admission) = &self.settings.admission
            && let Some(peer) = self.peer.ip(&self.settings.peers)
        {
            admission.release(peer);
        }
        self.peer.forget(&self.settings.peers);
        self.settings.live.fetch_sub(1, Ordering::Relaxed);
        if let Some(handle) = &self.settings.handle {
            handle.remove_connection();
        }
        if let Some(counts) = &self.settings.counts {
            counts.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// No queue comes that far.
pub(super) const NOT_WATCHED: u64 = u64::MAX;

/// The bits of [`WriteSide`].
const WRITE_SIDE_BITS: u8 = 7;

/// A least rate requires no more than this from one check to the next.
const PROGRESS_BYTES_MAX: u32 = 1 << 29;

const _: () = assert!(size_of::<Link>() - size_of::<Outbound>() <= 64);
