//! What the site counts of its requests, on the loop of each thread.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate::Context;
use tidegate::http1::{RequestHead, Status};
use tidegate::metrics::{HttpMetrics, HttpRecorder, RouteMetrics};

use crate::site_codec::SiteCodec;

thread_local! {
    /// By the number of their route. A connection has no room for it.
    static ROUTES: RefCell<Option<[Rc<RouteMetrics>; NAMES.len()]>> = const { RefCell::new(None) };
}

/// Has the loop of this thread count requests.
pub(crate) fn count(metrics: Option<&HttpMetrics>) {
    ROUTES.set(metrics.map(|metrics| {
        let recorder = HttpRecorder::new(metrics);
        NAMES.map(|name| recorder.route(name))
    }));
}

/// A request gets a response with this status.
#[inline]
pub(crate) fn record<C: SiteCodec>(head: &RequestHead, status: Status, cx: &Context<'_, C>) {
    ROUTES.with_borrow(|routes| {
        if let Some(routes) = routes {
            let now = cx.now();
            routes[number(head.path_bytes())].record(head.method(), status.code(), now, now);
        }
    });
}

#[inline]
fn number(path: &[u8]) -> usize {
    match NAMES.iter().position(|name| name.as_bytes() == path) {
        Some(number) => number,
        None if path.starts_with(b"/bytes/") => BYTES,
        None if path.starts_with(b"/stream/") => STREAM,
        None => NOWHERE,
    }
}

const NAMES: [&str; 9] =
    ["/plaintext", "/json", "/", "/address", "/echo", "/sum", "/bytes/{length}", "/stream/{length}", ""];
const BYTES: usize = 6;
const STREAM: usize = 7;
const NOWHERE: usize = 8;
