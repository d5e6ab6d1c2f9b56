//! `Lease`: a request that an upstream has in progress. It is counted until this is dropped, and its outcome goes to
//! the upstream's health. An upstream works on one request of an HTTP/1.1 connection at a time, so those of a pipeline
//! count as one.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::task;
use tidegate_http::gateway::{EndCause, ExchangeNote};
use tidegate_http::{Request, TraceContext};
use tidegate_http1::Status;

use super::attempt_span::AttemptSpan;
use super::error::FailureKind;
use super::upstreams::{Shared, Upstream};
use tidegate_l4::Millis;

pub(super) struct Lease {
    shared: Arc<Shared>,
    pub(super) upstream: Arc<Upstream>,
    /// `None` if the request waits in a pipeline, which is counted itself.
    counted: Cell<Option<InProgress>>,
    /// For the access log.
    note: Option<ExchangeNote>,
    /// The span of the attempt, if the request has one.
    span: Option<Box<AttemptSpan>>,
    /// When the upstream was chosen.
    began: Instant,
    /// The request has failed: a complete response, as of a 503, is no success then.
    has_failed: Cell<bool>,
}

impl Lease {
    /// A request for an upstream that was chosen at `began`.
    pub(super) fn new(
        shared: Arc<Shared>,
        upstream: Arc<Upstream>,
        client: Option<u64>,
        note: Option<ExchangeNote>,
        began: Instant,
    ) -> Self {
        let share = shared.limits.requests_per_address_max;
        let counted = Cell::new(Some(InProgress::new(upstream.clone(), client, share)));
        Self { shared, upstream, counted, note, span: None, began, has_failed: Cell::new(false) }
    }

    /// The attempt begins, after `resends` others: it gets a span if its request has one. `path` is for that.
    #[inline]
    pub(super) fn begin(&mut self, request: &Request, path: impl FnOnce() -> String, resends: u32) {
        self.upstream.counts.on_attempt(resends > 0);
        if let Some(note) = &self.note {
            note.begin_attempt(&self.upstream.name);
        }
        self.span = AttemptSpan::begin(request, &self.upstream, path, resends);
    }

    /// The upstream, and the context that it gets, if the attempt has a span.
    pub(super) fn addressee(&self) -> (&Upstream, Option<&TraceContext>) {
        (&self.upstream, self.span.as_ref().map(|span| span.context()))
    }

    /// The attempt has failed: the upstream has not answered.
    pub(super) fn fail_span(&self, kind: FailureKind) {
        if let Some(span) = &self.span {
            span.fail(kind);
        }
    }

    /// The present time, as upstreams count it.
    pub(super) fn now(&self) -> Millis {
        self.shared.millis(task::now())
    }

    pub(super) fn id(&self) -> u64 {
        self.upstream.id
    }

    /// The request waits behind others, on a connection that is counted once. Returns the count of this request.
    pub(super) fn take_count(&self) -> Option<InProgress> {
        self.counted.take()
    }

    /// Whether a connection is for one request alone.
    pub(super) fn is_single(&self) -> bool {
        self.shared.sends_proxy_header
    }

    /// How long ago the upstream was chosen, by the clock of the loop.
    pub(super) fn elapsed(&self) -> Duration {
        task::now().saturating_duration_since(self.began)
    }

    /// The head of the response has come.
    pub(super) fn on_head(&self, status: Status) {
        let took = self.elapsed();
        self.upstream.counts.on_head(status, took);
        if let Some(span) = &self.span {
            span.on_head(status);
        }
        if let Some(note) = &self.note {
            note.set_head(status.code(), took);
        }
    }

    /// The response is complete.
    pub(super) fn complete(&self) {
        let took = self.elapsed();
        self.upstream.counts.on_end(took);
        if let Some(note) = &self.note {
            note.set_whole(took);
        }
        self.succeed();
    }

    pub(super) fn succeed(&self) {
        if !self.has_failed.get() {
            self.upstream.health.on_success();
        }
    }

    pub(super) fn fail(&self) {
        if !self.has_failed.replace(true) {
            self.shared.on_failure(&self.upstream, task::now(), false);
        }
    }

    /// The upstream has failed within the body of its response.
    pub(super) fn fail_in_body(&self, text: &str, end: EndCause) {
        self.upstream.counts.on_failure(FailureKind::Body);
        self.fail_span(FailureKind::Body);
        if let Some(note) = &self.note {
            note.fail(text.to_owned(), end);
        }
        self.fail();
    }

    /// No connection could be made.
    pub(super) fn fail_to_connect(&self) {
        if !self.has_failed.replace(true) {
            self.shared.on_failure(&self.upstream, task::now(), true);
        }
    }
}

/// Counts among the requests that an upstream has in progress, and among those of their client, until this is dropped.
pub(super) struct InProgress {
    upstream: Arc<Upstream>,
    /// Whose share counts it.
    client: Option<u64>,
}

impl InProgress {
    fn new(upstream: Arc<Upstream>, client: Option<u64>, share: u32) -> Self {
        let client = upstream.begin_request(client, share);
        Self { upstream, client }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.upstream.end_request(self.client);
    }
}
