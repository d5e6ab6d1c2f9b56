//! `Endpoint`: QUIC for the datagrams of one socket, free of I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tidegate_buffer::{Datagram, DatagramError, DatagramErrorReason, LocalAddress, Payload, Transmit, Transmits};
use tidegate_codec::mux::{OpenError, ResetCause};
use tidegate_codec::{
    DatagramRefused, Direction, EndpointPlace, Handshake, ReadEnd, SessionCounts, SessionEvent, SessionNumber,
    StreamEndpoint, StreamNumber, WriteRefused, later,
};
use tidegate_engine::EndpointLimits;

use crate::config::{ClientConfig, Settings};
use crate::connection::{ConnectionState, NO_STREAM};
use crate::counters::{Counters, add, remove};
use crate::error::ConnectionError;
use crate::quinn::{self, ConnectionHandle, ConnectionId, DatagramEvent, LastId, Machine, Machines, Sent};
use crate::run_length::RunLength;
use crate::short_writes::ShortWrites;
use crate::watches::Watches;

/// QUIC on one socket: the connections of all peers, free of I/O.
///
/// [`ServerConfig::endpoint`](crate::ServerConfig::endpoint) makes one for each loop of a server, and
/// [`Connector`](crate::Connector) makes one for a client.
pub struct Endpoint {
    pub(crate) machines: Machines,
    /// The connection id that the machines have chosen last.
    pub(crate) last_id: LastId,
    pub(crate) own: EndpointPlace,
    pub(crate) settings: Settings,
    pub(crate) counters: Arc<Counters>,
    pub(crate) connections: Vec<Option<Box<ConnectionState>>>,
    /// Connections that are not over.
    open: usize,
    /// Connections that were never established and have a machine, with those that are over.
    pub(crate) handshaking: usize,
    /// The places of outgoing connections in their handshake, and the names of their servers.
    outgoing: BTreeMap<usize, Box<str>>,
    /// The upper half of the next session's number.
    generation: u32,
    timers: BTreeSet<(Instant, usize)>,
    /// Memory of datagrams that wait: see `kept.rs`.
    pub(crate) kept: usize,
    /// Connections that may have packets to send.
    queued: VecDeque<usize>,
    events: VecDeque<SessionEvent>,
    /// Datagrams of no connection.
    responses: VecDeque<Transmit>,
    watches: Watches,
    short_writes: ShortWrites,
    /// Clients of this batch that got a response instead of a connection. A long ClientHello comes in several Initials, and
    /// one response is enough.
    pub(crate) declined: Vec<(SocketAddr, ConnectionId)>,
    pub(crate) is_draining: bool,
}

impl Endpoint {
    pub(crate) fn new(settings: Settings, own: EndpointPlace) -> Self {
        let (machines, last_id) = settings.shared.machines(own, settings.generation.as_ref());
        Self {
            machines,
            last_id,
            own,
            counters: settings.counters.add_endpoint(),
            settings,
            connections: Vec::new(),
            open: 0,
            handshaking: 0,
            outgoing: BTreeMap::new(),
            generation: 0,
            timers: BTreeSet::new(),
            kept: 0,
            queued: VecDeque::new(),
            events: VecDeque::new(),
            responses: VecDeque::new(),
            watches: Watches::default(),
            short_writes: ShortWrites::default(),
            declined: Vec::new(),
            is_draining: false,
        }
    }

