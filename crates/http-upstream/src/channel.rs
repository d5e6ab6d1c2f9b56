//! `ExchangeChannel`: the channel of an exchange, whole or split.
//!
//! A channel that is whole does not read while its peer reads slowly. A server may respond while it receives a body, and
//! read no more of it before its response is read: so the channel is split while a body is sent in pieces, and for a
//! body that the server does not take at once.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tidegate_codec::framing::Raw;
use tidegate_codec::{Codec, DynOver};
use tidegate_engine::{Channel, ChannelError, ReadHalf, SendError, WriteHalf};
use tidegate_http1::client::{Incoming, Outgoing};

use super::codec::ExchangeCodec;

/// The channel of an exchange.
#[derive(Default)]
pub enum ExchangeChannel<C: ExchangeCodec> {
    /// The exchange is over.
    #[default]
    Over,
    /// Nothing is received while the server reads slowly.
    Whole(Channel<C>),
    /// The response is received however slowly the server reads the request.
    Split(ReadHalf<C>, WriteHalf<C>),
}

impl<C: ExchangeCodec> ExchangeChannel<C> {
    /// A body follows.
    pub fn split(&mut self) {
        *self = match std::mem::take(self) {
            Self::Whole(channel) => {
                let (reader, writer) = channel.split();
                Self::Split(reader, writer)
            }
            other => other,
        };
    }

    /// The channel, if the exchange is not over. The exchange is over then.
    pub fn take(&mut self) -> Option<Channel<C>> {
        match std::mem::take(self) {
            Self::Over => None,
            Self::Whole(channel) => Some(channel),
            // The halves are those of one channel.
            Self::Split(reader, writer) => reader.reunite(writer).ok(),
        }
    }

    /// Whether the exchange is over.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// The whole channel, if the exchange is not over: halves are put together.
    pub fn whole(&mut self) -> Option<&mut Channel<C>> {
        if matches!(self, Self::Split(..))
            && let Some(channel) = self.take()
        {
            *self = Self::Whole(channel);
        }
        match self {
            Self::Whole(channel) => Some(channel),
            Self::Over | Self::Split(..) => None,
        }
    }

    /// Whether the exchange is not over, and its connection or stream not closed.
    pub fn is_open(&mut self) -> bool {
        let Some(mut channel) = self.take() else { return false };
        let is_closed = matches!(channel.with_codec(|_| ()), Err(ChannelError::Closed(_)));
        *self = Self::Whole(channel);
        !is_closed
    }

    /// The next message of the response; `None` if the exchange is over.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        match self {
            Self::Over => Poll::Ready(Ok(None)),
            Self::Whole(channel) => channel.poll_recv(cx),
            Self::Split(reader, _) => reader.poll_recv(cx),
        }
    }

    /// Sends a part of the request; `None` if the exchange is over.
    pub fn send(&mut self, message: Outgoing) -> Option<Result<(), SendError<Outgoing, C::Error>>> {
        let is_last = C::ENDS_WITH_REQUEST && ends_request(&message);
        let sent = match self {
            Self::Over => return None,
            Self::Whole(channel) => channel.send(message),
            Self::Split(_, writer) => writer.send(message),
        };
        if is_last && sent.is_ok() {
            match self {
                Self::Over => {}
                Self::Whole(channel) => channel.shutdown_write(),
                Self::Split(_, writer) => writer.shutdown_write(),
            }
        }
        Some(sent.map(drop))
    }

    /// Whether few bytes wait for the peer.
    pub fn is_writable(&self) -> bool {
        match self {
            Self::Over => true,
            Self::Whole(channel) => channel.is_writable(),
            Self::Split(_, writer) => writer.is_writable(),
        }
    }

    /// Whether another part of the request has room; `None` if the exchange is over.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Option<Poll<Result<(), ChannelError>>> {
        match self {
            Self::Over => None,
            Self::Whole(channel) => Some(Pin::new(&mut channel.ready()).poll(cx)),
            Self::Split(_, writer) => Some(Pin::new(&mut writer.ready()).poll(cx)),
        }
    }

    /// From that time on receiving fails.
    pub fn set_deadline(&mut self, at: Option<Instant>) {
        match self {
            Self::Over => {}
            Self::Whole(channel) => channel.set_deadline(at),
            Self::Split(reader, _) => reader.set_deadline(at),
        }
    }

    /// Continues with bytes, over the filters of the connection; `None` if the exchange is over.
    pub fn into_raw(self) -> Option<Result<Channel<DynOver<Raw>>, ChannelError>> {
        self.into_codec(Raw)
    }

    /// Continues with another codec, over the filters of the connection; `None` if the exchange is over.
    pub fn into_codec<D: Codec>(mut self, next: D) -> Option<Result<Channel<DynOver<D>>, ChannelError>> {
        let mut channel = self.take()?;
        channel.set_deadline(None);
        Some(channel.switch(|codec: C| codec.into_filters().stack(next)))
    }

    /// Reads the codec of a channel that is whole.
    pub fn with_codec<T>(&mut self, act: impl FnOnce(&C) -> T) -> Option<T> {
        match self {
            Self::Whole(channel) => channel.with_codec(|codec| act(codec)).ok(),
            Self::Over | Self::Split(..) => None,
        }
    }

    /// Resets the connection.
    pub fn abort(&mut self) {
        if let Some(channel) = self.take() {
            channel.abort();
        }
    }
}

/// Whether nothing of the request follows. Behind one that opens a tunnel bytes follow.
fn ends_request(message: &Outgoing) -> bool {
    match message {
        Outgoing::Request(request) => !request.clone().into_parts().0.has_upgrade(),
        Outgoing::Trailers(_) | Outgoing::End => true,
        _ => false,
    }
}
