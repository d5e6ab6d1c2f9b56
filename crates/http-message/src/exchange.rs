//! `Exchange`: a request and its response on a connection, as a body and its writer see them: without the type of the
//! connection.

use std::task::{Context, Poll};

use tidegate_buffer::Slice;
use tidegate_engine::{Account, ConnectionCharge};
use tidegate_http1::{Outgoing, Trailers};
use tidegate_sys::Address;

use crate::error::BodyError;

/// A request and its response. `number` is that of the exchange on its connection: a body or a writer that outlives its
/// exchange gets [`BodyError::Over`].
pub trait Exchange {
    /// The next piece of the request's body, `None` at its end.
    fn poll_body(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, BodyError>>;

    /// Whether another piece of the response's body has room.
    fn poll_ready(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>>;

    /// Whether the pieces of the response's body that were sent so far have left their queue.
    fn poll_flush(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.poll_ready(number, cx)
    }

    /// Sends a message for which there is room, or keeps it until there is.
    ///
    /// # Errors
    /// [`BodyError`]: the exchange is over, or the protocol cannot express the message.
    fn send(&self, number: u32, message: Outgoing) -> Result<(), BodyError>;

    /// The account of the connection, for bytes of the body that are kept in memory.
    fn account(&self, _number: u32) -> Option<Account> {
        None
    }

    /// The application gets a piece of the body, of which it may keep a copy.
    fn hand_over(&self, _number: u32, _piece: &[u8]) {}

    /// The application gets all of the body. The bytes count until the exchange is over.
    fn keep(&self, _number: u32, _charge: ConnectionCharge) {}

    /// The address that the client has connected to, of the request of a server.
    fn destination(&self, _number: u32) -> Option<Address> {
        None
    }

    /// Whether the connection drains, perhaps alone, as at its age. A drain wakes the task of the exchange.
    fn is_draining(&self) -> bool {
        false
    }
}

/// A piece of a body that is received.
pub enum Piece {
    /// Bytes of the body.
    Data(Slice),
    /// The fields after the body.
    Trailers(Trailers),
}
