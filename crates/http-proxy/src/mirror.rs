//! `Mirror`: copies of a share of the requests for other upstreams, whose responses are dropped.
//!
//! A copy never delays its request, nor fails it: it is sent when the request has been sent whole, by a task of its own. It is
//! left out if its body is too long, if the client's request is not complete, or if too many copies are in progress.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::task;
use tidegate_http::{Request, gateway};

use super::loop_values::LoopValues;
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
pub struct Mirror(Arc<MirrorSettings>);

#[derive(Clone)]
pub(super) struct MirrorSettings {
    pub(super) upstreams: Upstreams,
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
        Self(Arc::new(MirrorSettings {
            upstreams: upstreams.clone(),
            share: WHOLE,
            body_bytes_max: 64 * 1024,
            in_progress_max: 64,
            timeout: Duration::from_secs(30),
        }))
    }

    /// The share of requests that are copied, in percent from 0 to 100. It is kept exactly, by each loop.
    #[must_use]
    pub fn percent(self, percent: f64) -> Self {
        // A number that is none is 0.
        let share = (percent.clamp(0.0, 100.0) * f64::from(WHOLE / 100)).round() as u32;
        self.set(|settings| settings.share = share)
    }

    /// The longest body of a request that is copied, in bytes. It is kept while the request is sent.
    #[must_use]
    pub fn body_bytes_max(self, bytes_max: usize) -> Self {
        self.set(|settings| settings.body_bytes_max = bytes_max)
    }

    /// How many copies a loop has in progress, of all routes with this mirror or a clone of it.
    #[must_use]
    pub fn in_progress_max(self, copies_max: u32) -> Self {
        self.set(|settings| settings.in_progress_max = copies_max)
    }

    /// How long a copy may be in progress.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set(|settings| settings.timeout = timeout)
    }

    /// A clone with another setting has counts of its own.
    fn set(mut self, set: impl FnOnce(&mut MirrorSettings)) -> Self {
        set(Arc::make_mut(&mut self.0));
        self
    }

    pub(super) fn settings(&self) -> &MirrorSettings {
        &self.0
    }
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let MirrorSettings { share, body_bytes_max, in_progress_max, .. } = self.settings();
        let mut text = f.debug_struct("Mirror");
        text.field("share", share).field("body_bytes_max", body_bytes_max).field("in_progress_max", in_progress_max);
        text.finish_non_exhaustive()
    }
}

/// Sends copies of requests, and drops their responses.
pub(super) trait CopySender {
    fn send_copy(&self, request: Request, body: Vec<u8>) -> Pin<Box<dyn Future<Output = ()> + '_>>;
}

/// The copies of a mirror on one loop, of all its routes.
#[derive(Default)]
struct CopyCounts {
    /// The part of a copy that is due.
    credit: Cell<u32>,
    in_progress: Cell<u32>,
}

thread_local! {
    static OF_LOOPS: LoopValues<MirrorSettings, CopyCounts> = const { LoopValues::new() };
}

/// The mirror of a route on one loop.
pub(super) struct LoopMirror {
    mirror: Mirror,
    sender: Box<dyn CopySender>,
    counts: Rc<CopyCounts>,
}

impl LoopMirror {
    pub(super) fn new(mirror: Mirror, sender: impl CopySender + 'static) -> Self {
        let counts = OF_LOOPS.with(|values| values.get(&mirror.0, CopyCounts::default));
        Self { mirror, sender: Box::new(sender), counts }
    }

    /// The copy of a request, if it is one that is copied. A tunnel is none.
    pub(super) fn copy(self: &Rc<Self>, request: &Request, is_tunnel: bool) -> Option<RequestCopy> {
        let (settings, counts) = (self.mirror.settings(), &self.counts);
        let credit = counts.credit.get() + settings.share;
        counts.credit.set(credit % WHOLE);
        let is_short = request.content_length().is_none_or(|length| length <= settings.body_bytes_max as u64);
        if credit < WHOLE || !is_short || is_tunnel || counts.in_progress.get() >= settings.in_progress_max {
            return None;
        }
        counts.in_progress.set(counts.in_progress.get() + 1);
        let (request, body) = (gateway::copy_of_head(request), Vec::new());
        Some(RequestCopy { request: Some(request), body, of_loop: self.clone() })
    }
}

/// A copy of a request that is on its way to its own upstream. It counts until it is dropped.
pub(super) struct RequestCopy {
    request: Option<Request>,
    body: Vec<u8>,
    of_loop: Rc<LoopMirror>,
}

impl RequestCopy {
    /// Adds a piece of the body. Whether it is short enough so far.
    pub(super) fn add(&mut self, piece: &[u8]) -> bool {
        let fits = self.body.len() + piece.len() <= self.of_loop.mirror.settings().body_bytes_max;
        if fits {
            self.body.extend_from_slice(piece);
        }
        fits
    }

    /// The request was sent whole: its copy is sent by a task.
    pub(super) fn send(mut self) {
        let Some(request) = self.request.take() else { return };
        drop(task::spawn(async move {
            let of_loop = self.of_loop.clone();
            let body = std::mem::take(&mut self.body);
            let timeout = of_loop.mirror.settings().timeout;
            let _ = task::timeout(timeout, of_loop.sender.send_copy(request, body)).await;
            drop(self);
        }));
    }
}

impl Drop for RequestCopy {
    fn drop(&mut self) {
        let in_progress = &self.of_loop.counts.in_progress;
        in_progress.set(in_progress.get() - 1);
    }
}

/// A whole request, in millionths.
const WHOLE: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use tidegate_engine::{Backend, EventLoop};

    use super::*;
    use crate::test_request;

    struct NoSender;

    impl CopySender for NoSender {
        fn send_copy(&self, _: Request, _: Vec<u8>) -> Pin<Box<dyn Future<Output = ()> + '_>> {
            Box::pin(async {})
        }
    }

    fn mirror(set: impl Fn(Mirror) -> Mirror) -> Rc<LoopMirror> {
        let upstreams = Upstreams::new(["http://127.0.0.1:9"]).unwrap();
        Rc::new(LoopMirror::new(set(Mirror::new(&upstreams)), NoSender))
    }

    fn copy(mirror: &Rc<LoopMirror>, method: &str, lines: &str) -> Option<RequestCopy> {
        mirror.copy(&test_request(method, "/", lines), false)
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
        assert_eq!(mirror.counts.in_progress.get(), 0);
        assert!(mirror.copy(&test_request("GET", "/", ""), true).is_none());
    }

    #[test]
    fn the_routes_of_a_loop_share_the_bound_and_the_share_of_a_mirror() {
        let test = async {
            let upstreams = Upstreams::new(["http://127.0.0.1:9"]).unwrap();
            let mirror = Mirror::new(&upstreams).in_progress_max(1).percent(50.0);
            let route = || Rc::new(LoopMirror::new(mirror.clone(), NoSender));
            let [one, other] = [route(), route()];
            assert!(copy(&one, "GET", "").is_none(), "half a copy is due");
            let first = copy(&other, "GET", "");
            assert!(first.is_some());
            assert!(copy(&one, "GET", "").is_none() && copy(&one, "GET", "").is_none(), "one is in progress");
            drop(first);
            assert!(copy(&one, "GET", "").is_none() && copy(&other, "GET", "").is_some());
        };
        EventLoop::on(Backend::Auto).unwrap().block_on(test).unwrap();
    }
}
