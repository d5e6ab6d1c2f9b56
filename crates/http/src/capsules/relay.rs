//! `CapsuleRelayTunnel`: one of the two tunnels of capsules that a gateway joins.
//!
//! A datagram goes on as one of QUIC where that tunnel has them, and as a capsule elsewhere (RFC 9297 §3.5). One of QUIC is
//! never sent reliably to a tunnel that has datagrams of QUIC: if it is too long there, it is dropped, so that both ends find
//! out the MTU of the path.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::{DatagramRefused, DynOver};
use tidegate_engine::{Channel, ChannelError, ReadHalf, WriteHalf, task};
use tidegate_http3::{CapsuleRelay, RelayPiece};

use super::tunnel::QuicRequest;

/// A tunnel of capsules (RFC 9297) whose datagrams and other capsules a gateway passes on. Dropping it closes its stream in good
/// order.
pub struct CapsuleRelayTunnel {
    reader: ReadHalf<DynOver<CapsuleRelay>>,
    writer: WriteHalf<DynOver<CapsuleRelay>>,
    quic: Option<QuicRequest>,
    /// Bytes of a capsule are to be written before any other one.
    is_within_capsule: bool,
    /// It receives nothing further.
    has_ended: bool,
    on_drop: Option<Box<dyn Fn(DatagramDrop)>>,
    _kept: Option<Box<dyn Any>>,
}

/// Why a tunnel dropped a datagram that the other one passed to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramDrop {
    /// It came as one of QUIC, and is too long for the QUIC connection of this tunnel.
    TooLong,
    /// As many bytes as may wait on the stream wait for the peer, which is slow.
    NoRoom,
    /// Another capsule is under way on the stream.
    WithinCapsule,
    /// The connection of this tunnel is over.
    Closed,
}

impl CapsuleRelayTunnel {
    /// The tunnel on the stream of a request. A drain does not end it: only its two peers know when they are done.
    #[must_use]
    pub fn new(mut channel: Channel<DynOver<CapsuleRelay>>) -> Self {
        let quic = QuicRequest::of(&channel);
        channel.ignore_drain();
        let (reader, writer) = channel.split();
        Self { reader, writer, quic, is_within_capsule: false, has_ended: false, on_drop: None, _kept: None }
    }

    /// Calls `on_drop` for each datagram that this tunnel drops. Those that a full queue of QUIC drops are counted by its endpoint
    /// ([`SessionCounts::datagrams_dropped`](tidegate_codec::SessionCounts::datagrams_dropped)).
    #[must_use]
    pub fn on_drop(self, on_drop: impl Fn(DatagramDrop) + 'static) -> Self {
        Self { on_drop: Some(Box::new(on_drop)), ..self }
    }

    /// Keeps something as long as the tunnel.
    #[must_use]
    pub fn with(self, kept: impl Any) -> Self {
        Self { _kept: Some(Box::new(kept)), ..self }
    }

    /// Passes datagrams and capsules of each tunnel to the other, until both have ended. The end of one direction is passed on,
    /// and the other goes on. If nothing moves in either direction for `idle_timeout`, both are closed.
    ///
    /// # Errors
    /// Why one of them broke; the other is reset then.
    pub async fn join(self, other: Self, idle_timeout: Duration) -> Result<(), ChannelError> {
        let mut pair = [self, other];
        pair.iter_mut().for_each(|tunnel| tunnel.set_deadline_after(idle_timeout));
        let joined = poll_fn(|cx| {
            let [one, other] = &mut pair;
            let has_moved = [pass(one, other, cx)?, pass(other, one, cx)?];
            if one.has_ended && other.has_ended {
                return Poll::Ready(Ok(()));
            }
            if has_moved != [false; 2] {
                pair.iter_mut().for_each(|tunnel| tunnel.set_deadline_after(idle_timeout));
            }
            Poll::Pending
        });
        let joined = joined.await;
        if joined.is_err() {
            for tunnel in pair {
                tunnel.reader.abort();
            }
        }
        joined
    }

    fn set_deadline_after(&mut self, after: Duration) {
        self.reader.set_deadline(task::now().checked_add(after));
    }

