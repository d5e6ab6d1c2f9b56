//! `Connection`: a connection of the pool, whatever its version and its filters are.

use std::rc::Rc;
use std::task::{Context, Poll};

use tidegate_engine::{Channel, ChannelError};

use super::codec::ClientCodec;
use super::exchange::{ChannelExchange, ClientExchange};
use super::pool::Lease;
use super::shared::Http2;

/// A connection that was made, by its version.
pub(crate) enum Made {
    Http1(Box<dyn Connection>),
    Http2(Http2),
}

/// A connection that carries one exchange at a time, while it carries none. One of HTTP/2 is a
/// [`Shared`](super::shared::Shared) instead.
pub(crate) trait Connection {
    /// Whether the connection takes no request any more, or a promise to wake the task when that is so.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Begins an exchange. The lease returns the connection to its pool, or frees its place there.
    fn begin(self: Box<Self>, lease: Lease) -> Rc<dyn ClientExchange>;
}

/// A connection of HTTP/1.1.
pub(super) struct Http1<C: ClientCodec>(pub(super) Channel<C>);

impl<C: ClientCodec> Connection for Http1<C> {
    /// A pending `recv` makes the loop read: so the end of the connection is noticed, and bytes that no request waits
    /// for, which the codec refuses.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.0.poll_recv(cx) {
            Poll::Pending | Poll::Ready(Err(ChannelError::Busy)) => Poll::Pending,
            Poll::Ready(_) => Poll::Ready(()),
        }
    }

    fn begin(self: Box<Self>, lease: Lease) -> Rc<dyn ClientExchange> {
        Rc::new(ChannelExchange::new(self.0, lease))
    }
}
