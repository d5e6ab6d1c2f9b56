//! The methods of `Endpoint` about WebTransport: which streams belong to sessions, and how applications accept and open them.

use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use tidegate_codec::mux::{OpenError, ResetCause};
use tidegate_codec::{DatagramRefused, Direction, ReadEnd, SessionEvent, SessionNumber, StreamEndpoint, StreamNumber};

use super::preamble::{self, Preamble, StreamKind};
use super::sessions::{StreamOwner, WebTransport, direction};
use super::{WebTransportLimits, from_http3, to_http3};
use crate::connection::ConnectionRole;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, Violation};

/// Sessions of WebTransport. Each has the number of its request's stream.
impl<E: StreamEndpoint> Endpoint<E> {
    /// Begins the session of a request that was accepted, or of one of this client that the server has accepted.
    ///
    /// # Errors
    /// The code with which the request is to be reset: the connection has as many sessions as it may, its configuration has no
    /// [WebTransport](crate::Config::webtransport), or the request is over.
    pub fn begin_session(&mut self, session: StreamNumber) -> Result<(), ErrorCode> {
        let limits = self.limits_of_webtransport().map(|limits| (limits.sessions_max, limits.datagram_bytes_max));
        let (sessions_max, datagram_bytes_max) = limits.unwrap_or_default();
        let connection = self.sessions.get_mut(&session.session).ok_or(ErrorCode::REQUEST_CANCELLED)?;
        if !connection.requests.contains(session.stream) {
            return Err(ErrorCode::REQUEST_CANCELLED);
        }
        let webtransport = connection.webtransport.as_deref_mut().ok_or(ErrorCode::REQUEST_REJECTED)?;
        if webtransport.sessions() >= sessions_max as usize {
            return Err(ErrorCode::REQUEST_REJECTED);
        }
        webtransport.begin(session.stream);
        if let Some(datagrams) = &mut connection.datagrams {
            let early = datagrams.take_early(session.stream);
            let add = |payload: Bytes| webtransport.add_datagram(session.stream, &payload, datagram_bytes_max);
            self.datagrams_dropped += early.map(add).sum::<u64>();
        }
        self.count_datagrams(session.session);
        Ok(())
    }

    /// Ends a session: its streams are reset with WEBTRANSPORT_SESSION_GONE.
    pub fn end_webtransport(&mut self, session: StreamNumber) {
        let Some(webtransport) = self.webtransport(session.session) else { return };
        let (unaccepted, accepted) = webtransport.end(session.stream);
        self.count_datagrams(session.session);
        let code = ErrorCode::WEBTRANSPORT_SESSION_GONE.0;
        let at = |stream| StreamNumber { session: session.session, stream };
        for stream in unaccepted.iter().chain(&accepted) {
            self.quic.close(at(*stream), Some(ResetCause::Code(code)), true);
        }
        let stopped = |stream| SessionEvent::Stopped { stream: at(stream), code, is_unneeded: false };
        self.events.extend(accepted.into_iter().map(stopped));
    }

    /// The next stream of a session that the peer has opened, or a promise to wake the task. `None` once the session is over.
    /// `EndpointSession::adopt` of the engine gives it a channel.
    pub fn poll_accept_of_session(
        &mut self,
        session: StreamNumber,
        direction: Direction,
        cx: &Context<'_>,
    ) -> Poll<Option<StreamNumber>> {
        let Some(webtransport) = self.open_session(session) else { return Poll::Ready(None) };
        match webtransport.accept(session.stream, direction) {
            Some(stream) => Poll::Ready(Some(StreamNumber { stream, ..session })),
            None => {
                webtransport.register(session.stream, cx);
                Poll::Pending
            }
        }
    }

