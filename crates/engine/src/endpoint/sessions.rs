//! An endpoint whose sessions carry streams ([`StreamEndpoint`]): QUIC.
//!
//! Each stream is a connection in a slot of its own, as a stream of a [`Mux`](tidegate_codec::mux::Mux) is, and the entry
//! of the endpoint takes the place of its driver. A stream's request is a [`StreamRequest`]; requests wait in the links of
//! its session, and the endpoint handles them before its dispatch ends.
//!
//! The protocol is read only when an application wants bytes: one piece is dispatched to a stream, and the next one when
//! the stream reports that its application has finished with that. Bytes that wait in the protocol use up its windows. A
//! queue is written until the protocol takes no more.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tidegate_buffer::{Charge, Outbound, Pool, Slice};
use tidegate_codec::mux::{OpenError, ResetCause};
use tidegate_codec::{
    Direction, Handshake, ReadEnd, SessionCounts, SessionEvent, SessionNumber, StreamEndpoint, StreamNumber,
};
use tidegate_sys::{Address, Token};

use super::session_tables::{Session, SessionStreams, SessionTables, Stream};
use super::stream_io::{Written, read, write};
use super::{EndpointEntry, EndpointLimits, SteeredPlace};
use crate::admission::AdmissionControl;
use crate::close_reason::CloseReason;
use crate::connection::{Link, PeerAddress, Settings};
use crate::inspection::{ConnectionState, Description, ProtocolNames, SessionInfo, session_id};
use crate::limits::Limits;
use crate::loop_core::Core;
use crate::session::{SessionError, StreamId, StreamRequest, StreamRequestKind};
use crate::slot_entry::{Disposition, SlotEntry, SlotEvent};
use crate::successor::Successor;
use crate::unwind::discard;

/// The limits of an endpoint whose sessions carry streams.
#[derive(Debug, Clone, Default)]
pub struct SessionLimits {
    /// Those of the endpoint: datagrams that wait to be sent.
    pub endpoint: EndpointLimits,
    /// Those of each stream, which are the limits of a connection. A server refuses [`shaping`](Limits::shaping) and
    /// [`age_max`](crate::Deadlines::age_max), which no stream has: its sessions share one socket, and end by their protocol.
    pub streams: Limits,
}

