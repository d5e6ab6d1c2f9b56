//! Requests through routers with few and with many routes, and the making of a router.

use tidegate_engine::Limits;
use tidegate_http::{Condition, Config, Response, Router};
use tidegate_sys::Socket;

use crate::counted::count_this;
use crate::http::hello;
use crate::turns::{turn, wired};
use crate::wire::address;

/// One of 10 routes of one of `HOSTS` hosts.
pub(crate) fn of_hosts<const HOSTS: usize, const DEPTH: usize>(rounds: usize) {
    let mut router = routes(10);
    for number in 0..HOSTS {
        router = router.host(&format!("host-{number}.example"), routes(10));
    }
    serve(router, if HOSTS == 1 { "host-0.example" } else { "host-777.example" }, 7, DEPTH, rounds);
}

/// One of `ROUTES` routes of a single host.
pub(crate) fn of_paths<const ROUTES: usize, const DEPTH: usize>(rounds: usize) {
    serve(routes(ROUTES), "host.example", ROUTES * 7 / 10, DEPTH, rounds);
}

/// A route of `ROUTES` whose condition does not hold: the request gets the next less specific one.
pub(crate) fn of_conditions<const ROUTES: usize, const DEPTH: usize>(rounds: usize) {
    serve(with_conditions(Router::new(), ROUTES), "host.example", ROUTES * 7 / 10, DEPTH, rounds);
}

/// Makes a router with so many routes in each round, half of them with conditions.
pub(crate) fn made<const ROUTES: usize>(rounds: usize) {
    for _ in 0..rounds {
        let router = count_this(|| with_conditions(routes(ROUTES / 2), ROUTES / 2));
        drop(router);
    }
}

fn routes(count: usize) -> Router {
    (0..count).fold(Router::new(), |router, number| router.get(&pattern(number), hello))
}

/// Adds routes whose conditions do not hold, and a less specific one whose condition does.
fn with_conditions(router: Router, count: usize) -> Router {
    let router = router.any_if("/{*rest}", [Condition::header("Accept")], hello);
    (0..count).fold(router, |router, number| {
        let canary = [Condition::header_equals("X-Canary", "1")];
        router.any_if(&pattern(number), canary, Response::new)
    })
}

fn pattern(number: usize) -> String {
    format!("/service-{number:05}/items/{{id}}")
}

fn serve(router: Router, host: &str, number: usize, depth: usize, rounds: usize) {
    let path = pattern(number).replace("{id}", "42");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n\r\n");
    let (mut event_loop, peer) = wired(request.repeat(depth).into_bytes(), 0);
    let (codec, handler) = Config::new().connections(router)();
    let adopted = event_loop.adopt(Socket::Simulated(0), &address(), Limits::default(), codec, handler);
    adopted.expect("it takes any stream");
    turn(&mut event_loop, &peer, depth, rounds);
}
