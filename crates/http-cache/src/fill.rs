//! `Fill`: a response that is stored while its body is on its way to the client.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tidegate_engine::{Account, ConnectionCharge};
use tidegate_http_message::BodyError;
use tidegate_http_message::body::{BodyFuture, BodyWriter, ProducedBody};
use tidegate_http_message::exchange::{Exchange, Piece};
use tidegate_http1::{Body, Fields, Outgoing, Status};
use tidegate_sys::Address;

use crate::entry::Entry;
use crate::flights::{FlightEnd, Lead};
use crate::rules::freshness::Freshness;
use crate::rules::vary::Selector;
use crate::shared::CacheShared;
use crate::store::Reservation;

/// A response whose body comes. Dropping it before its end stores nothing.
pub(crate) struct Fill {
    cache: Arc<CacheShared>,
    lead: Lead,
    head: EntryHead,
    /// The stale response in whose place it comes.
    old: Option<Arc<Entry>>,
    bytes: Vec<u8>,
    reservation: Reservation,
}

/// A stored response without its body.
pub(crate) struct EntryHead {
    pub(crate) status: Status,
    pub(crate) fields: Fields,
    pub(crate) selector: Selector,
    pub(crate) freshness: Freshness,
    pub(crate) is_forwarded: bool,
}

impl EntryHead {
    pub(crate) fn with_body(self, body: Bytes) -> Entry {
        Entry::new(self.status, self.fields, body, self.selector, self.freshness, self.is_forwarded)
    }
}

impl Fill {
    pub(crate) fn new(cache: &Arc<CacheShared>, lead: Lead, head: EntryHead, old: Option<Arc<Entry>>) -> Self {
        Self { cache: cache.clone(), lead, head, old, bytes: Vec::new(), reservation: cache.store.reserve() }
    }

    /// Adds a piece. Returns whether it has room.
    fn add(&mut self, piece: &[u8]) -> bool {
        let has_room = self.bytes.len() + piece.len() <= self.cache.limits.entry_max();
        if has_room && self.reservation.grow(piece.len()) {
            self.bytes.extend_from_slice(piece);
            return true;
        }
        false
    }

    /// The body is too long, or is none that can be stored.
    fn give_up(self) {
        self.cache.mark(self.lead.key());
        self.lead.finish(FlightEnd::Unstorable);
    }

    /// The body is complete, and was to have this length.
    fn complete(self, length: Option<u64>) {
        let Self { cache, lead, head, old, mut bytes, reservation } = self;
        if length.is_none_or(|length| length == bytes.len() as u64) {
            drop(reservation);
            bytes.shrink_to_fit();
            cache.put(lead, &Arc::new(head.with_body(bytes.into())), old.as_ref());
        }
    }
}

/// The same body, which fills a stored response as it is written.
pub(crate) fn through(produced: ProducedBody, fill: Fill) -> ProducedBody {
    let length = produced.length;
    let produce = Box::new(move |writer: BodyWriter| {
        let (exchange, number) = writer.into_parts();
        let tee = Rc::new(Tee { exchange, fill: RefCell::new(Some(fill)) });
        let producing = (produced.produce)(BodyWriter::new(tee.clone(), number));
        Box::pin(async move {
            producing.await?;
            if let Some(fill) = tee.fill.take() {
                fill.complete(length);
            }
            Ok(())
        }) as BodyFuture
    });
    ProducedBody { length, produce }
}

/// An exchange whose response is stored as it is sent.
struct Tee {
    exchange: Rc<dyn Exchange>,
    fill: RefCell<Option<Fill>>,
}

impl Tee {
    fn give_up(&self) {
        if let Some(fill) = self.fill.take() {
            fill.give_up();
        }
    }
}

impl Exchange for Tee {
    fn poll_body(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, BodyError>> {
        self.exchange.poll_body(number, cx)
    }

    fn poll_ready(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.exchange.poll_ready(number, cx)
    }

    fn poll_flush(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.exchange.poll_flush(number, cx)
    }

    fn send(&self, number: u32, message: Outgoing) -> Result<(), BodyError> {
        let has_room = match &message {
            // Its bytes are not here.
            Outgoing::Data(Body::File(_)) => false,
            Outgoing::Data(piece) => self.fill.borrow_mut().as_mut().is_none_or(|fill| fill.add(piece.memory())),
            Outgoing::Trailers(trailers) => trailers.is_empty(),
            _ => true,
        };
        if !has_room {
            self.give_up();
        }
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

    fn is_draining(&self) -> bool {
        self.exchange.is_draining()
    }
}

/// The exchange of a revalidation in the background: nothing receives the response.
pub(crate) struct NoClient;

impl Exchange for NoClient {
    fn poll_body(&self, _: u32, _: &mut Context<'_>) -> Poll<Result<Option<Piece>, BodyError>> {
        Poll::Ready(Ok(None))
    }

    fn poll_ready(&self, _: u32, _: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        Poll::Ready(Ok(()))
    }

    fn send(&self, _: u32, _: Outgoing) -> Result<(), BodyError> {
        Ok(())
    }
}
