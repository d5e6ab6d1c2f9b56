//! `Endpoint`: HTTP/3 on the sessions of a QUIC endpoint, free of I/O.
//!
//! It stands between the engine and QUIC: both see a [`StreamEndpoint`]. The unidirectional streams of a connection end
//! here, at its [`Connection`]; request streams pass, with a [`RequestStream`](crate::RequestStream) as their filter in the
//! engine. An idle connection has no stream in the engine.
//!
//! A client's request that the server has not processed, by its GOAWAY, ends as if the server had reset its stream with
//! H3_REQUEST_REJECTED (RFC 9114 §5.2): it is safe to send again.
//!
//! A server ends a connection that is without a request for too long, or too old: by GOAWAY, and two round trips later, so that a
//! request on its way is refused in a way that permits to send it again, by H3_NO_ERROR.
//!
//! It counts abuse: requests that the peer resets, and those that this side is made to reset. A drain has two steps (RFC
//! 9114 §5.2): a GOAWAY that permits the requests on their way, and two round trips later one that names the first request
//! that is not accepted. Connections without a request stay for two round trips more, so that the peer has both.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use foldhash::HashMap;
use tidegate_codec::mux::{OpenError, ResetCause};
use tidegate_codec::{
    Datagram, DatagramError, Direction, Handshake, ReadEnd, SessionCounts, SessionEvent, SessionNumber, StreamEndpoint,
    StreamNumber, Transmits, WriteRefused,
};
use tidegate_http_stream::Priority;

use crate::connection::{Admission, Connection, ConnectionRole, Event};
use crate::early::EarlyRequests;
use crate::error::{Error, ErrorCode, Violation};
use crate::lifetime::{Lifetime, LifetimeStep};
use crate::limits::Config;
use crate::request_datagrams::RequestDatagrams;
use crate::requests::{Requests, SpareList};
use crate::settings::Settings;
use crate::tables::TableStreams;
use crate::webtransport::WebTransport;

/// HTTP/3 for the sessions of a QUIC endpoint `E`, free of I/O. It is a [`StreamEndpoint`] as `E` is, and its bidirectional
/// streams are requests: their codec is [`server_stream`](crate::server_stream) or [`client_stream`](crate::client_stream).
///
/// QUIC has to send the numbers of HTTP/3 (RFC 9114 §8.1) for the causes of resets.
pub struct Endpoint<E> {
    pub(crate) quic: E,
    pub(crate) config: Arc<Config>,
    pub(crate) role: ConnectionRole,
    pub(crate) sessions: HashMap<SessionNumber, Box<Session>>,
    /// When a server looks at its connections next, for those that are idle.
    timers: BTreeSet<(Instant, SessionNumber)>,
    /// When streams of connections are reset that wait for their first bytes, or for their session of WebTransport.
    pub(crate) stream_timers: BTreeSet<(Instant, SessionNumber)>,
    /// Events for the caller.
    pub(crate) events: VecDeque<SessionEvent>,
    /// Datagrams that were dropped here.
    pub(crate) datagrams_dropped: u64,
    spare_requests: SpareList,
    /// Memory that connections keep beside streams: see `kept.rs`.
    pub(crate) kept: usize,
    drain: Drain,
    pub(crate) early: EarlyRequests,
    /// The time of the last call that had one.
    pub(crate) now: Option<Instant>,
}

/// A connection, and its control stream.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    control: StreamNumber,
    /// Bytes of the control stream that QUIC does not take yet.
    unsent: Vec<u8>,
    /// The requests whose streams are open.
    pub(crate) requests: Requests,
    /// If the configuration permits WebTransport.
    pub(crate) webtransport: Option<Box<WebTransport>>,
    /// Since the first datagram of a request.
    pub(crate) datagrams: Option<Box<RequestDatagrams>>,
    /// Since the first request, if the configuration permits dynamic QPACK tables.
    pub(crate) tables: Option<Box<TableStreams>>,
    /// Tasks that wait for settings, GOAWAY, or the end of the connection.
    wakers: Vec<Waker>,
    lifetime: Lifetime,
    /// Its timer in the table of the endpoint. It is not moved by requests, and set again when it has come.
    timer: Option<Instant>,
}

