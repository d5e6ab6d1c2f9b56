//! `Figures`: the sources of the numbers that the administrative server shows.

use std::sync::Arc;

use tidegate_engine::ServerHandle;
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

/// A condition of readiness, with the line that says that it is not met.
pub(crate) type ReadyCondition = (&'static str, Arc<dyn Fn() -> bool + Send + Sync>);

/// The sources of the figures.
#[derive(Clone)]
pub(crate) struct Figures {
    pub(crate) server: ReadServer,
    pub(crate) requests: HttpMetrics,
    pub(crate) upstreams: Option<ReadUpstreams>,
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
