//! Complete turns with requests that the layer for applications answers: beside those of `turns.rs`.

use std::future::poll_fn;
use std::task::Poll;

use tidegate_engine::Limits;
use tidegate_http::{Config, ContentType, Response, Router};
use tidegate_sys::Socket;

use crate::codecs::REQUEST;
use crate::turns::{turn, wired};
use crate::wire::address;

/// `DEPTH` requests in one turn, answered by one function that is not async.
pub(crate) fn sync<const DEPTH: usize>(rounds: usize) {
    serve(Router::new().fallback(hello), DEPTH, rounds);
}

/// The same, found by a router.
pub(crate) fn routed<const DEPTH: usize>(rounds: usize) {
    let router = Router::new().get("/", || "").get("/plaintext", hello).get("/tides/{harbour}", || "");
    serve(router, DEPTH, rounds);
}

/// The same by an async function that is complete when it is polled first.
pub(crate) fn async_<const DEPTH: usize>(rounds: usize) {
    serve(Router::new().get("/plaintext", async || hello()), DEPTH, rounds);
}

/// The same by an async function that waits once: it is complete when it is polled again.
pub(crate) fn awaits<const DEPTH: usize>(rounds: usize) {
    awaits_polls::<DEPTH>(1, rounds);
}

/// The same by an async function that its task waits for: it is woken again and again before it is complete.
pub(crate) fn suspends<const DEPTH: usize>(rounds: usize) {
    awaits_polls::<DEPTH>(4, rounds);
}

fn awaits_polls<const DEPTH: usize>(waits: u32, rounds: usize) {
    let waits = async move || {
        for _ in 0..waits {
            yield_once().await;
        }
        hello()
    };
    serve(Router::new().get("/plaintext", waits), DEPTH, rounds);
}

fn serve(router: Router, depth: usize, rounds: usize) {
    let (mut event_loop, peer) = wired(REQUEST.repeat(depth), 0);
    let (codec, handler) = Config::new().connections(router)();
    let adopted = event_loop.adopt(Socket::Simulated(0), &address(), Limits::default(), codec, handler);
    adopted.expect("it takes any stream");
    turn(&mut event_loop, &peer, depth, rounds);
}

fn hello() -> Response {
    Response::new().content_type(ContentType::TEXT).body("Hello, World!")
}

async fn yield_once() {
    let mut has_yielded = false;
    let wait = poll_fn(move |cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    wait.await;
}
