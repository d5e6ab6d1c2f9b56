//! Counts of the site's requests, on the loop of each thread.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Instant;

use tidegate::http1::{Method, Outgoing, RequestHead, Response, Status};
use tidegate::metrics::{HttpMetrics, HttpRecorder, RouteMetrics};
use tidegate::{Context, Outcome};

use crate::site_codec::SiteCodec;

thread_local! {
    /// By the number of their route. A connection has no room for it.
    static ROUTES: OnceCell<[Rc<RouteMetrics>; NAMES.len()]> = const { OnceCell::new() };
    /// Whether there are some: to ask takes less than to look for them.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

/// Has the loop of this thread count requests.
pub(crate) fn count(metrics: Option<&HttpMetrics>) {
    if let Some(metrics) = metrics {
        let recorder = HttpRecorder::new(metrics);
        // A thread has one loop.
        ROUTES.with(|routes| drop(routes.set(NAMES.map(|name| recorder.route(name)))));
        COUNTS.set(true);
    }
}

/// A request gets a response with this status.
#[inline]
pub(crate) fn record<C: SiteCodec>(head: &RequestHead, status: Status, cx: &Context<'_, C>) {
    record_on(head.path_bytes(), head.method(), status, cx);
}

/// A request for this path, whose head is gone, gets a response with this status.
#[inline]
pub(crate) fn record_on<C: SiteCodec>(path: &[u8], method: Method, status: Status, cx: &Context<'_, C>) {
    if COUNTS.get() {
        count_one(path, method, status, cx.now());
    }
}

/// Apart: it is the same for each kind of connection.
#[inline(never)]
fn count_one(path: &[u8], method: Method, status: Status, now: Instant) {
    ROUTES.with(|routes| {
        if let Some(routes) = routes.get() {
            routes[number(path)].record(method, status.code(), now, now);
        }
    });
}

/// Counts a request that is refused, and answers it.
#[inline(never)]
pub(crate) fn refuse<C: SiteCodec>(head: &RequestHead, response: Response, cx: &mut Context<'_, C>) -> Outcome<C> {
    record(head, response.status(), cx);
    match cx.send(Outgoing::Response(response)) {
        Ok(_) => Outcome::Continue,
        Err(error) => Outcome::fail(error),
    }
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

const NAMES: [&str; 12] = [
    "/plaintext",
    "/json",
    "/",
    "/address",
    "/echo",
    "/sum",
    "/ws",
    "/chat",
    "/chat/ws",
    "/bytes/{length}",
    "/stream/{length}",
    "",
];
const BYTES: usize = 9;
const STREAM: usize = 10;
const NOWHERE: usize = 11;
