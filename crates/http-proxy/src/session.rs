//! `StreamConnection`: a stream of an HTTP/2 or HTTP/3 connection to an upstream, as the connection of one exchange.

use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_engine::{Channel, ChannelError, CloseReason};
#[cfg(feature = "connect-udp")]
use tidegate_http::gateway::CapsuleRelayTunnel;
use tidegate_http_upstream::{ExchangeCodec, FromStream, StreamPlace};
use tidegate_http1::client::{Incoming, Outgoing};

use super::connection::{ChannelConnection, Connection};
use super::error::SendFailure;
use tidegate_l4::Tunnel;

/// A stream. Dropping it resets it, within the upstream's tolerance.
struct StreamConnection<C: ExchangeCodec> {
    stream: ChannelConnection<C>,
    /// Dropped behind the stream: its connection closes when no stream is left.
    place: StreamPlace,
}

impl FromStream for Box<dyn Connection> {
    fn from_stream<C: ExchangeCodec>(channel: Channel<C>, place: StreamPlace) -> Self {
        Box::new(StreamConnection { stream: ChannelConnection::new(channel), place })
    }
}

impl<C: ExchangeCodec> Drop for StreamConnection<C> {
    fn drop(&mut self) {
        if let Some(channel) = self.stream.take_incomplete() {
            let session = self.place.connection();
            session.discard(channel, session.place());
        }
    }
}

impl<C: ExchangeCodec> Connection for StreamConnection<C> {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        let received = self.stream.poll_recv(cx);
        if let Poll::Ready(Ok(Some(Incoming::Head(_)))) = received {
            self.place.connection().set_answered();
        }
        received
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        self.stream.poll_ready(cx)
    }

    fn send(&mut self, message: Outgoing) -> Result<(), SendFailure> {
        self.stream.send(message)
    }

    fn split(&mut self) {
        self.stream.split();
    }

    fn is_reusable(&mut self) -> bool {
        false
    }

    fn finish(self: Box<Self>) -> Option<Box<dyn Connection>> {
        Some(self)
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn has_answered(&self) -> bool {
        self.place.connection().has_answered()
    }

    fn poll_extends_connect(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.place.connection().poll_extends_connect(cx)
    }

    fn has_refused(&self, reason: &CloseReason) -> bool {
        self.stream.has_refused(reason)
    }

    fn set_deadline_after(&mut self, after: Option<Duration>) {
        self.stream.set_deadline_after(after);
    }

    fn into_tunnel(mut self: Box<Self>) -> Result<Tunnel, ChannelError> {
        let stream = self.stream.take();
        Ok(Box::new(stream).into_tunnel()?.with(self.place.connection().place()))
    }

    #[cfg(feature = "connect-udp")]
    fn into_capsules(mut self: Box<Self>) -> Result<CapsuleRelayTunnel, ChannelError> {
        let stream = self.stream.take();
        Ok(Box::new(stream).into_capsules()?.with(self.place.connection().place()))
    }
}