impl Session {
    fn wake(&mut self) {
        std::mem::take(&mut self.wakers).into_iter().for_each(Waker::wake);
    }

    /// A request is over. Returns its age, unless its response was complete.
    fn end_request(&mut self, stream: u64, now: Option<Instant>, spare: &mut SpareList) -> Option<Duration> {
        let removed = self.requests.remove(stream, now, spare);
        if self.requests.is_empty() && removed.is_some() {
            self.lifetime.idle_since = now.unwrap_or(self.lifetime.idle_since);
        }
        removed.flatten()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.wake();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drain {
    None,
    /// The first GOAWAY was sent; the second one follows then.
    Announced(Instant),
    /// The second GOAWAY was sent; the peers have it then.
    Named(Instant),
    Ending,
}

impl<E: StreamEndpoint> Endpoint<E> {
    /// The side of a server.
    #[must_use]
    pub fn server(config: Arc<Config>, quic: E) -> Self {
        Self::new(ConnectionRole::Server, config, quic)
    }

    /// The side of a client.
    #[must_use]
    pub fn client(config: Arc<Config>, quic: E) -> Self {
        Self::new(ConnectionRole::Client, config, quic)
    }

    fn new(role: ConnectionRole, config: Arc<Config>, quic: E) -> Self {
        let (sessions, events) = <(HashMap<_, _>, VecDeque<_>)>::default();
        let (timers, stream_timers) = <(BTreeSet<_>, BTreeSet<_>)>::default();
        let (datagrams_dropped, kept, drain) = (0, 0, Drain::None);
        let (early, now, spare_requests) = (EarlyRequests::default(), None, SpareList::default());
        Self {
            quic,
            config,
            role,
            sessions,
            timers,
            stream_timers,
            events,
            datagrams_dropped,
            spare_requests,
            kept,
            drain,
            early,
            now,
        }
    }

    /// QUIC.
    pub fn quic(&self) -> &E {
        &self.quic
    }

    /// The settings of a peer, once they have come.
    #[must_use]
    pub fn peer_settings(&self, session: SessionNumber) -> Option<&Settings> {
        self.sessions.get(&session)?.connection.peer_settings()
    }

    /// The number in the last GOAWAY of a peer.
    #[must_use]
    pub fn peer_goaway(&self, session: SessionNumber) -> Option<u64> {
        self.sessions.get(&session)?.connection.peer_goaway()
    }

    /// Whether a client may open a further request on a connection, apart from the limit of streams. It may not after
    /// GOAWAY, nor once the connection is over.
    #[must_use]
    pub fn may_request(&self, session: SessionNumber) -> bool {
        self.sessions.get(&session).is_some_and(|session| session.connection.may_request())
    }

    /// Wakes a task when settings or GOAWAY of a peer have come, and at the end of the connection.
    pub fn wake_on_change(&mut self, session: SessionNumber, waker: &Waker) {
        if let Some(session) = self.sessions.get_mut(&session)
            && !session.wakers.iter().any(|known| known.will_wake(waker))
        {
            session.wakers.push(waker.clone());
        }
    }

    /// An event of QUIC. Returns the event that the caller gets.
    fn on_event(&mut self, event: SessionEvent, now: Instant) -> Option<SessionEvent> {
        // The handshake of a connection may be complete before the event that says so. The streams that have waited for it
        // come before this one.
        if let SessionEvent::Opened { stream, .. } | SessionEvent::Readable(stream) = event
            && self.early.holds_any(stream.session)
            && self.quic.is_confirmed(stream.session)
        {
            self.release_early(stream.session, now);
            self.queue(|endpoint| endpoint.on_next_event(event, now));
            return None;
        }
        self.on_next_event(event, now)
    }

    fn on_next_event(&mut self, event: SessionEvent, now: Instant) -> Option<SessionEvent> {
        if self.is_held_early(&event, now) {
            return None;
        }
        let event = match self.on_stream_event(event, now) {
            Ok(passed) => return passed,
            Err(event) => event,
        };
        match event {
            SessionEvent::Established { session, .. } => {
                self.begin(session, now);
                Some(event)
            }
            SessionEvent::Opened { stream, direction: Direction::Unidirectional } => {
                self.read_uni(stream, now);
                None
            }
            SessionEvent::Readable(stream) if is_uni(stream) => {
                self.read_uni(stream, now);
                None
            }
            SessionEvent::Writable(stream) if is_uni(stream) => {
                self.flush(stream.session, now);
                None
            }
            SessionEvent::Stopped { stream, .. } if is_uni(stream) => {
                let stopped = self.connection(stream.session).map(Connection::handle_control_stopped);
                self.check(stream.session, stopped, now);
                None
            }
            SessionEvent::Opened { stream, .. } => self.on_request(stream, now).then_some(event),
            SessionEvent::Confirmed(session) => {
                self.release_early(session, now);
                None
            }
            SessionEvent::Stopped { stream, code, is_unneeded } => self.on_stopped(stream, (code, is_unneeded), now),
            SessionEvent::Datagrams(session) => {
                self.on_datagrams(session, now);
                None
            }
            SessionEvent::Ended { session, .. } => {
                self.remove(session);
                Some(event)
            }
            event => Some(event),
        }
    }

    /// The peer wants no more bytes of a request stream.
    fn on_stopped(
        &mut self,
        stream: StreamNumber,
        (code, is_unneeded): (u64, bool),
        now: Instant,
    ) -> Option<SessionEvent> {
        if self.early.holds(stream) {
            // Nothing has been served of it, and nothing is.
            self.give_up_early(stream, now);
            return None;
        }
        if !is_unneeded {
            self.on_reset(stream, now);
        }
        // A server that gives no response resets its side. Some stop each request that they have not read to the end,
        // and answer it. One that rejects a request has not processed it (RFC 9114 §4.1.1): so has a server that
        // refuses early data.
        let is_rejected = code == ErrorCode::REQUEST_REJECTED.0;
        let is_unneeded = is_unneeded || self.role == ConnectionRole::Client && !is_rejected;
        Some(SessionEvent::Stopped { stream, code, is_unneeded })
    }

    fn connection(&mut self, session: SessionNumber) -> Option<&mut Connection> {
        Some(&mut self.sessions.get_mut(&session)?.connection)
    }

    /// A connection is established: SETTINGS are the first bytes of our control stream.
    fn begin(&mut self, session: SessionNumber, now: Instant) {
        let Ok(control) = self.quic.open(session, Direction::Unidirectional) else {
            // RFC 9114 §6.2: a peer permits at least three.
            let (code, reason) = (ErrorCode::GENERAL_PROTOCOL_ERROR, Violation::StreamCreation);
            return self.lose(session, code, Box::new(Error::from(reason)), now);
        };
        // SETTINGS and GOAWAY go before bodies.
        self.quic.set_urgency(control, 0);
        let mut connection = match self.role {
            ConnectionRole::Server => Connection::server(self.config.clone()),
            ConnectionRole::Client => Connection::client(self.config.clone()),
        };
        // Its handshake was in progress when the drain began.
        match self.drain {
            Drain::None => {}
            Drain::Announced(_) => connection.drain(),
            // The connection stays until its peer has the GOAWAY, by which the peer knows that its requests were not processed.
            // A drain lets no further handshake begin, so that this has an end.
            Drain::Named(_) | Drain::Ending => {
                connection.end_drain();
                let until = now + self.grace_of(session);
                self.drain = match self.drain {
                    Drain::Named(at) => Drain::Named(at.max(until)),
                    _ => Drain::Named(until),
                };
            }
        }
        let (unsent, requests, datagrams, tables, wakers) = Default::default();
        let lifetime = Lifetime::new(session, self.config.limits(), now);
        let first = lifetime.first(self.config.limits());
        let webtransport = self.config.webtransport_limits().map(|_| Box::default());
        let added = Session {
            connection,
            control,
            unsent,
            requests,
            webtransport,
            datagrams,
            tables,
            wakers,
            lifetime,
            timer: None,
        };
        self.sessions.insert(session, Box::new(added));
        if self.role == ConnectionRole::Server {
            self.set_timer(session, first);
        }
        self.flush(session, now);
    }

    /// A connection is over.
    fn remove(&mut self, session: SessionNumber) {
        self.early.remove_session(session);
        self.set_timer(session, None);
        if let Some(at) = self.webtransport(session).and_then(|webtransport| webtransport.deadline()) {
            self.stream_timers.remove(&(at, session));
        }
        if let Some(removed) = self.sessions.remove(&session) {
            self.kept -= removed.kept_bytes();
        }
    }

    fn set_timer(&mut self, number: SessionNumber, timer: Option<Instant>) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if let Some(before) = std::mem::replace(&mut session.timer, timer) {
            self.timers.remove(&(before, number));
        }
        self.timers.extend(timer.map(|at| (at, number)));
    }

    /// Ends the connections that are idle for too long, or too old.
    fn end_due(&mut self, now: Instant) {
        while let Some(&(at, number)) = self.timers.first()
            && at <= now
        {
            self.set_timer(number, None);
            let config = self.config.clone();
            let Some(session) = self.sessions.get_mut(&number) else { continue };
            match session.lifetime.step(!session.requests.is_empty(), config.limits(), now) {
                LifetimeStep::Wait(next) => self.set_timer(number, next),
                LifetimeStep::End => self.lose(number, ErrorCode::NO_ERROR, Box::new(ErrorCode::NO_ERROR), now),
                LifetimeStep::Announce => {
                    session.connection.end_drain();
                    let round_trip = self.quic.round_trip(number).unwrap_or(GRACE_MIN);
                    let grace = (round_trip * 2).clamp(GRACE_MIN, GRACE_MAX);
                    let next = session.lifetime.announce(grace, config.limits(), now);
                    self.flush(number, now);
                    self.set_timer(number, Some(next));
                }
            }
        }
    }

    /// Queues the event that `act` returns, in front of those that it has queued: a stream comes before its priority.
    pub(crate) fn queue(&mut self, act: impl FnOnce(&mut Self) -> Option<SessionEvent>) {
        let before = self.events.len();
        if let Some(event) = act(self) {
            self.events.insert(before.min(self.events.len()), event);
        }
    }

    /// The peer has opened a request stream. Returns whether it is accepted.
    pub(crate) fn on_request(&mut self, stream: StreamNumber, now: Instant) -> bool {
        let Some(session) = self.sessions.get_mut(&stream.session) else { return false };
        match session.connection.handle_request(stream.stream, now) {
            Ok(Admission::Accepted(priority)) => {
                session.requests.insert(stream.stream, now, &mut self.spare_requests);
                if let Some(Priority { urgency, .. }) = priority {
                    self.events.push_back(SessionEvent::Prioritized { stream, urgency });
                }
                self.add_frames(stream);
                true
            }
            Ok(Admission::Rejected) => {
                let cause = ResetCause::Code(ErrorCode::REQUEST_REJECTED.0);
                self.quic.close(stream, Some(cause), true);
                false
            }
            Err(error) => {
                self.fail(stream.session, error, now);
                false
            }
        }
    }

    /// Reads a unidirectional stream of the peer whose first bytes were read.
    pub(crate) fn read_uni_after(&mut self, stream: StreamNumber, read: &[u8], now: Instant) {
        let handled = self.connection(stream.session).map(|connection| connection.handle_uni(stream.stream, read, now));
        if self.check(stream.session, handled, now) {
            self.read_uni(stream, now);
        }
    }

    /// Reads a unidirectional stream of the peer.
    fn read_uni(&mut self, stream: StreamNumber, now: Instant) {
        let mut space = [0; UNI_READ_BYTES];
        loop {
            let Some(session) = self.sessions.get_mut(&stream.session) else { return };
            let (count, end) = self.quic.read(stream, &mut space);
            let bytes = space.get(..count).unwrap_or_default();
            let connection = &mut session.connection;
            let mut handled = if count > 0 { connection.handle_uni(stream.stream, bytes, now) } else { Ok(()) };
            if matches!(end, ReadEnd::Ended | ReadEnd::Reset(_)) {
                handled = handled.and_then(|()| connection.handle_uni_end(stream.stream));
            }
            if !self.check(stream.session, Some(handled), now) {
                return;
            }
            self.handle_events(stream.session);
            self.wake_frames(stream.session);
            self.count_tables(stream.session);
            if end != ReadEnd::More {
                return self.flush(stream.session, now);
            }
        }
    }

    /// Events of a connection's unidirectional streams.
    fn handle_events(&mut self, number: SessionNumber) {
        let Self { quic, sessions, events, .. } = self;
        let Some(session) = sessions.get_mut(&number) else { return };
        while let Some(event) = session.connection.poll_event() {
            let at = |stream| StreamNumber { session: number, stream };
            match event {
                Event::Priority { stream, priority: Priority { urgency, .. } } => {
                    // A request that is over has none.
                    if session.requests.contains(stream) {
                        events.push_back(SessionEvent::Prioritized { stream: at(stream), urgency });
                    }
                }
                Event::StopUni { stream, code } => {
                    quic.close(at(stream), Some(ResetCause::Code(code.0)), false);
                    // An unknown stream may end.
                    let _ended = session.connection.handle_uni_end(stream);
                }
                Event::Settings(_) => session.wake(),
                Event::GoAway { stream: end } => {
                    let code = ErrorCode::REQUEST_REJECTED.0;
                    let stopped = |own| SessionEvent::Stopped { stream: at(own), code, is_unneeded: false };
                    events.extend(session.requests.from(end).map(stopped));
                    session.wake();
                }
            }
        }
    }

    /// Writes to the control stream, and to the QPACK streams.
    fn flush(&mut self, number: SessionNumber, now: Instant) {
        let flushed = self.flush_tables(number);
        if !self.check(number, Some(flushed), now) {
            return;
        }
        let Self { quic, sessions, .. } = self;
        let Some(session) = sessions.get_mut(&number) else { return };
        while let Some(bytes) = session.connection.poll_control() {
            session.unsent.extend_from_slice(&bytes);
        }
        if session.unsent.is_empty() {
            return;
        }
        match quic.write(session.control, &session.unsent) {
            Ok(count) if count == session.unsent.len() => session.unsent = Vec::new(),
            Ok(count) => drop(session.unsent.drain(..count)),
            Err(WriteRefused) => self.fail(number, Violation::ClosedCriticalStream.into(), now),
        }
    }

    /// The peer has reset or stopped a stream.
    fn on_reset(&mut self, stream: StreamNumber, now: Instant) {
        if self.role == ConnectionRole::Server
            && let Some(session) = self.sessions.get_mut(&stream.session)
            && let Some(age) = session.end_request(stream.stream, Some(now), &mut self.spare_requests)
        {
            let counted = session.connection.handle_request_reset(age, now);
            self.check(stream.session, Some(counted), now);
        }
    }

    pub(crate) fn count_abuse(&mut self, session: SessionNumber, now: Instant) {
        if self.role == ConnectionRole::Server {
            let counted = self.connection(session).map(|connection| connection.count_abuse(now));
            self.check(session, counted, now);
        }
    }

    /// Ends a connection that has failed. Returns whether it goes on.
    fn check(&mut self, session: SessionNumber, result: Option<Result<(), Error>>, now: Instant) -> bool {
        if let Some(Err(error)) = result {
            self.fail(session, error, now);
            return false;
        }
        true
    }

    #[cold]
    pub(crate) fn fail(&mut self, session: SessionNumber, error: Error, now: Instant) {
        self.lose(session, error.code(), Box::new(error), now);
    }

    #[cold]
    fn lose(&mut self, session: SessionNumber, code: ErrorCode, reason: Box<dyn std::error::Error>, now: Instant) {
        self.remove(session);
        self.quic.end_session(session, Some(ResetCause::Code(code.0)), now);
        self.events.push_back(SessionEvent::Ended { session, reason });
    }

    /// The time between two steps of a drain: two round trips.
    fn grace(&self) -> Duration {
        self.sessions.keys().map(|session| self.grace_of(*session)).max().unwrap_or(GRACE_MIN)
    }

    /// Two round trips of a connection.
    fn grace_of(&self, session: SessionNumber) -> Duration {
        let round_trip = self.quic.round_trip(session);
        round_trip.map_or(GRACE_MIN, |time| (time * 2).clamp(GRACE_MIN, GRACE_MAX))
    }

    fn each_connection(&mut self, now: Instant, act: impl Fn(&mut Connection)) {
        let numbers: Vec<_> = self.sessions.keys().copied().collect();
        for number in numbers {
            if let Some(connection) = self.connection(number) {
                act(connection);
            }
            self.flush(number, now);
        }
    }
}

impl<E: StreamEndpoint> tidegate_codec::Endpoint for Endpoint<E> {
    fn handle_datagram(&mut self, datagram: Datagram, now: Instant) {
        self.now = Some(now);
        self.quic.handle_datagram(datagram, now);
    }

