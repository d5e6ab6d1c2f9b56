//! `BodyWriter`: writes a body while it is sent.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use tidegate_buffer::FileRegion;
use tidegate_http1::{self as http1, Fields};

use super::data::Data;
use crate::error::BodyError;
use crate::exchange::Exchange;

/// Writes the body of a response while it is sent: see [`Body::produce`](super::Body::produce).
pub struct BodyWriter {
    exchange: Rc<dyn Exchange>,
    /// The number of the exchange on its connection.
    number: u32,
}

impl BodyWriter {
    #[doc(hidden)]
    #[must_use]
    pub fn new(exchange: Rc<dyn Exchange>, number: u32) -> Self {
        Self { exchange, number }
    }

    /// Another writer of the same body.
    #[doc(hidden)]
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self { exchange: self.exchange.clone(), number: self.number }
    }

    /// The exchange that the body belongs to, and its number.
    #[doc(hidden)]
    #[must_use]
    pub fn into_parts(self) -> (Rc<dyn Exchange>, u32) {
        (self.exchange, self.number)
    }

    /// Sends a piece, after those before it have room: while the peer reads slowly, this waits. An empty piece sends
    /// nothing.
    ///
    /// # Errors
    /// A [`BodyError`], boxed as the function's own errors: the connection is closed, or the body is longer than its length.
    pub async fn write(&self, piece: impl Into<Data>) -> Result<(), Box<dyn Error>> {
        let piece = http1::Outgoing::Data(piece.into().into_body());
        Ok(self.send(piece).await?)
    }

    /// Sends a part of a file as a piece, as [`write`](Self::write) sends one in memory. The kernel reads the file while it
    /// sends: one that turns out to be shorter ends the connection.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_file(&self, region: FileRegion) -> Result<(), Box<dyn Error>> {
        Ok(self.send(http1::Outgoing::Data(region.into())).await?)
    }

    #[doc(hidden)]
    pub async fn send(&self, piece: http1::Outgoing) -> Result<(), BodyError> {
        poll_fn(|cx| self.exchange.poll_ready(self.number, cx)).await?;
        self.exchange.send(self.number, piece)
    }

    #[doc(hidden)]
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.exchange.poll_ready(self.number, cx)
    }

    /// Waits until the pieces that were sent have left their queue.
    #[doc(hidden)]
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.exchange.poll_flush(self.number, cx)
    }

    /// Sends a piece for which there is room.
    #[doc(hidden)]
    pub fn push(&self, piece: Data) -> Result<(), BodyError> {
        self.exchange.send(self.number, http1::Outgoing::Data(piece.into_body()))
    }

    /// Waits until another piece has room, without sending one.
    ///
    /// # Errors
    /// [`BodyError::Closed`] if the connection is closed.
    pub async fn ready(&self) -> Result<(), BodyError> {
        poll_fn(|cx| self.exchange.poll_ready(self.number, cx)).await
    }

    /// Ends the body with fields after it. They are omitted where the body is not chunked. The next request of the
    /// connection is handled when the function that writes the body has returned.
    ///
    /// # Errors
    /// [`BodyError`]: the connection is closed, or a field may not be a trailer.
    pub fn trailers(self, fields: Fields) -> Result<(), BodyError> {
        self.exchange.send(self.number, http1::Outgoing::Trailers(fields))
    }
}

impl fmt::Debug for BodyWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyWriter")
    }
}
