//! `RequestCounter`: counts the requests of a loop, by the cells of their endpoints.

use std::rc::Rc;
use std::time::Instant;

use tidegate_engine::task;
use tidegate_http1 as http1;
use tidegate_metrics::{HttpRecorder, RouteMetrics, TraceIds};

use crate::endpoint::Endpoint;
use crate::response::Response;

/// Counts the requests of a loop.
pub(crate) struct RequestCounter {
    pub(crate) recorder: HttpRecorder,
    /// For requests that no route matches.
    unmatched: Rc<RouteMetrics>,
}

impl RequestCounter {
    pub(crate) fn new(recorder: HttpRecorder) -> Self {
        Self { unmatched: recorder.route(""), recorder }
    }

    /// A request begins. `endpoint` is its function, if it has one.
    #[inline]
    pub(crate) fn begin(&self, endpoint: Option<&Endpoint>, method: http1::Method, began: Instant) -> RequestCount {
        let route = endpoint.and_then(|endpoint| endpoint.metrics.get()).unwrap_or(&self.unmatched);
        RequestCount { route: route.clone(), method, began }
    }
}

/// A request that is counted when it has its response.
pub(crate) struct RequestCount {
    route: Rc<RouteMetrics>,
    method: http1::Method,
    began: Instant,
}

impl RequestCount {
    #[inline]
    pub(crate) fn record(&self, response: &Response, trace: impl FnOnce() -> Option<TraceIds>) {
        self.route.record_traced(self.method, response.status_code().as_u16(), self.began, task::now(), trace);
    }
}