    fn takes_runs(&self) -> bool {
        self.quic.takes_runs()
    }

    fn poll_transmit(&mut self, now: Instant, transmits: &mut Transmits) {
        self.quic.poll_transmit(now, transmits);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let second = match self.drain {
            Drain::Announced(at) | Drain::Named(at) => Some(at),
            Drain::None | Drain::Ending => None,
        };
        let idle = self.timers.first().map(|(at, _)| *at);
        let of_streams = self.stream_timers.first().map(|(at, _)| *at);
        [self.quic.poll_timeout(), second, idle, of_streams].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = Some(now);
        self.quic.handle_timeout(now);
        self.end_due(now);
        self.end_overdue_streams(now);
        match self.drain {
            Drain::Announced(at) if at <= now => {
                self.drain = Drain::Named(now + self.grace());
                self.each_connection(now, Connection::end_drain);
            }
            Drain::Named(at) if at <= now => self.drain = Drain::Ending,
            _ => {}
        }
    }

    fn failed(&mut self, error: DatagramError, now: Instant) {
        self.quic.failed(error, now);
    }

    fn drain(&mut self, now: Instant) {
        self.quic.drain(now);
        if self.drain == Drain::None {
            let is_idle = self.sessions.is_empty();
            self.drain = if is_idle { Drain::Ending } else { Drain::Announced(now + self.grace()) };
            self.each_connection(now, Connection::drain);
        }
    }