    /// The next datagram of QUIC.
    fn poll_datagram(&self, cx: &Context<'_>) -> Poll<Bytes> {
        match self.quic.as_ref().map(|quic| quic.poll_datagram(cx)) {
            Some(Poll::Ready(Some(datagram))) => Poll::Ready(datagram),
            // The end of the stream reports that of the request.
            Some(Poll::Ready(None) | Poll::Pending) | None => Poll::Pending,
        }
    }

    /// Sends a datagram, or drops it: where there is no room, where another capsule is under way, and one of QUIC that is
    /// too long.
    fn send_datagram(&mut self, payload: Bytes, was_capsule: bool, cx: &mut Context<'_>) -> Result<(), ChannelError> {
        let dropped = self.try_send_datagram(payload, was_capsule, cx)?;
        if let (Some(reason), Some(on_drop)) = (dropped, &self.on_drop) {
            on_drop(reason);
        }
        Ok(())
    }

    /// Sends a datagram, or returns why it is dropped.
    fn try_send_datagram(
        &mut self,
        payload: Bytes,
        was_capsule: bool,
        cx: &mut Context<'_>,
    ) -> Result<Option<DatagramDrop>, ChannelError> {
        match self.quic.as_ref().map(|quic| quic.send_datagram(&[&payload])) {
            Some(Ok(Err(DatagramRefused::Unsupported))) | None => {}
            Some(Ok(Err(DatagramRefused::TooLong))) if was_capsule => {}
            Some(Ok(Ok(()))) => return Ok(None),
            Some(Ok(Err(_))) => return Ok(Some(DatagramDrop::TooLong)),
            Some(Err(_)) => return Ok(Some(DatagramDrop::Closed)),
        }
        if self.is_within_capsule {
            return Ok(Some(DatagramDrop::WithinCapsule));
        }
        if self.poll_ready(cx)?.is_pending() {
            return Ok(Some(DatagramDrop::NoRoom));
        }
        self.send(RelayPiece::Datagram(payload))?;
        Ok(None)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        Pin::new(&mut self.writer.ready()).poll(cx)
    }

    fn send(&mut self, piece: RelayPiece) -> Result<(), ChannelError> {
        if let RelayPiece::Bytes { ends, .. } = &piece {
            self.is_within_capsule = !ends;
        }
        self.writer.send(piece).map(drop).map_err(ChannelError::from)
    }
}

impl std::fmt::Debug for CapsuleRelayTunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CapsuleRelayTunnel").field("has_datagrams", &self.quic.is_some()).finish_non_exhaustive()
    }
}

/// Passes datagrams and pieces of the stream on, and returns whether something has moved.
fn pass(
    from: &mut CapsuleRelayTunnel,
    to: &mut CapsuleRelayTunnel,
    cx: &mut Context<'_>,
) -> Result<bool, ChannelError> {
    for passed in 0..PIECES_MAX {
        if from.has_ended {
            return Ok(passed > 0);
        }
        let has_moved = match from.poll_datagram(cx) {
            Poll::Ready(datagram) => to.send_datagram(datagram, false, cx).map(|()| true)?,
            // Datagrams that wait come before the end of the stream.
            Poll::Pending => pass_piece(from, to, cx)?,
        };
        if !has_moved {
            return Ok(passed > 0);
        }
    }
    cx.waker().wake_by_ref();
    Ok(true)
}

/// Passes on a piece of the stream, or its end, as far as there is room.
fn pass_piece(
    from: &mut CapsuleRelayTunnel,
    to: &mut CapsuleRelayTunnel,
    cx: &mut Context<'_>,
) -> Result<bool, ChannelError> {
    if to.poll_ready(cx)?.is_pending() {
        return Ok(false);
    }
    match from.reader.poll_recv(cx)? {
        Poll::Pending => return Ok(false),
        Poll::Ready(Some(RelayPiece::Datagram(payload))) => to.send_datagram(payload, true, cx)?,
        Poll::Ready(Some(piece)) => to.send(piece)?,
        Poll::Ready(None) => {
            from.has_ended = true;
            to.writer.shutdown_write();
        }
    }
    Ok(true)
}

/// Pieces that one tunnel passes to the other before other tasks run.
const PIECES_MAX: usize = 256;
