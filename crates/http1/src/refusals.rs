//! `Refusals`: how many requests the codec has refused, by class of status. `Refusal`: the last one of this thread, for a log.

use std::cell::Cell;
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

/// A request that a codec has refused, as the codec knows it: it knows no peer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The status of the response.
    pub status: Status,
    /// The reason, in words.
    pub reason: &'static str,
    /// The beginning of the first line of the request, up to 256 bytes as they came; empty if it is not known.
    pub line: Box<[u8]>,
}

impl Refusal {
    /// Keeps a refusal for [`take`](Self::take). `input` begins with the request, or is empty.
    #[cold]
    pub fn record(status: Status, reason: &'static str, input: &[u8]) {
        let input = &input[..input.len().min(LINE_BYTES_MAX)];
        let end = input.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(input.len());
        LAST.set(Some(Self { status, reason, line: input[..end].into() }));
    }

    /// The last refusal on this thread, if `fault` is its error: that which a codec has just returned.
    #[cold]
    #[must_use]
    pub fn take(fault: &dyn std::fmt::Display) -> Option<Self> {
        // A refusal that nothing took may be of another connection.
        LAST.take().filter(|last| fault.to_string().contains(last.reason))
    }
}

thread_local! {
    /// The last refusal. The codec of a connection has no room to keep it, and its caller asks at once.
    static LAST: Cell<Option<Refusal>> = const { Cell::new(None) };
}

/// Bytes of a line that are kept.
const LINE_BYTES_MAX: usize = 256;

/// Classes of statuses.
const CLASSES: usize = 5;