    fn is_drained(&self) -> bool {
        self.quic.is_drained()
    }
}

impl<E: StreamEndpoint> StreamEndpoint for Endpoint<E> {
    fn poll_event(&mut self, now: Instant) -> Option<SessionEvent> {
        self.now = Some(now);
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let event = self.quic.poll_event(now)?;
            if let Some(event) = self.on_event(event, now) {
                return Some(event);
            }
        }
    }

    fn read(&mut self, stream: StreamNumber, space: &mut [u8]) -> (usize, ReadEnd) {
        let read = self.read_frames(stream, space).unwrap_or_else(|| self.read_raw(stream, space));
        if let (ReadEnd::Reset(_), Some(now)) = (read.1, self.now) {
            self.on_reset(stream, now);
        }
        read
    }

    fn write(&mut self, stream: StreamNumber, bytes: &[u8]) -> Result<usize, WriteRefused> {
        self.write_frames(stream, bytes).unwrap_or_else(|| self.quic.write(stream, bytes))
    }

    fn write_bytes(&mut self, stream: StreamNumber, bytes: Bytes) -> Result<usize, WriteRefused> {
        self.write_frame_bytes(stream, bytes)
    }

    fn finish(&mut self, stream: StreamNumber) {
        if self.role == ConnectionRole::Server
            && let Some(session) = self.sessions.get_mut(&stream.session)
            && session.requests.answer(stream.stream)
        {
            session.connection.credit_request();
        }
        self.quic.finish(stream);
    }

