//! `Refusals`: how many requests the codec has refused, by class of status.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::status::Status;

/// Counts the requests that codecs have refused: malformed, too large or late ones, which no application has answered. A
/// clone counts in the same place; so do all connections whose configuration has it, whatever their loops are.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::http1::{Config, Limits, Refusals, Server};
///
/// let refusals = Refusals::new();
/// let config = Arc::new(Config::new(Limits::default()).count_refusals(&refusals));
/// let connection = Server::new(config);
/// assert_eq!(refusals.counts(), [0; 5]);
/// # drop(connection);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Refusals(Arc<[AtomicU64; CLASSES]>);

impl Refusals {
    /// Counts nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A codec has answered a request with this status, without its application.
    // A refusal ends its connection or stream, so the loops contend little for the one place.
    #[cold]
    pub fn add(&self, status: Status) {
        self.0[usize::from(status.code() / 100) - 1].fetch_add(1, Relaxed);
    }

    /// The refusals so far, by class of their status: from 1xx to 5xx.
    #[must_use]
    pub fn counts(&self) -> [u64; CLASSES] {
        std::array::from_fn(|class| self.0[class].load(Relaxed))
    }
}

/// Classes of statuses.
const CLASSES: usize = 5;
