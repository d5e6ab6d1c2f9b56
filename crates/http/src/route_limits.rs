//! `RouteLimits`: the limits of one route, in place of those of its server.

use std::cell::Cell;
use std::time::Duration;

use tidegate_http_message::BodyError;
use tidegate_http_message::exchange::Piece;
use tidegate_http_message::watched::ExchangeWatcher;

use crate::request::Request;
use crate::response::Response;
use crate::serving::too_long;

/// The limits of a route; those that are not set are the server's.
#[derive(Default)]
pub(crate) struct RouteLimits {
    pub(crate) body_bytes_max: Cell<Option<u64>>,
    pub(crate) timeout: Cell<Option<Duration>>,
    pub(crate) rate: Option<CheckRate>,
}

impl RouteLimits {
    /// The response to a request beyond the rate.
    #[inline(never)]
    pub(crate) fn check_rate(&self, request: &mut Request) -> Result<(), Box<Response>> {
        match &self.rate {
            Some(rate) => rate(request).map_err(Box::new),
            None => Ok(()),
        }
    }

    /// The response to a request with too long a body.
    #[inline(never)]
    pub(crate) fn check_length(&self, request: &Request) -> Result<(), Box<Response>> {
        let most = self.body_bytes_max.get();
        if most.zip(request.announced_length()).is_some_and(|(most, length)| length > most) {
            return Err(too_long().into());
        }
        Ok(())
    }
}

/// Refuses a request beyond a rate.
pub(crate) type CheckRate = Box<dyn Fn(&mut Request) -> Result<(), Response>>;

/// Ends the body of a request with an error when more bytes than these come.
pub(crate) struct BytesLeft(Cell<u64>);

impl BytesLeft {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Cell::new(bytes))
    }
}

impl ExchangeWatcher for BytesLeft {
    fn on_received(&self, piece: &Piece) -> Result<(), BodyError> {
        if let Piece::Data(data) = piece {
            self.0.set(self.0.get().checked_sub(data.len() as u64).ok_or(BodyError::TooLong)?);
        }
        Ok(())
    }
}