    /// Connections that are not over, with those in their handshake.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.open
    }

    /// The protocol that the handshake of a connection has agreed upon (ALPN).
    #[must_use]
    pub fn protocol(&self, session: SessionNumber) -> Option<Vec<u8>> {
        quinn::protocol(&self.get(session)?.machine)
    }

    /// Updates the keys of a connection (RFC 9001 §6). The machine does so by itself before their limit.
    pub fn update_keys(&mut self, session: SessionNumber) {
        if let Some(connection) = self.get_mut(session) {
            connection.machine.force_key_update();
        }
    }

    /// Sends a PING (RFC 9000 §19.2), and returns how many datagrams of the peer have come. If as many had come `before`, which
    /// an earlier call has returned, the peer has not acknowledged that PING: the connection ends, with
    /// [`ConnectionError::IdleTimeout`]. `None` if the connection is over.
    pub fn ping(&mut self, session: SessionNumber, before: Option<u64>, now: Instant) -> Option<u64> {
        let number = self.settings.codes.unneeded;
        let connection = self.get_mut(session)?;
        let received = connection.machine.stats().udp_rx.datagrams;
        if before == Some(received) {
            connection.end(now, number, "");
            self.on_over(place(session), ConnectionError::IdleTimeout, true);
            return None;
        }
        connection.machine.ping();
        Some(received)
    }

    /// The address of this side has changed: a path of each connection is validated anew. For a client whose socket was
    /// bound again.
    pub fn on_local_address_changed(&mut self) {
        for index in 0..self.connections.len() {
            if let Some(Some(connection)) = self.connections.get_mut(index) {
                connection.machine.local_address_changed();
            }
            self.queue(index);
        }
    }

    /// Ends a connection with a code of the application and a reason that the peer gets.
    pub fn close_connection(&mut self, session: SessionNumber, code: u64, reason: &'static str, now: Instant) {
        let Some(connection) = self.get_mut(session) else { return };
        connection.end(now, code, reason);
        self.on_over(place(session), ConnectionError::Closed, true);
    }

    pub(crate) fn connect(
        &mut self,
        config: &ClientConfig,
        address: SocketAddr,
        name: &str,
        now: Instant,
    ) -> Result<SessionNumber, ConnectionError> {
        if self.is_draining || self.open >= self.settings.limits.connections_max {
            return Err(ConnectionError::Full);
        }
        let is_refused = self.settings.refusals.contains(name);
        let outgoing = if is_refused { &config.outgoing_without_early } else { &config.outgoing };
        let (handle, machine) = self.machines.connect(now, self.settings.of_outgoing(outgoing), address, name)?;
        self.outgoing.insert(handle.0, name.into());
        let has_early_data = machine.has_0rtt();
        let session = self.insert(handle, machine, now);
        self.watches.add(session);
        if let Some(Some(connection)) = self.connections.get_mut(handle.0).filter(|_| has_early_data) {
            connection.report(&mut self.events);
        }
        Ok(session)
    }

    pub(crate) fn poll_established(
        &mut self,
        session: SessionNumber,
        is_confirmed: bool,
        cx: &Context<'_>,
    ) -> Poll<Result<(), ConnectionError>> {
        self.watches.poll_established(session, is_confirmed, cx)
    }

    pub(crate) fn poll_ended(&mut self, session: SessionNumber, cx: &Context<'_>) -> Poll<ConnectionError> {
        self.watches.poll_ended(session, cx)
    }

    pub(crate) fn register(&mut self, session: SessionNumber, cx: &Context<'_>) {
        self.watches.register(session, cx);
    }

    /// No program has a handle of a connection. One in its handshake ends now: no task waits for it.
    pub(crate) fn on_handle_dropped(&mut self, session: SessionNumber, now: Instant) {
        self.watches.remove(session);
        if self.get(session).is_some_and(|connection| !connection.is_reported) {
            self.end_session(session, Some(ResetCause::Unneeded), now);
        }
    }

    pub(crate) fn insert(&mut self, handle: ConnectionHandle, machine: Machine, now: Instant) -> SessionNumber {
        self.generation = self.generation.wrapping_add(1);
        let number = SessionNumber(u64::from(self.generation) << 32 | handle.0 as u64);
        let connection = ConnectionState {
            peer: machine.remote_address(),
            machine,
            number,
            is_reported: false,
            is_established: false,
            early: Vec::new(),
            is_over: false,
            is_queued: false,
            run: RunLength::default(),
            ends_with: None,
            endless: Vec::new(),
            open: 0,
            received: now,
            silence_of_peer: Duration::MAX,
            ping_at: None,
            ends_by: None,
            timer: None,
            handshake_deadline: Some(later(now, self.settings.handshake_timeout)),
            datagrams: None,
            counted_datagrams: 0,
            shares_from: 0,
            read_whole: NO_STREAM,
            finished: NO_STREAM,
            handshake: None,
        };
        if handle.0 >= self.connections.len() {
            self.connections.resize_with(handle.0 + 1, || None);
        }
        if let Some(place) = self.connections.get_mut(handle.0) {
            *place = Some(Box::new(connection));
        }
        (self.open, self.handshaking) = (self.open + 1, self.handshaking + 1);
        add(&self.counters.begun, 1);
        add(&self.counters.connections, 1);
        self.advance(handle.0, now);
        self.queue(handle.0);
        number
    }

    pub(crate) fn at(&mut self, index: usize) -> Option<&mut ConnectionState> {
        self.connections.get_mut(index)?.as_deref_mut()
    }

    fn get(&self, session: SessionNumber) -> Option<&ConnectionState> {
        let connection = self.connections.get(place(session))?.as_deref()?;
        (connection.number == session && !connection.is_over).then_some(connection)
    }

    /// A connection that is not over. It may have packets to send afterwards.
    fn get_mut(&mut self, session: SessionNumber) -> Option<&mut ConnectionState> {
        self.get(session)?;
        self.queue(place(session));
        self.at(place(session))
    }

    fn queue(&mut self, index: usize) {
        if let Some(connection) = self.at(index)
            && !std::mem::replace(&mut connection.is_queued, true)
        {
            self.queued.push_back(index);
        }
    }

    /// Takes the events of a connection.
    fn advance(&mut self, index: usize, now: Instant) {
        self.exchange_events(index);
        let Some(connection) = self.at(index) else { return };
        if connection.is_over {
            // Its events concern nobody.
            while connection.machine.poll().is_some() {}
            return;
        }
        let error = self.take_events(index);
        self.count_datagrams(index);
        let Some(error) = error else { return };
        let Some(connection) = self.at(index) else { return };
        connection.is_over = true;
        if error == ConnectionError::EarlyDataRejected {
            return self.on_early_data_rejected(index, now);
        }
        let is_unneeded = !connection.is_established && error.is_by_peer();
        self.on_over(index, error, true);
        if is_unneeded {
            // The peer needs no response. The machine sets no timer for a connection that its first packet closes, and would
            // stay until the idle timeout.
            self.machines.handle_event(ConnectionHandle(index), quinn::drained());
            self.forget(index);
        }
    }

    /// The server has refused early data, and has processed no stream of this side. New streams would have the numbers of
    /// those that are gone, so the connection ends.
    fn on_early_data_rejected(&mut self, index: usize, now: Instant) {
        let Self { connections, events, settings, .. } = self;
        let Some(Some(connection)) = connections.get_mut(index) else { return };
        connection.report_refused(settings.codes.refused, events);
        connection.end(now, settings.codes.unneeded, "");
        self.on_over(index, ConnectionError::EarlyDataRejected, true);
        self.queue(index);
    }

    /// Takes the events of a connection that is not over. Returns the error that has ended it.
    fn take_events(&mut self, index: usize) -> Option<ConnectionError> {
        let Self { connections, events, settings, counters, watches, outgoing, .. } = self;
        let connection = connections.get_mut(index)?.as_deref_mut()?;
        let was_established = connection.is_established;
        let datagram_bytes_max = settings.limits.datagram_receive_bytes.unwrap_or(0);
        let mut progress = connection.take_events(&settings.codes, datagram_bytes_max, events);
        add(&counters.datagrams_dropped, progress.datagrams_dropped);
        let number = connection.number;
        if !was_established && progress.has_been_established {
            self.handshaking -= 1;
            connection.handshake = None;
            let name = outgoing.remove(&index);
            add(&counters.handshakes, 1);
            watches.on_confirmed(number);
            let has_lost_early_data = connection.has_lost_early_data();
            if let Some(name) = name {
                settings.refusals.set(name, has_lost_early_data);
            }
            if has_lost_early_data {
                progress.error.get_or_insert(ConnectionError::EarlyDataRejected);
            }
        } else if progress.may_open {
            watches.wake(number);
            events.push_back(SessionEvent::Permitted(number));
        }
        if connection.is_established && connection.peer != connection.machine.remote_address() {
            connection.peer = connection.machine.remote_address();
            add(&counters.migrations, 1);
            events.push_back(SessionEvent::Moved { session: number, peer: connection.peer });
        }
        progress.error
    }

    /// A connection has ended, and its last packets remain. The caller learns that if it `reports`.
    fn on_over(&mut self, index: usize, error: ConnectionError, reports: bool) {
        let Self { connections, events, counters, watches, open, outgoing, .. } = self;
        let Some(Some(connection)) = connections.get_mut(index) else { return };
        outgoing.remove(&index);
        (connection.handshake_deadline, connection.ends_by, connection.handshake) = (None, None, None);
        let number = connection.number;
        add(&counters.packets_lost, connection.machine.stats().path.lost_packets);
        remove(&counters.connections);
        if error == ConnectionError::IdleTimeout {
            add(&counters.idle_timeouts, 1);
        }
        *open -= 1;
        connection.datagrams = None;
        watches.on_ended(number, &error);
        if !connection.is_established {
            add(&counters.handshakes_failed, 1);
        }
        if connection.is_reported && reports {
            events.push_back(SessionEvent::Ended { session: number, reason: Box::new(error) });
        }
        self.count_datagrams(index);
    }

    /// Passes the events between a connection and the table of connection ids.
    fn exchange_events(&mut self, index: usize) {
        let handle = ConnectionHandle(index);
        loop {
            let Self { connections, machines, .. } = self;
            let Some(Some(connection)) = connections.get_mut(index) else { return };
            let Some(event) = connection.machine.poll_endpoint_events() else { return };
            let is_drained = event.is_drained();
            if let Some(event) = machines.handle_event(handle, event) {
                connection.machine.handle_event(event);
            }
            if is_drained {
                return self.forget(index);
            }
        }
    }

    /// Nothing is left of a connection.
    fn forget(&mut self, index: usize) {
        if self.at(index).is_some_and(|connection| !connection.is_over) {
            // A datagram may complete the handshake and end the connection.
            let error = self.take_events(index).unwrap_or(ConnectionError::Closed);
            if let Some(connection) = self.at(index) {
                connection.is_over = true;
            }
            self.on_over(index, error, true);
        }
        let Some(connection) = self.connections.get_mut(index).and_then(Option::take) else { return };
        self.uncount_datagrams(&connection);
        if !connection.is_established {
            self.handshaking -= 1;
        }
        if let Some(at) = connection.timer {
            self.timers.remove(&(at, index));
        }
        while self.connections.last().is_some_and(Option::is_none) {
            self.connections.pop();
        }
    }

    /// Ends a handshake. Nothing is sent: the address of the peer may be forged.
    fn abandon(&mut self, index: usize, error: ConnectionError) {
        if let Some(connection) = self.at(index) {
            connection.is_over = true;
        }
        self.on_over(index, error, true);
        self.machines.handle_event(ConnectionHandle(index), quinn::drained());
        self.forget(index);
    }

    /// Sets the timer of a connection. One that is too early stays: almost each packet moves the deadline back, and a timer that
    /// comes too early is set again.
    fn update_timer(&mut self, index: usize) {
        let Self { connections, timers, .. } = self;
        let Some(Some(connection)) = connections.get_mut(index) else { return };
        let Some(deadline) = connection.deadline() else { return };
        if connection.timer.is_none_or(|timer| deadline < timer) {
            if let Some(before) = connection.timer.replace(deadline) {
                timers.remove(&(before, index));
            }
            timers.insert((deadline, index));
        }
    }

    pub(crate) fn respond(&mut self, sent: Option<Sent>, buffer: Vec<u8>) {
        if let Some(sent) = sent
            && self.responses.len() < RESPONSES_MAX
        {
            self.responses.push_back(transmit(&sent, buffer));
        }
    }

    /// Sends the packets of a connection. Returns whether the list still has room.
    fn send(&mut self, index: usize, now: Instant, transmits: &mut Transmits) -> bool {
        if self.at(index).is_some_and(|connection| connection.end_when_delivered(now)) {
            self.on_over(index, ConnectionError::Closed, false);
        }
        let Self { connections, settings, .. } = self;
        let limits = &settings.limits;
        let (silence, window_max, streams_max) = (limits.silence(), limits.send_window, limits.bidirectional_max);
        if let Some(connection) = connections.get_mut(index).and_then(Option::as_deref_mut) {
            connection.ping_if_silent(now, silence);
            quinn::permit_streams(&mut connection.machine, streams_max);
            loop {
                if transmits.room(RUN_BYTES) == 0 {
                    return false;
                }
                let mut buffer = transmits.buffer();
                match connection.poll_transmit(now, limits, &mut buffer) {
                    Some(sent) => transmits.push(transmit(&sent, buffer)),
                    None => {
                        transmits.recycle(Payload::Buffer(buffer));
                        break;
                    }
                }
            }
            connection.is_queued = false;
            if !connection.is_over {
                connection.bind_late(window_max);
            }
        }
        self.advance(index, now);
        self.update_timer(index);
        true
    }
}

