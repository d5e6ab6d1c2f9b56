//! `Tunnel`: a connection that HTTP has left, as bytes, without its type: after a 101, or after a CONNECT that succeeded.
//! Two of them are joined: bytes of each go to the other, as fast as the other takes them.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_buffer::Slice;
use tidegate_codec::Pipeline;
use tidegate_codec::framing::Payload;
use tidegate_engine::{Channel, ChannelError, ReadHalf, WriteHalf, task};

/// A connection that HTTP has left, and the values that are dropped with it. Dropping it closes the connection in good
/// order.
pub struct Tunnel {
    bytes: Box<dyn Bytes>,
    _kept: Option<Box<dyn Any>>,
}

/// A channel of bytes, over whatever filters.
trait Bytes {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Slice>, ChannelError>>;
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>>;
    fn send(&mut self, bytes: Payload) -> Result<(), ChannelError>;
    fn shutdown_write(&mut self);
    fn set_deadline_after(&mut self, after: Duration);
    fn abort(self: Box<Self>);
}

/// The two directions of a connection are independent: bytes are received however many wait to be sent.
struct Halves<C: Pipeline>(ReadHalf<C>, WriteHalf<C>);

impl<C: Pipeline<In = Slice, Out = Payload>> Bytes for Halves<C> {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Slice>, ChannelError>> {
        self.0.poll_recv(cx)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        Pin::new(&mut self.1.ready()).poll(cx)
    }

    fn send(&mut self, bytes: Payload) -> Result<(), ChannelError> {
        self.1.send(bytes).map(drop).map_err(ChannelError::from)
    }

    fn shutdown_write(&mut self) {
        self.1.shutdown_write();
    }

    fn set_deadline_after(&mut self, after: Duration) {
        self.0.set_deadline(task::now().checked_add(after));
    }

    fn abort(self: Box<Self>) {
        self.0.abort();
    }
}

impl Tunnel {
    /// Takes over a connection. A drain does not end it: only its two peers know when they are done.
    #[must_use]
    pub fn new<C: Pipeline<In = Slice, Out = Payload>>(mut channel: Channel<C>) -> Self {
        channel.ignore_drain();
        let (reader, writer) = channel.split();
        Self { bytes: Box::new(Halves(reader, writer)), _kept: None }
    }

    /// Keeps something as long as the tunnel.
    #[must_use]
    pub fn with(self, kept: impl Any) -> Self {
        Self { _kept: Some(Box::new(kept)), ..self }
    }

    /// Passes the bytes of each tunnel to the other, until both have ended. The end of one direction is passed on, and the
    /// other goes on. If no byte moves in either direction for `idle_timeout`, both are closed.
    ///
    /// # Errors
    /// Why one of them broke; the other is reset then.
    pub async fn join(self, other: Self, idle_timeout: Duration) -> Result<(), ChannelError> {
        let mut pair = [Side::new(self, idle_timeout), Side::new(other, idle_timeout)];
        let joined = poll_fn(|cx| poll_pair(&mut pair, idle_timeout, cx)).await;
        if joined.is_err() {
            for side in pair {
                side.tunnel.bytes.abort();
            }
        }
        joined
    }
}

/// One of two joined tunnels.
struct Side {
    tunnel: Tunnel,
    /// It receives nothing further.
    has_ended: bool,
}

impl Side {
    fn new(mut tunnel: Tunnel, idle_timeout: Duration) -> Self {
        tunnel.bytes.set_deadline_after(idle_timeout);
        Self { tunnel, has_ended: false }
    }
}

fn poll_pair(pair: &mut [Side; 2], idle_timeout: Duration, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
    let [one, other] = pair;
    let mut has_moved = pass(one, &mut other.tunnel, cx)?;
    has_moved |= pass(other, &mut one.tunnel, cx)?;
    if one.has_ended && other.has_ended {
        return Poll::Ready(Ok(()));
    }
    if has_moved {
        one.tunnel.bytes.set_deadline_after(idle_timeout);
        other.tunnel.bytes.set_deadline_after(idle_timeout);
    }
    Poll::Pending
}

/// Passes on the received bytes, as far as there is room, and returns whether something has moved.
fn pass(from: &mut Side, to: &mut Tunnel, cx: &mut Context<'_>) -> Result<bool, ChannelError> {
    let mut has_moved = false;
    while !from.has_ended && to.bytes.poll_ready(cx)?.is_ready() {
        match from.tunnel.bytes.poll_recv(cx)? {
            Poll::Pending => break,
            Poll::Ready(Some(bytes)) => to.bytes.send(bytes.into())?,
            Poll::Ready(None) => {
                from.has_ended = true;
                to.bytes.shutdown_write();
            }
        }
        has_moved = true;
    }
    Ok(has_moved)
}
