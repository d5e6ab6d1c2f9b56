//! `Tunnel`: a connection that HTTP has left, as bytes: after a 101, or after a CONNECT that succeeded.
//!
//! It has no type of the connection, so that one function serves it over TLS and without. Two of them are joined by
//! [`Tunnel::join`]: bytes of each go to the other, as fast as the other takes them.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_buffer::Slice;
use tidegate_codec::Pipeline;
use tidegate_codec::framing::Payload;
use tidegate_engine::{Channel, ChannelError, ReadHalf, WriteHalf, task};

/// A connection that HTTP has left; see [`Response::switch`](crate::Response::switch).
///
/// Dropping it closes the connection in good order.
pub struct Tunnel(Box<dyn Bytes>);

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
    pub(crate) fn new<C: Pipeline<In = Slice, Out = Payload>>(channel: Channel<C>) -> Self {
        let (reader, writer) = channel.split();
        Self(Box::new(Halves(reader, writer)))
    }

    /// Waits for bytes; `None` when the peer has ended its stream.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the connection broke, after all bytes that had arrived before.
    pub async fn recv(&mut self) -> Result<Option<Slice>, ChannelError> {
        poll_fn(|cx| self.0.poll_recv(cx)).await
    }

    /// Sends bytes, after those before them have room: while the peer reads slowly, this waits.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when nothing can be sent any more.
    pub async fn send(&mut self, bytes: impl Into<Payload>) -> Result<(), ChannelError> {
        let bytes = bytes.into();
        poll_fn(|cx| self.0.poll_ready(cx)).await?;
        self.0.send(bytes)
    }

    /// Ends the sending side once the kernel has all bytes. Receiving goes on.
    pub fn shutdown_write(&mut self) {
        self.0.shutdown_write();
    }

    /// Resets the connection: the peer sees that the stream is not complete.
    pub fn abort(self) {
        self.0.abort();
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
                side.tunnel.abort();
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
        tunnel.0.set_deadline_after(idle_timeout);
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
        one.tunnel.0.set_deadline_after(idle_timeout);
        other.tunnel.0.set_deadline_after(idle_timeout);
    }
    Poll::Pending
}

/// Passes on what has come, as far as there is room, and returns whether something has moved.
fn pass(from: &mut Side, to: &mut Tunnel, cx: &mut Context<'_>) -> Result<bool, ChannelError> {
    let mut has_moved = false;
    while !from.has_ended && to.0.poll_ready(cx)?.is_ready() {
        match from.tunnel.0.poll_recv(cx)? {
            Poll::Pending => break,
            Poll::Ready(Some(bytes)) => to.0.send(bytes.into())?,
            Poll::Ready(None) => {
                from.has_ended = true;
                to.shutdown_write();
            }
        }
        has_moved = true;
    }
    Ok(has_moved)
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tunnel")
    }
}
