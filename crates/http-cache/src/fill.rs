//! `Fill`: a response that is stored while its body is on its way to the client.

use std::cell::RefCell;
use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tidegate_http_message::BodyError;
use tidegate_http_message::body::ProducedBody;
use tidegate_http_message::exchange::{Exchange, Piece};
use tidegate_http_message::watched::ExchangeWatcher;
use tidegate_http1::{Body, Fields, Outgoing, Status};

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
    produced.watched(move |_| FillWatcher { fill: RefCell::new(Some(fill)), length })
}

/// Stores a response as it is sent.
struct FillWatcher {
    fill: RefCell<Option<Fill>>,
    /// The length of the body, if it is known.
    length: Option<u64>,
}

impl ExchangeWatcher for FillWatcher {
    fn on_send(&self, message: &Outgoing) {
        let mut fill = self.fill.borrow_mut();
        let has_room = match message {
            // Its bytes are not here.
            Outgoing::Data(Body::File(_)) => false,
            Outgoing::Data(piece) => fill.as_mut().is_none_or(|fill| fill.add(piece.memory())),
            Outgoing::Trailers(trailers) => trailers.is_empty(),
            _ => true,
        };
        if !has_room && let Some(fill) = fill.take() {
            fill.give_up();
        }
    }

    fn on_end(&self, result: Option<&Result<(), Box<dyn Error>>>) {
        if let Some(fill) = self.fill.take()
            && let Some(Ok(())) = result
        {
            fill.complete(self.length);
        }
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
