//! `Figures`: the sources of the numbers that the administrative server shows.

use std::sync::Arc;

use serde::Serialize;
use tidegate_engine::{RoomsSummary, ServerHandle};
use tidegate_http_cache::Cache;
use tidegate_metrics::{HttpMetrics, MetricsText, UpstreamGroup};

/// Writes metrics of the application.
pub(crate) type WriteMetrics = Arc<dyn Fn(&mut MetricsText) + Send + Sync>;

/// Reads the server whose figures are shown.
pub(crate) type ReadServer = Arc<dyn Fn() -> ServerHandle + Send + Sync>;

/// Reads the caches in use.
pub(crate) type ReadCaches = Arc<dyn Fn() -> Vec<Cache> + Send + Sync>;

/// Reads the upstreams of a gateway.
pub(crate) type ReadUpstreams = Arc<dyn Fn() -> Vec<UpstreamGroup> + Send + Sync>;

/// Reads the rooms of the application.
pub(crate) type ReadRooms = Arc<dyn Fn() -> RoomsSummary + Send + Sync>;

/// Reads the backplane of the rooms.
pub(crate) type ReadBackplane = Arc<dyn Fn() -> BackplaneFigures + Send + Sync>;

/// The state of a backplane on the page: rooms of several nodes, and the broker that connects them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BackplaneFigures {
    /// Whether the broker is connected.
    pub is_up: bool,
    /// Why the node cannot do its work, if it cannot: the broker is not connected, or refuses messages.
    pub fault: Option<String>,
    /// Rooms whose subscription the broker refuses.
    pub refused_rooms: u64,
    /// Microseconds from the last own message to its return from the broker.
    pub lag_micros: u64,
    /// Messages that wait for the broker.
    pub queued_messages: u64,
    /// Rooms that are subscribed.
    pub rooms: u64,
    /// Messages that the broker did not confirm: it refuses them, or the connection was lost.
    pub unconfirmed: u64,
    /// Messages that were refused, since too many were waiting.
    pub refused: u64,
    /// Points at which messages are lost.
    pub gaps: u64,
    /// Messages that were lost, as far as offsets tell.
    pub lost: u64,
    /// Missing messages that came from the history.
    pub recovered: u64,
    /// Rooms that were subscribed again.
    pub resubscribes: u64,
    /// Lost connections to the broker.
    pub downs: u64,
}

/// A condition of readiness: the line that says why it is not met.
pub(crate) type ReadyCondition = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The sources of the figures.
#[derive(Clone)]
pub(crate) struct Figures {
    pub(crate) server: ReadServer,
    pub(crate) requests: HttpMetrics,
    pub(crate) upstreams: Option<ReadUpstreams>,
    pub(crate) rooms: Option<ReadRooms>,
    pub(crate) backplane: Option<ReadBackplane>,
    pub(crate) more: Vec<WriteMetrics>,
    pub(crate) ready: Vec<ReadyCondition>,
}

impl Figures {
    pub(crate) fn server(&self) -> ServerHandle {
        (self.server)()
    }

    pub(crate) fn groups(&self) -> Vec<UpstreamGroup> {
        self.upstreams.as_ref().map_or_else(Vec::new, |read| read())
    }
}
