//! `Stream` and `Sink`, for combinators and for `split` of the futures crates.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_sink::Sink;
use tidegate_codec::Pipeline;
use tidegate_engine::SendError;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Framed, FramedError};

/// The messages of the peer, as from [`Framed::recv`].
impl<T: AsyncRead + AsyncWrite + Unpin, P: Pipeline> Stream for Framed<T, P> {
    type Item = Result<P::In, FramedError<P::Error>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_recv(cx).map(Result::transpose)
    }
}

/// Messages to the peer, as by [`Framed::send`]. A message that the protocol cannot express is lost, and the connection
/// stays open.
impl<T: AsyncRead + AsyncWrite + Unpin, P: Pipeline> Sink<P::Out> for Framed<T, P> {
    type Error = FramedError<P::Error>;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Framed::poll_ready(self.get_mut(), cx)
    }

    fn start_send(self: Pin<&mut Self>, message: P::Out) -> Result<(), Self::Error> {
        self.get_mut().send(message).map_err(|error| match error {
            SendError::Full(_) => FramedError::Full,
            SendError::Codec(error) => FramedError::Codec(error),
            _ => FramedError::Closed,
        })
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Framed::poll_flush(self.get_mut(), cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Framed::poll_close(self.get_mut(), cx)
    }
}