impl SessionLimits {
    /// # Errors
    /// `InvalidInput` for a limit that would have no effect.
    pub(super) fn check(&self) -> io::Result<()> {
        let text = if self.streams.shaping.is_set() {
            "sessions over datagrams have no `shaping`: their connections share one socket; leave it unset"
        } else if self.streams.deadlines.age_max.is_some() {
            "streams have no `age_max`: leave it unset, and let the protocol end old sessions, as `http3::Limits::age_max` does"
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

/// Makes the services of a session that has been established.
pub(super) type MakeServices = Box<dyn FnMut(Token, SessionNumber, SocketAddr, Option<Handshake>) -> SessionStreams>;

/// A datagram socket with a protocol whose sessions carry streams.
pub(super) struct SessionsEntry<E: StreamEndpoint + 'static> {
    pub(super) base: EndpointEntry<E>,
    pub(super) tables: SessionTables,
    services: MakeServices,
    settings: Rc<Settings>,
    /// Memory of sessions beside their streams.
    pub(super) kept: Charge,
    /// The counts of the protocol that the loop has counted.
    counted: SessionCounts,
    /// Which peers may have sessions, and how many.
    admission: Option<Arc<AdmissionControl>>,
    /// A handle opens sessions and streams: a drain waits for the tasks that have it.
    has_handle: bool,
    pub(super) is_draining: bool,
    /// The protocol has panicked, and no other one has taken its place: its counts were taken off.
    is_lost: bool,
}

impl<E: StreamEndpoint + 'static> SessionsEntry<E> {
    pub(super) fn new(
        (endpoint, make): (E, Option<Box<dyn FnMut() -> E>>),
        limits: SessionLimits,
        services: MakeServices,
        has_handle: bool,
        pool: &Pool,
    ) -> Self {
        Self {
            base: EndpointEntry::new(endpoint, make, limits.endpoint, pool),
            tables: SessionTables::default(),
            services,
            settings: Settings::new(limits.streams, Arc::default()),
            kept: pool.charge(0),
            counted: SessionCounts::default(),
            admission: None,
            has_handle,
            is_draining: false,
            is_lost: false,
        }
    }

    /// Sets which peers may have sessions.
    pub(super) fn admission(self, admission: Option<Arc<AdmissionControl>>) -> Self {
        Self { admission, ..self }
    }

    /// Sets its place among loops that forward datagrams to each other, and the server that gets its socket, if one may.
    pub(super) fn steered(mut self, steered: Option<SteeredPlace>, successor: Option<Successor>) -> Self {
        (self.base.steered, self.base.successor) = (steered.map(Box::new), successor.map(Box::new));
        self
    }

    pub(super) fn endpoint(&mut self) -> &mut E {
        &mut self.base.endpoint
    }

    /// Opens a stream, and reserves its slot.
    pub(super) fn open(
        &mut self,
        core: &mut Core,
        number: SessionNumber,
        direction: Direction,
    ) -> Result<(Token, Link), SessionError> {
        let Some(session) = self.tables.session(number).map(|session| session.link) else {
            return Err(SessionError::Closed);
        };
        let number = self.base.endpoint.open(number, direction).map_err(SessionError::Open)?;
        let mut flags = 0;
        if direction == Direction::Unidirectional {
            flags |= Stream::READ_OVER;
        }
        self.add_stream(core, session, number, flags).ok_or(SessionError::Closed)
    }

    /// Gives a stream that the protocol has, and that the engine does not know yet, a slot.
    pub(super) fn adopt(
        &mut self,
        core: &mut Core,
        number: StreamNumber,
        (direction, is_own): (Direction, bool),
    ) -> Result<(Token, Link), SessionError> {
        let Some(session) = self.tables.session(number.session).map(|session| session.link) else {
            return Err(SessionError::Closed);
        };
        let flags = match (direction, is_own) {
            (Direction::Bidirectional, _) => Stream::READABLE,
            (Direction::Unidirectional, true) => Stream::READ_OVER,
            (Direction::Unidirectional, false) => Stream::READABLE | Stream::WRITE_OVER,
        };
        let (token, link) = self.add_stream(core, session, number, flags).ok_or(SessionError::Closed)?;
        if let Some(index) = self.tables.index(number) {
            self.tables.read_later(index);
        }
        Ok((token, link))
    }

    /// The number of the stream in a slot.
    pub(super) fn stream_number(&mut self, core: &Core, token: Token) -> Option<StreamNumber> {
        let StreamId { index, .. } = core.slots.get(token)?.stream()?;
        self.tables.stream(index).filter(|stream| stream.token == token).map(|stream| stream.number)
    }

    /// The oldest datagram of a session, or a promise to wake a task.
    pub(super) fn poll_datagram(
        &mut self,
        number: SessionNumber,
        cx: &Context<'_>,
    ) -> Poll<Result<Bytes, SessionError>> {
        let Some(waker) = self.tables.datagram_waker(number) else { return Poll::Ready(Err(SessionError::Closed)) };
        match self.base.endpoint.read_datagram(number) {
            Some(datagram) => Poll::Ready(Ok(datagram)),
            None => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// No handle of a session is left: it ends behind its last stream.
    pub(super) fn end_when_empty(&mut self, number: SessionNumber) {
        self.tables.end_when_empty(number);
    }

    /// The handle is gone: the endpoint closes behind its last stream.
    pub(super) fn on_handle_dropped(&mut self, core: &Core) {
        self.has_handle = false;
        self.begin_drain(core);
    }

    fn begin_drain(&mut self, core: &Core) {
        (self.is_draining, self.base.is_draining) = (true, true);
        self.base.endpoint.drain(core.time.now());
    }

    fn add_stream(&mut self, core: &mut Core, session: u32, number: StreamNumber, flags: u16) -> Option<(Token, Link)> {
        let queue = Outbound::new(&core.pool);
        self.add_stream_with(core, queue, (session, number), flags).map(|(token, link, _)| (token, link))
    }

    pub(super) fn add_stream_with(
        &mut self,
        core: &mut Core,
        queue: Outbound,
        (session, number): (u32, StreamNumber),
        flags: u16,
    ) -> Option<(Token, Link, u32)> {
        let token = core.slots.reserve();
        let Some(index) = self.tables.add_stream(number, token, flags) else {
            core.release(token);
            return None;
        };
        let link = Link::of_stream(self.settings.clone(), StreamId { session, index }, queue);
        Some((token, link, index))
    }

    /// Handles events of the protocol and requests of streams, until there are none.
    fn work(&mut self, core: &mut Core, token: Token) {
        core.sessions.set_dispatched_endpoint(Some(token));
        self.handle_events(core, token);
        loop {
            self.handle_requests(core, token);
            self.read_streams(core);
            self.handle_requests(core, token);
            self.write_streams(core);
            // A protocol may end a session for something that a stream has caused.
            let has_events = self.handle_events(core, token);
            let has_turns = self.tables.has_reads() || self.tables.has_writes();
            if !has_events && !has_turns && !core.sessions.has_requested(token) {
                break;
            }
        }
        core.sessions.set_dispatched_endpoint(None);
        core.release_answer_queue();
        self.tables.release_memory();
        let ends_idle = self.is_draining && !self.base.endpoint.keeps_idle_sessions();
        for number in self.tables.ended_sessions(ends_idle) {
            self.end_session(core, number, None);
        }
    }

    /// Handles some events of the protocol. Returns whether there were any.
    ///
    /// A batch of datagrams may bring thousands of requests. A few of them are read, answered and written before the next
    /// ones, so that the memory of one serves the other.
    fn handle_events(&mut self, core: &mut Core, token: Token) -> bool {
        let now = core.time.now();
        let mut has_any = false;
        for _ in 0..EVENTS_MAX {
            let Some(event) = self.base.endpoint.poll_event(now) else { break };
            has_any = true;
            match event {
                SessionEvent::Established { session, peer } => self.on_established(core, token, session, peer),
                SessionEvent::Moved { session, peer } => {
                    if let Some(session) = self.tables.session(session) {
                        core.sessions.set_peer(session.link, self.peer(peer));
                    }
                }
                SessionEvent::Opened { stream, direction } => self.accept(core, stream, direction),
                SessionEvent::Readable(stream) => {
                    if let Some(index) = self.tables.index(stream) {
                        self.set(index, Stream::READABLE, true);
                        self.tables.read_later(index);
                    }
                }
                SessionEvent::Writable(stream) => {
                    if let Some(index) = self.tables.index(stream) {
                        self.set(index, Stream::BLOCKED, false);
                        self.tables.write_later(index);
                    }
                }
                SessionEvent::Prioritized { stream, urgency } => {
                    if let Some(index) = self.tables.index(stream) {
                        self.prioritize(index, stream, urgency);
                    }
                }
                SessionEvent::Stopped { stream, code, is_unneeded } => self.on_stopped(core, stream, code, is_unneeded),
                SessionEvent::Datagrams(session) => {
                    if let Some(waker) = self.tables.datagram_waker(session).and_then(Option::take) {
                        waker.wake();
                    }
                }
                SessionEvent::Ended { session, reason } => {
                    self.read_rest(core, session);
                    self.lose_session(core, session, &*reason);
                }
                _ => {}
            }
        }
        has_any
    }

    fn set(&mut self, index: u32, flag: u16, on: bool) {
        if let Some(stream) = self.tables.stream(index) {
            stream.set(flag, on);
        }
    }

    fn peer(&self, peer: SocketAddr) -> PeerAddress {
        PeerAddress::of_session(&Address::Ip(peer), self.settings.clone())
    }

    fn on_established(&mut self, core: &mut Core, token: Token, number: SessionNumber, peer: SocketAddr) {
        let now = core.time.now();
        let admission = self.admission.as_ref();
        if admission.is_some_and(|admission| admission.admit(&Address::Ip(peer), now).is_err()) {
            core.counters.refused += 1;
            return self.base.endpoint.end_session(number, Some(ResetCause::Refused), now);
        }
        let Some(link) = core.sessions.add_of_endpoint(token, self.peer(peer)) else {
            self.release(peer.ip());
            return self.base.endpoint.end_session(number, Some(ResetCause::Refused), now);
        };
        let handshake = self.base.endpoint.handshake(number);
        let services = (self.services)(token, number, peer, handshake);
        self.tables.add_session(number, (link, now), services, peer.ip());
    }

    /// The session of an admitted peer is over.
    fn release(&self, peer: IpAddr) {
        if let Some(admission) = &self.admission {
            admission.release(peer);
        }
    }

    /// The peer has opened a stream.
    fn accept(&mut self, core: &mut Core, number: StreamNumber, direction: Direction) {
        let Some(session) = self.tables.session(number.session) else {
            // The session ends, and the protocol would wait for this stream.
            return self.base.endpoint.close(number, Some(ResetCause::Refused), true);
        };
        let link = session.link;
        let flags = match direction {
            Direction::Bidirectional => Stream::READABLE,
            Direction::Unidirectional => Stream::READABLE | Stream::WRITE_OVER,
        };
        let Some(streams) = session.service(direction).cloned() else {
            return self.base.endpoint.close(number, Some(ResetCause::Refused), true);
        };
        let make = streams.make(self.base.endpoint.is_early(number));
        if direction == Direction::Bidirectional && make.answers_at_once() && self.may_answer(core) {
            return self.accept_at_once(core, make, (link, number), flags);
        }
        let Some((token, link)) = self.add_stream(core, link, number, flags) else { return };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| make.make_stream(core, token, link))) {
            return self.on_panic_of_make(core, token, number, panic);
        }
        if let Some(index) = self.tables.index(number) {
            self.tables.read_later(index);
        }
    }

    /// A stream could not be made. It is lost, and no other.
    pub(super) fn on_panic_of_make(
        &mut self,
        core: &mut Core,
        token: Token,
        number: StreamNumber,
        panic: Box<dyn Any + Send>,
    ) {
        discard(panic);
        core.release(token);
        if let Some(index) = self.tables.index(number) {
            self.tables.remove_stream(index);
        }
        self.base.endpoint.close(number, Some(ResetCause::Failed), true);
    }

    /// The peer wants no more bytes. If it has no use for the stream at all, the stream is reset.
    fn on_stopped(&mut self, core: &mut Core, number: StreamNumber, code: u64, is_unneeded: bool) {
        let Some(index) = self.tables.index(number) else { return };
        let Some(stream) = self.tables.stream(index) else { return };
        stream.set(Stream::WRITE_OVER, true);
        stream.set(Stream::BLOCKED, false);
        let token = stream.token;
        if is_unneeded {
            self.tables.write_later(index);
        } else {
            core.dispatch(token, SlotEvent::StreamReset(code));
        }
    }

    fn handle_requests(&mut self, core: &mut Core, token: Token) {
        while let Some(session) = core.sessions.take_requested(token) {
            while let Some(requests) = core.sessions.take_requests(session) {
                for request in requests.iter() {
                    self.handle_request(core, *request);
                }
                core.sessions.recycle(session, requests);
            }
        }
    }

    fn handle_request(&mut self, core: &mut Core, StreamRequest { index, kind }: StreamRequest) {
        let Some(stream) = self.tables.stream(index) else { return };
        match kind {
            StreamRequestKind::Send => {
                stream.set(Stream::WRITABLE, true);
                self.tables.write_later(index);
            }
            StreamRequestKind::End if stream.has(Stream::WRITE_OVER) => {}
            StreamRequestKind::End => {
                stream.set(Stream::WRITE_OVER, true);
                self.base.endpoint.finish(stream.number);
            }
            StreamRequestKind::Unread => {
                let unread = core.slots.get_mut(stream.token).map_or(0, |entry| entry.unread_bytes());
                stream.set(Stream::UNREAD, unread > 0);
                self.tables.read_later(index);
            }
            StreamRequestKind::Close { cause, resets } => {
                let number = stream.number;
                self.tables.remove_stream(index);
                self.base.endpoint.close(number, cause, resets);
            }
        }
    }

    /// Dispatches bytes to the streams whose applications want some.
    fn read_streams(&mut self, core: &mut Core) {
        while let Some(index) = self.tables.next_read() {
            let Some(stream) = self.tables.stream(index) else { continue };
            let (number, token) = (stream.number, stream.token);
            if core.slots.get_mut(token).is_none_or(|entry| entry.unread_bytes() > 0) {
                stream.set(Stream::UNREAD, true);
                continue;
            }
            let (bytes, end) = read(&mut self.base.endpoint, &core.pool, number);
            self.deliver(core, index, bytes, end);
        }
    }

    /// Dispatches a piece that was read to its stream.
    pub(super) fn deliver(&mut self, core: &mut Core, index: u32, bytes: Slice, end: ReadEnd) {
        let Some(stream) = self.tables.stream(index) else { return };
        let (number, token) = (stream.number, stream.token);
        stream.set(Stream::READABLE, end == ReadEnd::More);
        stream.set(Stream::UNREAD, !bytes.is_empty());
        stream.set(Stream::READ_OVER, matches!(end, ReadEnd::Ended | ReadEnd::Reset(_)));
        let is_prioritized = stream.has(Stream::PRIORITIZED);
        if let Some(event) = received(bytes, end) {
            core.dispatch(token, event);
        }
        if !is_prioritized && let Some(urgency) = core.slots.get_mut(token).and_then(|entry| entry.urgency()) {
            self.prioritize(index, number, urgency);
        }
    }

    pub(super) fn prioritize(&mut self, index: u32, number: StreamNumber, urgency: u8) {
        if self.tables.prioritize(index, urgency) {
            self.base.endpoint.set_urgency(number, urgency);
        }
    }

    /// A session is over, and its streams get the bytes that came before. The windows bound them.
    fn read_rest(&mut self, core: &mut Core, number: SessionNumber) {
        let Some(session) = self.tables.session(number) else { return };
        let indexes: Vec<u32> = session.places().collect();
        for index in indexes {
            while let Some(stream) = self.tables.stream(index).filter(|stream| !stream.has(Stream::READ_OVER)) {
                let token = stream.token;
                if core.slots.get_mut(token).is_none() {
                    break;
                }
                let (bytes, end) = read(&mut self.base.endpoint, &core.pool, stream.number);
                stream.set(Stream::READ_OVER, end != ReadEnd::More);
                if let Some(event) = received(bytes, end) {
                    core.dispatch(token, event);
                }
            }
        }
    }

    /// Writes from the queues of streams, a piece each in turns.
    fn write_streams(&mut self, core: &mut Core) {
        while let Some(index) = self.tables.next_write() {
            let Some(stream) = self.tables.stream(index) else { continue };
            let (token, number) = (stream.token, stream.number);
            let Some(entry) = core.slots.restored(token) else { continue };
            let mut written = Written::all();
            let (endpoint, is_over) = (&mut self.base.endpoint, stream.has(Stream::WRITE_OVER));
            let is_due = entry.transmit(&mut |queue, ends| {
                written = if is_over { Written::dropped(queue) } else { write(endpoint, number, queue) };
                let is_all = written.is_all && !written.is_broken;
                if is_all && ends && !is_over {
                    endpoint.finish(number);
                    written.has_ended = true;
                }
                is_all
            });
            stream.set(Stream::WRITABLE, !written.is_all);
            stream.set(Stream::BLOCKED, written.is_blocked);
            stream.set(Stream::WRITE_OVER, is_over || written.has_ended);
            if written.is_blocked {
                core.slots.reduce(token);
            }
            if written.is_broken {
                // A file is shorter than its region: the peer must not take the bytes for complete ones.
                stream.set(Stream::WRITABLE, false);
                core.dispatch(token, SlotEvent::Failed(io::ErrorKind::UnexpectedEof.into()));
            } else {
                let is_over = stream.has(Stream::WRITE_OVER) && written.is_all;
                self.tables.write_later(index);
                if is_due && is_over {
                    // It has nothing to do but to close: its memory is free for the next ones.
                    core.dispatch(token, SlotEvent::Scheduled);
                } else if is_due {
                    core.queues.schedule(token);
                }
            }
        }
    }

    /// This side ends a session.
    fn end_session(&mut self, core: &mut Core, number: SessionNumber, cause: Option<ResetCause>) {
        self.end_session_for(core, number, cause, &OpenError::Ending);
    }

    pub(super) fn end_session_for(
        &mut self,
        core: &mut Core,
        number: SessionNumber,
        cause: Option<ResetCause>,
        reason: &dyn fmt::Display,
    ) {
        self.base.endpoint.end_session(number, cause, core.time.now());
        self.lose_session(core, number, reason);
    }

    /// A session is over, and its streams with it.
    fn lose_session(&mut self, core: &mut Core, number: SessionNumber, reason: &dyn fmt::Display) {
        let Some((session, tokens)) = self.tables.remove_session(number) else { return };
        if !tokens.is_empty() {
            let reason = CloseReason::of_streams(Some(reason));
            // Each once: a stream whose dispatch closes others is gone by then.
            let tokens: HashSet<Token> = tokens.into_iter().collect();
            for token in tokens {
                core.dispatch(token, SlotEvent::SessionClosed(reason.clone()));
            }
        }
        self.release(session.admitted);
        core.sessions.remove(session.link);
    }

    fn lose_sessions(&mut self, core: &mut Core, reason: &dyn fmt::Display) {
        for number in self.tables.numbers() {
            self.lose_session(core, number, reason);
        }
    }

    /// Describes a session, with the sums of its streams.
    fn describe_one(&self, core: &Core, number: SessionNumber, session: &Session) -> Option<SessionInfo> {
        let mut protocols = ProtocolNames::default();
        self.base.endpoint.session_protocols().iter().for_each(|name| protocols.add(name));
        let mut about = Description {
            peer: core.sessions.peer(session.link)?,
            // A client has a handle.
            is_accepted: !self.has_handle,
            protocols,
            state: ConnectionState::Open,
            inbound_bytes: 0,
            outbound_bytes: 0,
        };
        let streams = self.tables.tokens(session).filter_map(|token| core.slots.get(token)?.describe_stream(core));
        for stream in streams {
            about.inbound_bytes += stream.inbound_bytes;
            about.outbound_bytes += stream.outbound_bytes;
            if stream.state == ConnectionState::WaitsForPeer {
                about.state = stream.state;
            }
        }
        let age = core.time.now().saturating_duration_since(session.since);
        Some(SessionInfo { id: session_id(number.0, session.link), age, about })
    }

    /// Adds the protocol's counts since the last call.
    fn count(&mut self, core: &mut Core) {
        let counts = self.base.endpoint.counts();
        if counts != self.counted {
            core.counters.sessions.add_change(&self.counted, &counts);
            self.counted = counts;
        }
    }

    /// The protocol is gone, and its sessions: another one counts from zero.
    fn count_end(&mut self, core: &mut Core) {
        let mut ended = self.counted;
        ended.connections = 0;
        core.counters.sessions.add_change(&self.counted, &ended);
        self.counted = SessionCounts::default();
    }

    /// The deadline of a drain has come: the peers are notified, and nothing is waited for.
    fn on_drain_timeout(&mut self, core: &mut Core, token: Token) -> Disposition {
        for number in self.tables.numbers() {
            self.end_session(core, number, Some(ResetCause::Refused));
        }
        self.base.pump(core, token);
        Disposition::close(CloseReason::Drained)
    }
}

impl<E: StreamEndpoint + 'static> SlotEntry for SessionsEntry<E> {
    fn dispatch(&mut self, core: &mut Core, token: Token, event: SlotEvent) -> Disposition {
        let event = match event {
            // Tasks that serve may need it.
            SlotEvent::Drain if self.has_handle => return Disposition::Keep,
            SlotEvent::Drain | SlotEvent::ServingDone => {
                self.is_draining = true;
                SlotEvent::Drain
            }
            SlotEvent::DrainTimeout => return self.on_drain_timeout(core, token),
            SlotEvent::Panicked => {
                self.lose_sessions(core, &CloseReason::Panicked);
                self.count_end(core);
                self.is_lost = true;
                SlotEvent::Panicked
            }
            SlotEvent::Shed => {
                self.shed(core, token);
                SlotEvent::Shed
            }
            event => event,
        };
        if let Some(disposition) = self.base.take_in(core, token, event) {
            return disposition;
        }
        self.is_lost = false;
        self.work(core, token);
        let disposition = self.base.pump(core, token);
        self.count(core);
        self.charge_kept();
        disposition
    }

