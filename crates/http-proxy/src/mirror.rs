//! `Mirror`: copies of a share of the requests for other upstreams, whose responses are dropped.
//!
//! A copy never delays its request, nor fails it: it is sent when the request has been sent whole, by a task of its own. It is
//! left out if its body is too long, if the client's request is not complete, or if too many copies are in progress.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_engine::task;
use tidegate_http::{Request, gateway};

use super::forward::LoopUpstreams;
use super::options::Options;
use super::request_head::ForwardPlan;
use super::upstreams::Upstreams;

/// Copies of a share of the requests of a route; see [`Proxy::mirror`](super::Proxy::mirror).
///
/// ```
/// use tidegate::http::proxy::{Mirror, Proxy, Upstreams};
///
/// let upstreams = Upstreams::new(["http://10.0.0.1:8080"])?;
/// let next_version = Upstreams::new(["http://10.0.0.9:8080"])?;
/// let proxy = Proxy::new(&upstreams).mirror(Mirror::new(&next_version).percent(5.0));
/// # drop(proxy);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Mirror {
    upstreams: Upstreams,
    /// The share of requests, in millionths.
    share: u32,
    body_bytes_max: usize,
    in_progress_max: u32,
    timeout: Duration,
}

impl Mirror {
    /// Copies all requests to these upstreams, but for those with a body beyond 64 KiB. Each loop has up to 64 copies in
    /// progress, each for up to 30 seconds.
    #[must_use]
    pub fn new(upstreams: &Upstreams) -> Self {
        Self {
            upstreams: upstreams.clone(),
            share: WHOLE,
            body_bytes_max: 64 * 1024,
            in_progress_max: 64,
            timeout: Duration::from_secs(30),
        }
    }

    /// The share of requests that are copied, in percent from 0 to 100. It is kept exactly, by each loop.
    #[must_use]
    pub fn percent(mut self, percent: f64) -> Self {
        // A number that is none is 0.
        self.share = (percent.clamp(0.0, 100.0) * f64::from(WHOLE / 100)).round() as u32;
        self
    }

    /// The longest body of a request that is copied, in bytes. It is kept while the request is sent.
    #[must_use]
    pub fn body_bytes_max(mut self, bytes_max: usize) -> Self {
        self.body_bytes_max = bytes_max;
        self
    }

    /// How many copies a loop has in progress.
    #[must_use]
    pub fn in_progress_max(mut self, copies_max: u32) -> Self {
        self.in_progress_max = copies_max;
        self
    }

    /// How long a copy may be in progress.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { share, body_bytes_max, in_progress_max, .. } = self;
        let mut text = f.debug_struct("Mirror");
        text.field("share", share).field("body_bytes_max", body_bytes_max).field("in_progress_max", in_progress_max);
        text.finish_non_exhaustive()
    }
}

/// The mirror of a route on one loop.
pub(super) struct LoopMirror {
    upstreams: Rc<LoopUpstreams>,
    settings: Mirror,
    /// Of a request, without those that are about its client.
    options: Rc<Options>,
    /// The part of a copy that is due.
    credit: Cell<u32>,
    in_progress: Cell<u32>,
}

impl LoopMirror {
    pub(super) fn new(settings: Mirror, options: &Options) -> Self {
        let options = Options {
            rate: None,
            sticky: None,
            mirror: None,
            response_edits: Vec::new(),
            upgrades: Vec::new(),
            connect: false,
            ..options.clone()
        };
        let upstreams = Rc::new(LoopUpstreams::new(settings.upstreams.0.clone()));
        let (credit, in_progress) = (Cell::new(0), Cell::new(0));
        Self { upstreams, settings, options: Rc::new(options), credit, in_progress }
    }

    /// The copy of a request, if it is one that is copied.
    pub(super) fn copy(self: &Rc<Self>, request: &Request, plan: &ForwardPlan) -> Option<RequestCopy> {
        let settings = &self.settings;
        let credit = self.credit.get() + settings.share;
        self.credit.set(credit % WHOLE);
        let is_short = request.content_length().is_none_or(|length| length <= settings.body_bytes_max as u64);
        let stays_http = !plan.needs_http1 && plan.handshake.is_none();
        if credit < WHOLE || !is_short || !stays_http || self.in_progress.get() >= settings.in_progress_max {
            return None;
        }
        self.in_progress.set(self.in_progress.get() + 1);
        let (request, body) = (gateway::copy_of_head(request), Vec::new());
        Some(RequestCopy { request: Some(request), body, mirror: self.clone() })
    }
}

/// A copy of a request that is on its way to its own upstream. It counts until it is dropped.
pub(super) struct RequestCopy {
    request: Option<Request>,
    body: Vec<u8>,
    mirror: Rc<LoopMirror>,
}

impl RequestCopy {
    /// Adds a piece of the body. Whether it is short enough so far.
    pub(super) fn add(&mut self, piece: &[u8]) -> bool {
        let fits = self.body.len() + piece.len() <= self.mirror.settings.body_bytes_max;
        if fits {
            self.body.extend_from_slice(piece);
        }
        fits
    }

    /// The request was sent whole: its copy is sent by a task.
    pub(super) fn send(mut self) {
        let Some(request) = self.request.take() else { return };
        drop(task::spawn(async move {
            let mirror = self.mirror.clone();
            let body = std::mem::take(&mut self.body);
            let sent = mirror.upstreams.send_copy(request, body, &mirror.options);
            let _ = task::timeout(mirror.settings.timeout, sent).await;
            drop(self);
        }));
    }
}

impl Drop for RequestCopy {
    fn drop(&mut self) {
        self.mirror.in_progress.set(self.mirror.in_progress.get() - 1);
    }
}

/// A whole request, in millionths.
const WHOLE: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_request;

    fn mirror(set: impl Fn(Mirror) -> Mirror) -> Rc<LoopMirror> {
        let upstreams = Upstreams::new(["http://127.0.0.1:9"]).unwrap();
        Rc::new(LoopMirror::new(set(Mirror::new(&upstreams)), &Options::default()))
    }

    fn copy(mirror: &Rc<LoopMirror>, method: &str, lines: &str) -> Option<RequestCopy> {
        let request = test_request(method, "/", lines);
        let plan = ForwardPlan::of(&request, &Options::default()).unwrap();
        mirror.copy(&request, &plan)
    }

    #[test]
    fn the_share_is_kept_exactly() {
        for (percent, expected) in
            [(100.0, 1_000), (5.0, 50), (0.1, 1), (33.3, 333), (0.0, 0), (-1.0, 0), (200.0, 1_000), (f64::NAN, 0)]
        {
            let mirror = mirror(|mirror| mirror.percent(percent));
            let copies = (0..1_000).filter(|_| copy(&mirror, "GET", "").is_some()).count();
            assert_eq!(copies, expected, "{percent}");
        }
    }

    #[test]
    fn copies_are_bounded_in_number_and_in_bytes() {
        let mirror = mirror(|mirror| mirror.in_progress_max(2).body_bytes_max(4));
        let mut first = copy(&mirror, "POST", "Content-Length: 4\r\n").unwrap();
        let second = copy(&mirror, "GET", "").unwrap();
        assert!(copy(&mirror, "GET", "").is_none());
        drop(second);
        assert!(copy(&mirror, "POST", "Content-Length: 5\r\n").is_none());
        assert!(first.add(b"abcd") && !first.add(b"e"));
        drop(first);
        assert_eq!(mirror.in_progress.get(), 0);
        assert!(copy(&mirror, "GET", "Connection: upgrade\r\nUpgrade: websocket\r\n").is_none());
    }
}
