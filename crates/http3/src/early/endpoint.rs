//! The methods of `Endpoint` about early requests: which wait, which are served, and which are given up.

use std::time::Instant;

use tidegate_codec::{Direction, SessionEvent, SessionNumber, StreamEndpoint, StreamNumber};

use super::EarlyDecision;
use crate::connection::ConnectionRole;
use crate::endpoint::Endpoint;

impl<E: StreamEndpoint> Endpoint<E> {
    /// Whether a request may be a copy that an attacker sends.
    pub(crate) fn is_early(&self, stream: StreamNumber) -> bool {
        self.role == ConnectionRole::Server && !self.quic.is_confirmed(stream.session) && self.quic.is_early(stream)
    }

    /// Whether an event is about a request that may be a copy, and was not served yet.
    pub(crate) fn is_held_early(&mut self, event: &SessionEvent, now: Instant) -> bool {
        let stream = match *event {
            SessionEvent::Opened { stream, direction: Direction::Bidirectional } if self.is_early(stream) => {
                self.early.add(stream);
                stream
            }
            SessionEvent::Readable(stream) if self.early.holds(stream) => stream,
            _ => return false,
        };
        self.on_early(stream, now);
        true
    }

    /// Bytes of an early request have come.
    fn on_early(&mut self, stream: StreamNumber, now: Instant) {
        // It may be a stream of a session of WebTransport, whose request waits as well.
        if self.webtransport(stream.session).is_some() {
            return;
        }
        match self.early.decide(stream, &mut self.quic) {
            EarlyDecision::Serve => self.accept(stream, now),
            EarlyDecision::Hold => {}
            EarlyDecision::Drop => self.give_up_early(stream, now),
        }
    }

    /// The client has given up an early request before it was served, which counts as abuse.
    pub(crate) fn give_up_early(&mut self, stream: StreamNumber, now: Instant) {
        self.early.remove(stream);
        self.quic.close(stream, None, true);
        self.count_abuse(stream.session, now);
    }

    /// The handshake of a connection is complete: the early requests that have waited for it are served.
    pub(crate) fn release_early(&mut self, session: SessionNumber, now: Instant) {
        for stream in self.early.release(session) {
            self.accept(stream, now);
        }
    }

    /// An early request is served from now on.
    fn accept(&mut self, stream: StreamNumber, now: Instant) {
        let opened = SessionEvent::Opened { stream, direction: Direction::Bidirectional };
        self.queue(|endpoint| match endpoint.on_stream_event(opened, now) {
            Ok(passed) => passed,
            Err(opened) => endpoint.on_request(stream, now).then_some(opened),
        });
    }
}