    /// Opens a stream of a session, or promises to wake the task when the peer permits one. Returns its number, and the bytes
    /// that it begins with.
    ///
    /// # Errors
    /// [`OpenError::Ending`] once the session is over.
    pub fn poll_open_of_session(
        &mut self,
        session: StreamNumber,
        direction: Direction,
        cx: &Context<'_>,
    ) -> Poll<Result<(StreamNumber, Vec<u8>), OpenError>> {
        if self.open_session(session).is_none() {
            return Poll::Ready(Err(OpenError::Ending));
        }
        let opened = self.quic.open(session.session, direction);
        let Some(webtransport) = self.open_session(session) else { return Poll::Ready(Err(OpenError::Ending)) };
        match opened {
            Ok(stream) => {
                webtransport.add_own(stream.stream, session.stream);
                Poll::Ready(Ok((stream, preamble::write(direction, session.stream))))
            }
            Err(OpenError::Full) => {
                webtransport.register(session.stream, cx);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Sends a datagram of a session; see [`StreamEndpoint::send_datagram`].
    ///
    /// # Errors
    /// [`DatagramRefused`].
    pub fn send_datagram_of_session(&mut self, session: StreamNumber, payload: &[u8]) -> Result<(), DatagramRefused> {
        // A peer that has not sent SETTINGS may still accept datagrams: its transport parameters decide.
        if self.peer_settings(session.session).is_some_and(|settings| !settings.datagrams) {
            return Err(DatagramRefused::Unsupported);
        }
        self.send_parts(session, &[payload])
    }

    /// The oldest datagram of a session that was not read, or a promise to wake the task. `None` once the session is over.
    pub fn poll_datagram_of_session(&mut self, session: StreamNumber, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let Some(webtransport) = self.open_session(session) else { return Poll::Ready(None) };
        match webtransport.datagrams(session.stream).and_then(tidegate_codec::DatagramQueue::pop) {
            Some(datagram) => {
                self.count_datagrams(session.session);
                Poll::Ready(Some(datagram))
            }
            None => {
                webtransport.register(session.stream, cx);
                Poll::Pending
            }
        }
    }

    /// Adds a datagram that came in a capsule of the session.
    pub fn add_datagram_of_session(&mut self, session: StreamNumber, payload: &[u8]) {
        let bytes_max = self.limits_of_webtransport().map_or(0, |limits| limits.datagram_bytes_max);
        if let Some(webtransport) = self.webtransport(session.session) {
            self.datagrams_dropped += webtransport.add_datagram(session.stream, payload, bytes_max);
            self.count_datagrams(session.session);
        }
    }

    /// How many bytes a datagram of a session may have now. `None` if one of the two sides does not accept datagrams.
    pub fn datagram_bytes_max_of_session(&mut self, session: StreamNumber) -> Option<usize> {
        self.payload_bytes_max(session)
    }

    fn limits_of_webtransport(&self) -> Option<&WebTransportLimits> {
        self.config.webtransport_limits()
    }

    pub(crate) fn webtransport(&mut self, session: SessionNumber) -> Option<&mut WebTransport> {
        // Most servers permit none, and look for no session.
        self.config.webtransport_limits()?;
        self.sessions.get_mut(&session)?.webtransport.as_deref_mut()
    }

    /// The sessions of a connection, if this one is open.
    fn open_session(&mut self, session: StreamNumber) -> Option<&mut WebTransport> {
        self.webtransport(session.session).filter(|webtransport| webtransport.has_session(session.stream))
    }

    fn owner(&mut self, stream: StreamNumber) -> Option<StreamOwner> {
        self.webtransport(stream.session)?.owner(stream.stream)
    }

    /// An event of QUIC that is about streams of sessions, or may be. Returns `Err` with one that is about others.
    pub(crate) fn on_stream_event(
        &mut self,
        event: SessionEvent,
        now: Instant,
    ) -> Result<Option<SessionEvent>, SessionEvent> {
        match event {
            SessionEvent::Opened { stream, direction } => {
                let Some(webtransport) = self.webtransport(stream.session) else { return Err(event) };
                webtransport.starting.insert(stream.stream, Preamble::new(direction));
                let event = self.read_preamble(stream, now);
                self.set_deadline_if_starting(stream, now);
                Ok(event)
            }
            SessionEvent::Readable(stream) => {
                let Some(webtransport) = self.webtransport(stream.session) else { return Err(event) };
                match webtransport.owner(stream.stream) {
                    Some(_) => Ok(Some(event)),
                    None if webtransport.starting.contains_key(&stream.stream) => Ok(self.read_preamble(stream, now)),
                    None if webtransport.is_waiting(stream.stream) => Ok(None),
                    None => Err(event),
                }
            }
            SessionEvent::Writable(stream) if self.owner(stream).is_some() => Ok(Some(event)),
            SessionEvent::Stopped { stream, code, .. } if self.owner(stream).is_some() => {
                let code = from_http3(code).map_or(code, u64::from);
                // Of a bidirectional stream the peer's own bytes are still of use.
                let is_unneeded = direction(stream.stream) == Direction::Bidirectional;
                Ok(Some(SessionEvent::Stopped { stream, code, is_unneeded }))
            }
            SessionEvent::Permitted(session) => {
                if let Some(webtransport) = self.webtransport(session) {
                    webtransport.wake_all();
                }
                Ok(Some(event))
            }
            event => Err(event),
        }
    }

    /// Reads the first bytes of a stream of the peer, one at a time: the bytes behind them are for others. Returns the event of
    /// a request.
    fn read_preamble(&mut self, stream: StreamNumber, now: Instant) -> Option<SessionEvent> {
        loop {
            let mut byte = [0];
            let (count, end) = self.quic.read(stream, &mut byte);
            let webtransport = self.webtransport(stream.session)?;
            let preamble = webtransport.starting.get_mut(&stream.stream)?;
            if count == 0 {
                if matches!(end, ReadEnd::Blocked | ReadEnd::More) {
                    return None;
                }
                let preamble = webtransport.starting.remove(&stream.stream)?;
                return self.on_other_stream(stream, preamble, Some(end), now);
            }
            match preamble.push(byte[0]) {
                StreamKind::Unknown => {}
                StreamKind::OfSession(session) => {
                    webtransport.starting.remove(&stream.stream);
                    self.on_stream_of_session(stream, session, now);
                    return None;
                }
                StreamKind::Other => {
                    let preamble = webtransport.starting.remove(&stream.stream)?;
                    return self.on_other_stream(stream, preamble, None, now);
                }
            }
        }
    }

    /// A stream of the peer is none of a session, or has ended before it could say so.
    fn on_other_stream(
        &mut self,
        stream: StreamNumber,
        preamble: Preamble,
        end: Option<ReadEnd>,
        now: Instant,
    ) -> Option<SessionEvent> {
        if direction(stream.stream) == Direction::Unidirectional {
            if end.is_none() {
                self.read_uni_after(stream, preamble.bytes(), now);
            } else {
                self.count_abuse(stream.session, now);
            }
            return None;
        }
        if self.role == ConnectionRole::Client {
            self.fail(stream.session, Violation::StreamCreation.into(), now);
            return None;
        }
        if !self.on_request(stream, now) {
            return None;
        }
        self.webtransport(stream.session)?.put_back(stream.stream, preamble, end);
        Some(SessionEvent::Opened { stream, direction: Direction::Bidirectional })
    }

    /// A stream of the peer names a session.
    fn on_stream_of_session(&mut self, stream: StreamNumber, session: u64, now: Instant) {
        if session & 3 != 0 {
            return self.fail(stream.session, Violation::Id.into(), now);
        }
        let waiting_max = self.limits_of_webtransport().map_or(0, |limits| limits.waiting_streams_max);
        let Some(connection) = self.sessions.get_mut(&stream.session) else { return };
        let Some(webtransport) = connection.webtransport.as_deref_mut() else { return };
        if webtransport.has_session(session) {
            return webtransport.add_stream(stream.stream, session);
        }
        let may_begin = connection.requests.contains(session)
            || webtransport.starting.contains_key(&session)
            || connection.connection.may_come(session);
        if !may_begin {
            return self.reject_stream(stream, ErrorCode::WEBTRANSPORT_SESSION_GONE, now);
        }
        if !webtransport.wait(stream.stream, session, waiting_max) {
            return self.reject_stream(stream, ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED, now);
        }
        self.set_stream_deadline(stream, now);
    }

    /// Resets a stream of the peer, which counts as abuse: the peer may open another one at once.
    fn reject_stream(&mut self, stream: StreamNumber, code: ErrorCode, now: Instant) {
        self.quic.close(stream, Some(ResetCause::Code(code.0)), true);
        self.count_abuse(stream.session, now);
    }

    fn set_deadline_if_starting(&mut self, stream: StreamNumber, now: Instant) {
        let webtransport = self.webtransport(stream.session);
        if webtransport.is_some_and(|webtransport| webtransport.starting.contains_key(&stream.stream)) {
            self.set_stream_deadline(stream, now);
        }
    }

    fn set_stream_deadline(&mut self, stream: StreamNumber, now: Instant) {
        let timeout = self.limits_of_webtransport().map(|limits| limits.waiting_timeout).unwrap_or_default();
        let Some(at) = now.checked_add(timeout) else { return };
        let webtransport = self.webtransport(stream.session);
        if webtransport.is_some_and(|webtransport| webtransport.set_deadline(at, stream.stream)) {
            self.stream_timers.insert((at, stream.session));
        }
    }

    /// Resets the streams whose first bytes, or whose sessions, have not come in time.
    pub(crate) fn end_overdue_streams(&mut self, now: Instant) {
        while let Some(&(at, session)) = self.stream_timers.first()
            && at <= now
        {
            self.stream_timers.pop_first();
            while let Some(stream) = self.webtransport(session).and_then(|sessions| sessions.take_overdue(now)) {
                let stream = StreamNumber { session, stream };
                self.reject_stream(stream, ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED, now);
            }
            let next = self.webtransport(session).and_then(|sessions| sessions.deadline());
            self.stream_timers.extend(next.map(|at| (at, session)));
        }
    }

    /// Reads a stream that is of a session, or whose first bytes were read. `None` for others.
    pub(crate) fn read_beside(&mut self, stream: StreamNumber, space: &mut [u8]) -> Option<(usize, ReadEnd)> {
        let webtransport = self.webtransport(stream.session)?;
        match webtransport.owner(stream.stream) {
            Some(StreamOwner::Gone) => Some((0, ReadEnd::Reset(ErrorCode::WEBTRANSPORT_SESSION_GONE.0))),
            Some(StreamOwner::Session(_)) => {
                let (count, end) = self.quic.read(stream, space);
                let end = match end {
                    ReadEnd::Reset(code) => ReadEnd::Reset(from_http3(code).map_or(code, u64::from)),
                    end => end,
                };
                Some((count, end))
            }
            None => match webtransport.read_again(stream.stream, space)? {
                (count, Some(end)) => Some((count, end)),
                (count, None) => {
                    let (more, end) = self.quic.read(stream, space.get_mut(count..).unwrap_or_default());
                    Some((count + more, end))
                }
            },
        }
    }

    /// The application is done with a stream. Returns whether it was one of a session.
    pub(crate) fn close_of_session(&mut self, stream: StreamNumber, cause: Option<ResetCause>, resets: bool) -> bool {
        let owner =
            self.webtransport(stream.session).and_then(|webtransport| webtransport.remove_stream(stream.stream));
        match owner {
            None => return false,
            // The end of its session has closed it, and QUIC counts the streams that are open.
            Some(StreamOwner::Gone) => {}
            Some(StreamOwner::Session(_)) => self.quic.close(stream, Some(map_cause(cause)), resets),
        }
        true
    }
}

/// The cause that the peer of a stream of a session gets. A cause that is none of the application's has the code 0.
fn map_cause(cause: Option<ResetCause>) -> ResetCause {
    match cause {
        Some(ResetCause::Code(code)) => ResetCause::Code(to_http3(u32::try_from(code).unwrap_or(u32::MAX))),
        _ => ResetCause::Code(to_http3(0)),
    }
}