impl tidegate_codec::Endpoint for Endpoint {
    fn handle_datagram(&mut self, datagram: Datagram, now: Instant) {
        if datagram.truncated {
            return;
        }
        let (source, local, ecn) = (datagram.source, datagram.local.address, quinn::ecn_of(datagram.ecn));
        // The machine may keep a part of a datagram for long. Each has a block of its own, so that the part keeps no other.
        let bytes = BytesMut::from(&datagram.payload[..]);
        let mut buffer = Vec::new();
        match self.machines.handle(now, source, local, ecn, bytes, &mut buffer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.at(handle.0) {
                    connection.received = now;
                    connection.machine.handle_event(event);
                }
                self.advance(handle.0, now);
                self.queue(handle.0);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.on_incoming(incoming, now),
            Some(DatagramEvent::Response(sent)) => self.respond(Some(sent), buffer),
            None => {}
        }
    }

    fn poll_transmit(&mut self, now: Instant, transmits: &mut Transmits) {
        // They concern the batch that was received before.
        self.declined.clear();
        while transmits.room(RUN_BYTES) > 0
            && let Some(response) = self.responses.pop_front()
        {
            transmits.push(response);
        }
        while let Some(index) = self.queued.pop_front() {
            if !self.send(index, now, transmits) {
                return self.queued.push_front(index);
            }
        }
        self.short_writes.end_turn();
        // An idle endpoint keeps no memory for a batch.
        (self.queued, self.declined) = (VecDeque::new(), Vec::new());
        if self.responses.is_empty() {
            self.responses = VecDeque::new();
        }
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, index)) = self.timers.first()
            && at <= now
        {
            self.timers.remove(&(at, index));
            let Some(connection) = self.at(index) else { continue };
            connection.timer = None;
            if connection.handshake_deadline.is_some_and(|deadline| deadline <= now) {
                self.abandon(index, ConnectionError::HandshakeTimeout);
                continue;
            }
            if let Some(code) = connection.end_is_overdue(now) {
                connection.end(now, code, "");
                self.on_over(index, ConnectionError::Closed, false);
            }
            let Some(connection) = self.at(index) else { continue };
            connection.machine.handle_timeout(now);
            self.advance(index, now);
            self.queue(index);
        }
    }

    /// A server that is not there fails the handshakes of clients at once. Any sender can forge such a report, so it ends no
    /// connection that is established. It costs a server nothing, which has no outgoing connection.
    fn failed(&mut self, error: DatagramError, _now: Instant) {
        use DatagramErrorReason::{PortUnreachable, Unreachable};
        if self.outgoing.is_empty() || !matches!(error.reason, PortUnreachable | Unreachable) {
            return;
        }
        for index in self.outgoing.keys().copied().collect::<Vec<_>>() {
            if self.at(index).is_some_and(|connection| error.destination == Some(connection.peer)) {
                self.abandon(index, ConnectionError::Unreachable);
            }
        }
    }

    fn drain(&mut self, _now: Instant) {
        self.is_draining = true;
    }

    fn is_drained(&self) -> bool {
        self.open == 0 && self.queued.is_empty() && self.responses.is_empty()
    }
}