    fn on_closed(mut self: Box<Self>, core: &mut Core, reason: Rc<CloseReason>) -> Option<Box<dyn SlotEntry>> {
        core.sessions.set_dispatched_endpoint(None);
        self.lose_sessions(core, &*reason);
        if !self.is_lost {
            self.count(core);
            self.count_end(core);
        }
        core.counters.endpoints -= 1;
        None
    }

    fn has_sessions(&self) -> bool {
        !self.tables.is_empty()
    }

    fn describe_sessions(&self, core: &Core, links: Range<u32>, each: &mut dyn FnMut(SessionInfo)) {
        let sessions = self.tables.linked(links);
        sessions.filter_map(|(number, session)| self.describe_one(core, number, session)).for_each(each);
    }

    fn close_session(&mut self, core: &mut Core, token: Token, id: u64) -> bool {
        let link = id as u32;
        let mut found = self.tables.linked(link..link.saturating_add(1));
        let number = found.find(|(number, session)| session_id(number.0, session.link) == id).map(|(number, _)| number);
        drop(found);
        let Some(number) = number else { return false };
        self.end_session(core, number, Some(ResetCause::Cancelled));
        core.queues.schedule_session(token);
        true
    }

    fn memory_bytes(&self) -> usize {
        self.base.memory_bytes() + self.largest_kept()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The event of a piece that was read, if a stream gets one.
fn received(bytes: Slice, end: ReadEnd) -> Option<SlotEvent> {
    match end {
        ReadEnd::Reset(code) => Some(SlotEvent::StreamReset(code)),
        ReadEnd::Ended if bytes.is_empty() => Some(SlotEvent::Ended),
        ReadEnd::Ended => Some(SlotEvent::ReceivedLast(bytes)),
        _ if bytes.is_empty() => None,
        _ => Some(SlotEvent::Received(bytes)),
    }
}

/// So many events are handled at a time.
const EVENTS_MAX: usize = 32;