    fn close(&mut self, stream: StreamNumber, cause: Option<ResetCause>, resets: bool) {
        self.early.remove(stream);
        if self.close_of_session(stream, cause, resets) {
            return;
        }
        let Some(now) = self.now else { return self.quic.close(stream, cause, resets) };
        if let Some(ResetCause::Session(code)) = cause {
            let code = ErrorCode(code);
            return self.lose(stream.session, code, Box::new(code), now);
        }
        // A response that is complete is of use, whatever the reason is for which nothing more is read (RFC 9114 §4.1).
        let is_answered = self.role == ConnectionRole::Server && !resets;
        self.quic.close(stream, if is_answered { Some(ResetCause::Unneeded) } else { cause }, resets);
        self.end_webtransport(stream);
        if self.config.accepts_datagrams() {
            self.end_datagrams(stream);
        }
        self.remove_frames(stream);
        if let Some(session) = self.sessions.get_mut(&stream.session) {
            let was_open = session.end_request(stream.stream, Some(now), &mut self.spare_requests).is_some();
            if was_open && cause == Some(ResetCause::Unneeded) && self.role == ConnectionRole::Client {
                session.connection.credit_request();
            }
        }
        if is_peers_fault(cause) {
            self.count_abuse(stream.session, now);
        }
    }

