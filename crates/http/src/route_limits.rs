//! `route`: the limits of one route, in place of those of its server.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_engine::{Account, ConnectionCharge};
use tidegate_http_message::BodyError;
use tidegate_http_message::exchange::{Exchange, Piece};
use tidegate_http1::Outgoing;
use tidegate_sys::Address;

use crate::endpoint::{Endpoint, RequestFunction};
use crate::limits::Limits;
use crate::middleware::Middleware;
use crate::request::Request;
use crate::response::Response;
use crate::serving::too_long;

/// Gives a function limits of its own.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::ConnectionRate;
/// use tidegate::http::{Limits, RateLimit, Router, Server, route};
///
/// let mut limits = Limits::default();
/// limits.body_bytes_max = 1 << 30; // the most that a route may allow
/// let searches = RateLimit::new(ConnectionRate::per_second(10).burst(20)); // of all loops together
/// let router = move || {
///     Router::new()
///         .body_bytes_max(1024 * 1024)
///         .get("/search", route(|| "found").rate_limit(searches.clone()).timeout(Duration::from_secs(2)))
///         .post("/upload", route(async |mut body: tidegate::http::Body| {
///             let mut bytes = 0;
///             while let Some(piece) = body.next().await {
///                 bytes += piece?.len();
///             }
///             Ok::<_, tidegate::http::BodyError>(bytes.to_string())
///         }).body_bytes_max(1 << 30))
/// };
/// let server = Server::bind("127.0.0.1:0")?.limits(limits).start(router)?;
/// # server.drain(Duration::ZERO);
/// # Ok::<(), tidegate::StartError>(())
/// ```
pub fn route<F>(function: F) -> RouteFunction<F> {
    RouteFunction { function, limits: RouteLimits::default() }
}

/// A function with limits of its own; see [`route`].
#[must_use = "it has to be given to a router"]
pub struct RouteFunction<F> {
    function: F,
    limits: RouteLimits,
}

/// Marks functions with limits of their own.
#[derive(Debug)]
pub struct WithRouteLimits<M>(M);

impl<F> RouteFunction<F> {
    /// Bytes of a request body; beyond it 413. It takes the place of
    /// [`Router::body_bytes_max`](crate::Router::body_bytes_max), and of
    /// [`Limits::collected_body_bytes_max`] where the function receives the body whole.
    /// [`Limits::body_bytes_max`] is the most that counts.
    pub fn body_bytes_max(self, bytes: u64) -> Self {
        self.limits.body_bytes_max.set(Some(bytes));
        self
    }

    /// From the last piece of a request that was received to the head of the response; beyond it 503. It takes the place
    /// of [`Router::timeout`](crate::Router::timeout) and [`Limits::request_timeout`]. A function that is not async runs to its end.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.limits.timeout.set(Some(timeout));
        self
    }

    /// Bounds the rate of requests: `limit` sees each one, and refuses those beyond it, before the body of the request is
    /// received and before async middleware. Clones of a `RateLimit` share their counts, so that routes and loops can
    /// have one together.
    pub fn rate_limit(mut self, limit: impl Middleware) -> Self {
        self.limits.rate = Some(Rc::new(limit));
        self
    }
}

impl<S, M, F: RequestFunction<S, M>> RequestFunction<S, WithRouteLimits<M>> for RouteFunction<F> {
    fn into_endpoint(self, state: Rc<S>) -> Endpoint {
        let mut endpoint = self.function.into_endpoint(state);
        endpoint.limits = Rc::new(self.limits).into();
        endpoint
    }
}

/// The limits of a route; those that are not set are the server's.
#[derive(Default)]
pub(crate) struct RouteLimits {
    body_bytes_max: Cell<Option<u64>>,
    timeout: Cell<Option<Duration>>,
    rate: Option<Rc<dyn Middleware>>,
}

impl RouteLimits {
    /// The response to a request beyond a limit.
    #[inline(never)]
    pub(crate) fn check(&self, request: &mut Request) -> Result<(), Response> {
        if let Some(rate) = &self.rate {
            rate.before(request)?;
        }
        let most = self.body_bytes_max.get();
        if most.zip(request.content_length()).is_some_and(|(most, length)| length > most) {
            return Err(too_long());
        }
        Ok(())
    }
}

impl Endpoint {
    /// Bounds the body, unless the route has a bound.
    pub(crate) fn settle_body_bytes_max(&self, bytes: u64) {
        let most = &self.limits.get_or_init(Rc::default).body_bytes_max;
        most.set(most.get().or(Some(bytes)));
    }

    /// Bounds the time for the response, unless the route has a bound.
    pub(crate) fn settle_timeout(&self, timeout: Duration) {
        let own = &self.limits.get_or_init(Rc::default).timeout;
        own.set(own.get().or(Some(timeout)));
    }

    /// The bytes of a body, if the route has a bound.
    pub(crate) fn body_bytes_max(&self) -> Option<u64> {
        self.limits.get()?.body_bytes_max.get()
    }

    /// The bytes of a body that is collected.
    pub(crate) fn collected_body_bytes_max(&self, limits: &Limits) -> usize {
        let of_route = self.body_bytes_max().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        of_route.unwrap_or(limits.collected_body_bytes_max)
    }

    /// The time for the response.
    pub(crate) fn timeout(&self, limits: &Limits) -> Duration {
        self.limits.get().and_then(|limits| limits.timeout.get()).unwrap_or(limits.request_timeout)
    }
}

/// An exchange that ends the body of its request with an error when it is too long.
pub(crate) struct BoundedExchange {
    exchange: Rc<dyn Exchange>,
    bytes_left: Cell<u64>,
}

impl BoundedExchange {
    pub(crate) fn new(exchange: Rc<dyn Exchange>, bytes_max: u64) -> Self {
        Self { exchange, bytes_left: Cell::new(bytes_max) }
    }
}

impl Exchange for BoundedExchange {
    fn is_draining(&self) -> bool {
        self.exchange.is_draining()
    }

    fn poll_body(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, BodyError>> {
        let polled = self.exchange.poll_body(number, cx);
        if let Poll::Ready(Ok(Some(Piece::Data(data)))) = &polled {
            let Some(left) = self.bytes_left.get().checked_sub(data.len() as u64) else {
                return Poll::Ready(Err(BodyError::TooLong));
            };
            self.bytes_left.set(left);
        }
        polled
    }

    fn poll_ready(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.exchange.poll_ready(number, cx)
    }

    fn poll_flush(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.exchange.poll_flush(number, cx)
    }

    fn send(&self, number: u32, message: Outgoing) -> Result<(), BodyError> {
        self.exchange.send(number, message)
    }

    fn account(&self, number: u32) -> Option<Account> {
        self.exchange.account(number)
    }

    fn hand_over(&self, number: u32, piece: &[u8]) {
        self.exchange.hand_over(number, piece);
    }

    fn keep(&self, number: u32, charge: ConnectionCharge) {
        self.exchange.keep(number, charge);
    }

    fn destination(&self, number: u32) -> Option<Address> {
        self.exchange.destination(number)
    }
}

impl<F> fmt::Debug for RouteFunction<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RouteLimits { body_bytes_max, timeout, .. } = &self.limits;
        f.debug_struct("RouteFunction").field("body_bytes_max", body_bytes_max).field("timeout", timeout).finish()
    }
}