impl StreamEndpoint for Endpoint {
    fn poll_event(&mut self, _now: Instant) -> Option<SessionEvent> {
        let event = self.events.pop_front();
        // From now on the caller can open streams.
        if let Some(SessionEvent::Established { session, .. }) = &event {
            self.watches.on_established(*session);
        }
        event
    }

    fn read(&mut self, stream: StreamNumber, space: &mut [u8]) -> (usize, ReadEnd) {
        let index = place(stream.session);
        let Some(connection) = self.at(index).filter(|connection| connection.number == stream.session) else {
            // Its end is an event, and a stream of it must not seem to have ended in good order.
            return (0, ReadEnd::Blocked);
        };
        let (count, end, sends) = connection.read(stream.stream, space);
        if sends {
            self.queue(index);
        }
        (count, end)
    }

    fn write(&mut self, stream: StreamNumber, bytes: &[u8]) -> Result<usize, WriteRefused> {
        self.get_mut(stream.session).ok_or(WriteRefused)?;
        let Self { connections, short_writes, .. } = self;
        let connection = connections.get_mut(place(stream.session)).and_then(Option::as_deref_mut);
        connection.ok_or(WriteRefused)?.write_short(stream.stream, bytes, short_writes)
    }

    fn write_bytes(&mut self, stream: StreamNumber, bytes: Bytes) -> Result<usize, WriteRefused> {
        self.get_mut(stream.session).ok_or(WriteRefused)?.write_bytes(stream.stream, bytes)
    }