    fn open(&mut self, session: SessionNumber, direction: Direction) -> Result<StreamNumber, OpenError> {
        if !self.may_request(session) {
            return Err(OpenError::Ending);
        }
        let stream = self.quic.open(session, direction)?;
        if let Some(session) = self.sessions.get_mut(&session)
            && let (Direction::Bidirectional, Some(now)) = (direction, self.now)
        {
            session.requests.insert(stream.stream, now, &mut self.spare_requests);
            self.add_frames(stream);
        }
        Ok(stream)
    }

    fn end_session(&mut self, session: SessionNumber, cause: Option<ResetCause>, now: Instant) {
        self.remove(session);
        let cause = cause.map(|cause| match cause {
            // At the end of a drain nothing is wrong with the connection.
            ResetCause::Refused if self.drain != Drain::None => ResetCause::Code(ErrorCode::NO_ERROR.0),
            ResetCause::Refused => ResetCause::Code(ErrorCode::EXCESSIVE_LOAD.0),
            cause => cause,
        });
        self.quic.end_session(session, cause, now);
    }

    fn round_trip(&self, session: SessionNumber) -> Option<Duration> {
        self.quic.round_trip(session)
    }

    fn keeps_idle_sessions(&self) -> bool {
        matches!(self.drain, Drain::Announced(_) | Drain::Named(_))
    }

