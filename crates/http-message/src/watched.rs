//! `WatchedExchange`: an exchange whose messages a watcher sees, to count, bound or store a body on its way.

use std::error::Error;
use std::rc::Rc;
use std::task::{Context, Poll};

use tidegate_engine::{Account, ConnectionCharge};
use tidegate_http1::Outgoing;
use tidegate_sys::Address;

use crate::body::{BodyFuture, BodyWriter, ProducedBody};
use crate::error::BodyError;
use crate::exchange::{Exchange, Piece};

/// Sees the messages of an exchange. Each method does nothing unless it is implemented.
pub trait ExchangeWatcher {
    /// A piece of the request's body has come.
    ///
    /// # Errors
    /// The body ends with this error in place of the piece.
    fn on_received(&self, _piece: &Piece) -> Result<(), BodyError> {
        Ok(())
    }

    /// A message of the response is about to be sent.
    fn on_send(&self, _message: &Outgoing) {}

    /// A message of the response, with so many bytes of body, was accepted.
    fn on_sent(&self, _bytes: u64) {}

    /// The function that writes the response's body has returned; `None` if it was dropped before, as when the client leaves.
    /// Only a body that is [watched](ProducedBody::watched) calls it, and once.
    fn on_end(&self, _result: Option<&Result<(), Box<dyn Error>>>) {}
}

/// An exchange whose messages a watcher sees.
pub struct WatchedExchange<W> {
    exchange: Rc<dyn Exchange>,
    watcher: W,
}

impl<W> WatchedExchange<W> {
    /// The same exchange, with a watcher.
    pub fn new(exchange: Rc<dyn Exchange>, watcher: W) -> Self {
        Self { exchange, watcher }
    }

    /// The watcher.
    pub fn watcher(&self) -> &W {
        &self.watcher
    }
}

impl<W: ExchangeWatcher> Exchange for WatchedExchange<W> {
    fn poll_body(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, BodyError>> {
        let polled = self.exchange.poll_body(number, cx);
        if let Poll::Ready(Ok(Some(piece))) = &polled {
            self.watcher.on_received(piece)?;
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
        self.watcher.on_send(&message);
        let bytes = if let Outgoing::Data(piece) = &message { piece.len() } else { 0 };
        self.exchange.send(number, message)?;
        self.watcher.on_sent(bytes);
        Ok(())
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

    fn is_draining(&self) -> bool {
        self.exchange.is_draining()
    }
}

impl ProducedBody {
    /// The same body, watched while it is written. `watch` makes the watcher when the body begins; a body that never begins
    /// drops `watch`.
    #[must_use]
    pub fn watched<W: ExchangeWatcher + 'static>(self, watch: impl FnOnce(&Rc<dyn Exchange>) -> W + 'static) -> Self {
        let Self { length, produce } = self;
        let produce = Box::new(move |writer: BodyWriter| {
            let (exchange, number) = writer.into_parts();
            let watcher = watch(&exchange);
            let watched = Rc::new(WatchedExchange::new(exchange, watcher));
            let mut end = BodyEnd { watched: watched.clone(), is_reported: false };
            let producing = produce(BodyWriter::new(watched, number));
            Box::pin(async move {
                let result = producing.await;
                end.report(Some(&result));
                result
            }) as BodyFuture
        });
        Self { length, produce }
    }
}

/// Reports the end of a body once, also if its future is dropped.
struct BodyEnd<W: ExchangeWatcher> {
    watched: Rc<WatchedExchange<W>>,
    is_reported: bool,
}

impl<W: ExchangeWatcher> BodyEnd<W> {
    fn report(&mut self, result: Option<&Result<(), Box<dyn Error>>>) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.watched.watcher.on_end(result);
        }
    }
}

impl<W: ExchangeWatcher> Drop for BodyEnd<W> {
    fn drop(&mut self) {
        self.report(None);
    }
}