    fn finish(&mut self, stream: StreamNumber) {
        if let Some(connection) = self.get_mut(stream.session) {
            connection.finish(stream.stream);
        }
    }

    fn close(&mut self, stream: StreamNumber, cause: Option<ResetCause>, resets: bool) {
        let codes = self.settings.codes;
        if let Some(connection) = self.get_mut(stream.session) {
            connection.close(stream.stream, cause, resets, &codes);
        }
    }

    fn open(&mut self, session: SessionNumber, direction: Direction) -> Result<StreamNumber, OpenError> {
        self.get_mut(session).ok_or(OpenError::Ending)?.open(direction)
    }

    fn end_session(&mut self, session: SessionNumber, cause: Option<ResetCause>, now: Instant) {
        let code = self.settings.codes.of(cause.unwrap_or(ResetCause::Unneeded));
        let timeout = self.settings.limits.end_timeout;
        let Some(connection) = self.get_mut(session) else { return };
        if cause.is_none() {
            // Its streams are over, and the peer may not have all of their bytes.
            connection.ends_with = Some(code);
            connection.ends_by = Some(later(now, timeout));
            return;
        }
        connection.end(now, code, "");
        self.on_over(place(session), ConnectionError::Closed, false);
    }

    fn send_datagram(&mut self, session: SessionNumber, datagram: Bytes) -> Result<(), DatagramRefused> {
        let connection = self.get_mut(session).ok_or(DatagramRefused::Unsupported)?;
        let dropped = quinn::send_datagram(&mut connection.machine, datagram)?;
        add(&self.counters.datagrams_dropped, dropped.into());
        self.count_datagrams(place(session));
        Ok(())
    }