    fn set_urgency(&mut self, stream: StreamNumber, urgency: u8) {
        self.quic.set_urgency(stream, urgency);
    }

    fn counts(&self) -> SessionCounts {
        let mut counts = self.quic.counts();
        counts.datagrams_dropped += self.datagrams_dropped;
        counts
    }

    fn kept_bytes(&self) -> usize {
        self.quic.kept_bytes() + self.kept + self.early.kept_bytes()
    }

    fn each_kept(&self, each: &mut dyn FnMut(SessionNumber, usize)) {
        self.each_kept_here(each);
    }

    fn drop_datagrams(&mut self, session: SessionNumber) {
        self.drop_datagrams_of(session);
    }

    fn session_protocols(&self) -> &'static [&'static str] {
        &["HTTP/3", "QUIC"]
    }

    fn is_early(&self, stream: StreamNumber) -> bool {
        self.quic.is_early(stream)
    }

    fn is_confirmed(&self, session: SessionNumber) -> bool {
        self.quic.is_confirmed(session)
    }

    fn handshake(&self, session: SessionNumber) -> Option<Handshake> {
        self.quic.handshake(session)
    }
}

/// QUIC: a client connects by it.
impl<E> AsMut<E> for Endpoint<E> {
    fn as_mut(&mut self) -> &mut E {
        &mut self.quic
    }
}

impl<E> fmt::Debug for Endpoint<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}

/// Whether a stream has one direction (RFC 9000 §2.1).
fn is_uni(stream: StreamNumber) -> bool {
    stream.stream & 2 != 0
}

/// Whether the peer makes this side reset a request.
fn is_peers_fault(cause: Option<ResetCause>) -> bool {
    const CODES: [ErrorCode; 3] = [ErrorCode::MESSAGE_ERROR, ErrorCode::REQUEST_INCOMPLETE, ErrorCode::EXCESSIVE_LOAD];
    match cause {
        Some(ResetCause::Violation) => true,
        Some(ResetCause::Code(code)) => CODES.contains(&ErrorCode(code)),
        _ => false,
    }
}

/// Unidirectional streams are read in pieces of this many bytes.
const UNI_READ_BYTES: usize = 2048;

/// Bounds of the time between the two steps of a drain. A client whose machine is busy reads the first GOAWAY later than a round
/// trip says: with 5 ms, one connection in twenty had its next requests refused.
const GRACE_MIN: Duration = Duration::from_millis(100);
const GRACE_MAX: Duration = Duration::from_secs(1);
