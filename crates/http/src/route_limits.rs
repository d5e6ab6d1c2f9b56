//! `RouteLimits`: the limits of one route, in place of those of its server.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_engine::{Account, ConnectionCharge};
use tidegate_http_message::BodyError;
use tidegate_http_message::exchange::{Exchange, Piece};
use tidegate_http1::Outgoing;
use tidegate_sys::Address;

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
    /// The response to a request beyond a limit.
    #[inline(never)]
    pub(crate) fn check(&self, request: &mut Request) -> Result<(), Response> {
        if let Some(rate) = &self.rate {
            rate(request)?;
        }
        let most = self.body_bytes_max.get();
        if most.zip(request.content_length()).is_some_and(|(most, length)| length > most) {
            return Err(too_long());
        }
        Ok(())
    }
}

/// Refuses a request beyond a rate.
pub(crate) type CheckRate = Box<dyn Fn(&mut Request) -> Result<(), Response>>;

/// An exchange that ends the body of its request with an error when it is too long.
pub(crate) struct BoundedExchange {
    exchange: Rc<dyn Exchange>,
    bytes_left: Cell<u64>,
}

impl BoundedExchange {
    pub(crate) fn new(exchange: Rc<dyn Exchange>, bytes_max: u64) -> Self {
        Self { exchange, bytes_left: Cell::new(bytes_max) }
    }
}

impl Exchange for BoundedExchange {
    fn is_draining(&self) -> bool {
        self.exchange.is_draining()
    }

    fn poll_body(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, BodyError>> {
        let polled = self.exchange.poll_body(number, cx);
        if let Poll::Ready(Ok(Some(Piece::Data(data)))) = &polled {
            let Some(left) = self.bytes_left.get().checked_sub(data.len() as u64) else {
                return Poll::Ready(Err(BodyError::TooLong));
            };
            self.bytes_left.set(left);
        }
        polled
    }

    fn poll_ready(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.exchange.poll_ready(number, cx)
    }

    fn poll_flush(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.exchange.poll_flush(number, cx)
    }

    fn send(&self, number: u32, message: Outgoing) -> Result<(), BodyError> {
        self.exchange.send(number, message)
    }

    fn account(&self, number: u32) -> Option<Account> {
        self.exchange.account(number)
    }

    fn hand_over(&self, number: u32, piece: &[u8]) {
        self.exchange.hand_over(number, piece);
    }

    fn keep(&self, number: u32, charge: ConnectionCharge) {
        self.exchange.keep(number, charge);
    }

    fn destination(&self, number: u32) -> Option<Address> {
        self.exchange.destination(number)
    }
}
