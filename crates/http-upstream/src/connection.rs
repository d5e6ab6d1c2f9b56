//! `Connection`: an HTTP/1.1 connection of a pool, without its type; and the place that it has there.

use std::rc::Rc;
use std::task::{Context, Poll};

use tidegate_engine::{Channel, ChannelError};

use super::channel::ExchangeChannel;
use super::codec::ClientCodec;
use super::connect::FromChannel;
use super::exchange::{ChannelExchange, ClientExchange, Release};
use super::origin::Origin;

/// An idle HTTP/1.1 connection. An HTTP/2 or HTTP/3 connection is an
/// [`UpstreamSession`](super::UpstreamSession) instead.
pub trait Connection {
    /// Ready when unusable; otherwise registers the waker.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Begins an exchange. The lease returns the connection to its pool, or frees its place there.
    fn begin(self: Box<Self>, lease: Lease) -> Rc<dyn ClientExchange>;
}

/// An HTTP/1.1 connection.
pub struct Http1<C: ClientCodec>(Channel<C>);

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

impl FromChannel for Box<dyn Connection> {
    fn from_channel<C: ClientCodec>(channel: Channel<C>) -> Self {
        Box::new(Http1(channel))
    }
}

/// The owner that gives places to connections.
pub(super) trait LeaseOwner {
    /// Takes a connection that carries another request, with its place.
    fn put_back(self: Rc<Self>, lease: Lease, connection: Box<dyn Connection>);

    /// A place is free. `is_probe` says whether its connection would have shown which version the origin speaks.
    fn free(self: Rc<Self>, origin: &Rc<Origin>, is_probe: bool);
}

/// The place of a connection that is made or used. Dropping it frees the place: the connection is closed.
pub struct Lease {
    owner: Option<Rc<dyn LeaseOwner>>,
    origin: Rc<Origin>,
    /// The connection that is being made shows which version the origin speaks.
    is_probe: bool,
}

impl Lease {
    pub(super) fn new(owner: Rc<dyn LeaseOwner>, origin: Rc<Origin>, is_probe: bool) -> Self {
        Self { owner: Some(owner), origin, is_probe }
    }

    /// The origin of the connection.
    #[must_use]
    pub fn origin(&self) -> &Rc<Origin> {
        &self.origin
    }

    /// The version that the origin speaks is known now. Returns whether this connection has shown it.
    pub(super) fn end_probe(&mut self) -> bool {
        std::mem::take(&mut self.is_probe)
    }

    /// The place belongs to something else from now on.
    pub(super) fn forget(mut self) {
        self.owner = None;
    }

    /// Returns a connection that carries another request.
    pub fn put_back(self, connection: Box<dyn Connection>) {
        if let Some(owner) = self.owner.clone() {
            owner.put_back(self, connection);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.free(&self.origin, self.is_probe);
        }
    }
}

impl<C: ClientCodec> Release<C> for Lease {
    /// A connection that takes another request returns to its pool.
    fn complete(self, mut channel: Channel<C>, is_cut_off: bool) {
        if !is_cut_off && channel.with_codec(|codec| codec.is_reusable()).unwrap_or(false) {
            self.put_back(Box::new(Http1(channel)));
        }
    }

    fn give_up(self, mut channel: ExchangeChannel<C>) {
        channel.abort();
    }
}