    fn read_datagram(&mut self, session: SessionNumber) -> Option<Bytes> {
        let connection = self.connections.get_mut(place(session))?.as_deref_mut()?;
        let queue =
            connection.datagrams.as_mut().filter(|_| connection.number == session && connection.is_established)?;
        let datagram = queue.pop();
        if datagram.is_none() {
            connection.datagrams = None;
        }
        self.count_datagrams(place(session));
        datagram
    }

    fn kept_bytes(&self) -> usize {
        self.kept
    }

    fn each_kept(&self, each: &mut dyn FnMut(SessionNumber, usize)) {
        self.each_kept_here(each);
    }

    fn drop_datagrams(&mut self, session: SessionNumber) {
        self.drop_datagrams_of(session);
    }

    fn datagram_bytes_max(&mut self, session: SessionNumber) -> Option<usize> {
        self.get(session)?;
        quinn::datagram_bytes_max(&mut self.at(place(session))?.machine)
    }

    fn round_trip(&self, session: SessionNumber) -> Option<Duration> {
        Some(self.get(session)?.machine.rtt())
    }

    fn is_early(&self, stream: StreamNumber) -> bool {
        let connection = self.get(stream.session);
        connection.is_some_and(|connection| !connection.is_established || connection.early.contains(&stream.stream))
    }

    fn is_confirmed(&self, session: SessionNumber) -> bool {
        self.get(session).is_none_or(|connection| connection.is_established)
    }

    fn handshake(&self, session: SessionNumber) -> Option<Handshake> {
        Some(quinn::handshake(&self.get(session)?.machine))
    }

    fn counts(&self) -> SessionCounts {
        self.counters.read()
    }

    fn session_protocols(&self) -> &'static [&'static str] {
        &["QUIC"]
    }

    fn set_urgency(&mut self, stream: StreamNumber, urgency: u8) {
        if let Some(connection) = self.get_mut(stream.session) {
            connection.set_priority(stream.stream, URGENCY - i32::from(urgency));
        }
    }
}

impl AsMut<Self> for Endpoint {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.settings.counters.remove_endpoint(&self.counters);
        // Tasks that wait for a connection find out that the socket is closed.
        self.watches.wake_all();
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("connections", &self.open).finish_non_exhaustive()
    }
}

/// The place of a session in the table.
pub(crate) fn place(session: SessionNumber) -> usize {
    session.0 as u32 as usize
}

fn transmit(sent: &Sent, mut buffer: Vec<u8>) -> Transmit {
    buffer.truncate(sent.size);
    Transmit {
        payload: Payload::Buffer(buffer),
        destination: Some(sent.destination),
        local: LocalAddress { address: sent.src_ip, interface: 0 },
        ecn: quinn::ecn(sent.ecn),
        segment_size: sent.segment_size.and_then(|size| NonZeroU16::new(u16::try_from(size).ok()?)),
        ancillary: None,
    }
}

/// The urgency of a stream unless set (RFC 9218 §4.1).
const URGENCY: i32 = 3;

/// Datagrams of no connection that wait to be sent.
const RESPONSES_MAX: usize = 1024;

/// The longest run: with less room than that, the connections wait.
const RUN_BYTES: usize = EndpointLimits::RUN_BYTES as usize;
