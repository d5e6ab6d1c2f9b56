//! `Middleware`: code that all requests of a router, and their responses, pass through.

mod access_log;
mod basic_auth;
mod concurrency_limit;
mod cors;
mod debug_pages;
mod early_data;
mod error_pages;
mod network_rules;
#[cfg(feature = "passwords")]
mod passwords;
mod rate_limit;
mod request_id;
mod request_spans;
mod response_fields;
mod security_fields;
mod shared_rate_limit;
mod tls_infos;
mod trace_context;
mod trusted_proxies;
mod wrap;

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::StatusCode;
use tidegate_engine::{CloseReason, task};
use tidegate_http_message::TraceContext;
use tidegate_http1 as http1;
use tidegate_metrics::TraceIds;
use tidegate_sys::Address;

pub use self::access_log::{AccessLog, LogFormat, LogTemplate, LogTemplateError};
pub use self::basic_auth::BasicAuth;
pub use self::concurrency_limit::ConcurrencyLimit;
pub use self::cors::{Cors, CorsBuilder, CorsError};
pub use self::debug_pages::DebugPages;
pub use self::early_data::EarlyData;
pub use self::error_pages::{ErrorPage, ErrorPages, PageText};
pub use self::network_rules::NetworkRules;
#[cfg(feature = "passwords")]
pub use self::passwords::{Passwords, PasswordsError, UserName};
pub use self::rate_limit::{RateKey, RateLimit, address_key};
pub use self::request_id::RequestIds;
pub use self::request_spans::{RequestSpan, RequestSpans};
pub use self::response_fields::ResponseFields;
pub use self::security_fields::SecurityFields;
pub use self::shared_rate_limit::{OfRateLimit, RateGrant, RateStore, SharedRateLimit, TakeTokens};
pub use self::tls_infos::TlsInfos;
pub use self::trace_context::TraceContexts;
pub use self::wrap::{AsyncMiddleware, Next, NextResponse, SharedWrapper, Wrapper};

use crate::client_address::{ClientAddress, TrustedProxies};
use crate::counting::{RequestCount, RequestCounter};
use crate::endpoint::{BoxResponseFuture, Call, Endpoint, InterimHandler};
use crate::request::Request;
use crate::response::Response;
use crate::serving::panicked;

/// Code that all requests of a router, and their responses, pass through; see [`Router::with`](crate::Router::with). It is
/// not async; [`Router::wrap`](crate::Router::wrap) adds middleware that waits.
///
/// ```
/// use tidegate::http::{Middleware, Request, RequestInfo, Response, Router, StatusCode, IntoResponse};
///
/// /// Refuses requests without the right token.
/// struct Token(&'static str);
///
/// impl Middleware for Token {
///     fn before(&self, request: &mut Request) -> Result<(), Response> {
///         if request.header("authorization") == Some(self.0.as_bytes()) {
///             return Ok(());
///         }
///         Err(StatusCode::UNAUTHORIZED.into_response())
///     }
/// }
///
/// let router = Router::new().get("/", || "secret").with(Token("Bearer 7"));
/// # drop(router);
/// ```
pub trait Middleware: 'static {
    /// Sees the request before its function. Its body is not there yet.
    ///
    /// # Errors
    /// A response in place of the function's; the middleware that was added before still sees it.
    fn before(&self, _request: &mut Request) -> Result<(), Response> {
        Ok(())
    }

    /// Sees the response before it is sent: also the 503 in place of one that is late, and the 500 of a function that
    /// panics.
    fn after(&self, _request: &RequestInfo, _response: &mut Response) {}

    /// Learns of a request that the codec has refused: it was malformed, too large or too late, and no function and no
    /// other method sees it. Middleware of the outermost router does; which host it was for is not known.
    fn refused(&self, _request: &RefusedRequest) {}

    /// Learns that the exchange ended before the response: mostly the client has left. `before` has seen the request, and
    /// `after` will not.
    fn abandoned(&self, _request: &RequestInfo) {}

    /// Whether requests on TLS connections have a [`TlsInfo`](crate::TlsInfo) among their extensions for this middleware,
    /// which costs an allocation.
    fn reads_tls(&self) -> bool {
        false
    }

    /// Whether [`RequestInfo::elapsed`] reads the clock of the system when it begins, which costs some 20 ns, and so knows
    /// the time of functions that do not wait. Without it the time is that of the loop, which stands still within a turn.
    fn measures_time(&self) -> bool {
        false
    }

    /// The proxies that it trusts to name the client of a request, for requests that the codec has refused.
    #[doc(hidden)]
    fn trusted_proxies(&self) -> Option<&TrustedProxies> {
        None
    }
}

/// A request whose function has it, as middleware sees it afterwards: everything but the body.
#[derive(Debug)]
pub struct RequestInfo {
    request: Request,
    began: Instant,
    /// The same by the clock of the system, if middleware measures times.
    measured: Option<Instant>,
}

impl RequestInfo {
    /// The head of the request, without its body.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// When the head had arrived.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// How long the request has been here; see [`Middleware::measures_time`].
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let by_loop = now().saturating_duration_since(self.began);
        self.measured.map_or(by_loop, |measured| by_loop.max(measured.elapsed()))
    }

    fn of(request: &Request, began: Instant, measured: Option<Instant>) -> Self {
        Self { request: request.without_body(), began, measured }
    }
}

/// The time of the loop's turn; the present time where no loop runs, as while a loop that ends drops its connections.
pub(crate) fn now() -> Instant {
    if task::can_spawn() { task::now() } else { Instant::now() }
}

/// A request that the codec has refused, and has answered.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RefusedRequest {
    /// The address of the peer.
    pub peer: Address,
    /// The client: the peer, unless that is one of the [`TrustedProxies`] of the router, whose fields are not known.
    pub client: ClientAddress,
    /// The status of the response.
    pub status: StatusCode,
    /// The reason, in words.
    pub reason: &'static str,
    /// The beginning of the request's first line, up to 256 bytes as they came; empty if it is not known, as in HTTP/2.
    pub line: Box<[u8]>,
}

/// The request that the codec has refused just now, if that is the reason.
#[cold]
pub(crate) fn refusal_of(reason: &CloseReason) -> Option<http1::Refusal> {
    let CloseReason::Protocol(fault) = reason else { return None };
    http1::Refusal::take(fault)
}

/// Passes a request that the codec has refused to middleware.
#[cold]
pub(crate) fn refused(middleware: &MiddlewareList, refusal: http1::Refusal, peer: Address) {
    pass_refused(middleware, refusal.status, refusal.reason, refusal.line, peer);
}

/// Passes a request to middleware that an HTTP/2 connection has refused just now.
#[cold]
pub(crate) fn refused_of_http2(middleware: &MiddlewareList, status: http1::Status, peer: Address) {
    pass_refused(middleware, status, "the head of the request is too large", Box::default(), peer);
}

fn pass_refused(
    middleware: &MiddlewareList,
    status: http1::Status,
    reason: &'static str,
    line: Box<[u8]>,
    peer: Address,
) {
    let Ok(status) = StatusCode::from_u16(status.code()) else { return };
    let trusted = middleware.iter().find_map(|one| one.trusted_proxies());
    let client = trusted.map_or_else(|| ClientAddress::of_peer(&peer), |trusted| trusted.client_without_fields(&peer));
    let request = RefusedRequest { peer, client, status, reason, line };
    middleware.iter().for_each(|one| one.refused(&request));
}

/// Middleware that has seen a request, and has yet to see its response.
#[derive(Default)]
pub(crate) struct MiddlewareState {
    run: Option<Box<MiddlewareRun>>,
    counted: Option<RequestCount>,
}

struct MiddlewareRun {
    info: RequestInfo,
    /// That of the router.
    middleware: MiddlewareList,
    /// How many of them have seen the request.
    count: usize,
    /// They have seen the response as well, or need not.
    is_over: Cell<bool>,
}

/// The middleware of a router, in its order.
pub(crate) type MiddlewareList = Rc<[Rc<dyn Middleware>]>;

/// Passes a request through middleware. An error is a response in place of the function's.
#[inline]
pub(crate) fn before(
    middleware: &MiddlewareList,
    request: &mut Request,
    now: Instant,
) -> (MiddlewareState, Result<(), Response>) {
    if middleware.is_empty() { (MiddlewareState::default(), Ok(())) } else { before_some(middleware, request, now) }
}

#[inline(never)]
fn before_some(
    middleware: &MiddlewareList,
    request: &mut Request,
    now: Instant,
) -> (MiddlewareState, Result<(), Response>) {
    let mut count = 0;
    let mut result = Ok(());
    let measured = middleware.iter().any(|one| one.measures_time()).then(Instant::now);
    for one in &**middleware {
        result = one.before(request);
        if result.is_err() {
            break;
        }
        count += 1;
    }
    let info = RequestInfo::of(request, now, measured);
    request.hide_coding();
    let run = MiddlewareRun { info, middleware: middleware.clone(), count, is_over: Cell::new(false) };
    (MiddlewareState { run: Some(Box::new(run)), counted: None }, result)
}

impl MiddlewareState {
    /// The same, which no longer keeps the memory of the loop that the request was received into.
    pub(crate) fn detach(mut self) -> Self {
        if let Some(run) = &mut self.run {
            run.info.request.detach_head();
        }
        self
    }

    /// Neither a request nor its middleware keeps the memory of the loop any longer. Both share the head, unless
    /// middleware has another one.
    pub(crate) fn detach_with(mut self, request: Request) -> (Request, Self) {
        let shares = self.run.as_ref().is_some_and(|run| run.info.request.has_head_of(&request));
        let request = request.detach();
        match &mut self.run {
            Some(run) if shares => run.info.request.share_head_of(&request),
            _ => self = self.detach(),
        }
        (request, self)
    }

    /// Passes the response back.
    #[inline]
    pub(crate) fn after(&self, response: &mut Response) {
        if let Some(run) = &self.run {
            run.after(response);
        }
        if let Some(counted) = &self.counted {
            counted.record(response, || self.run.as_ref().and_then(|run| run.recorded_trace()));
        }
    }
}

impl MiddlewareState {
    /// Middleware sees the response that the codec has sent: it has refused the body of the request.
    #[cold]
    pub(crate) fn after_refusal(&mut self, refusal: &http1::Refusal) {
        self.forget_count();
        self.after(&mut Response::of_error(refusal.status).caused_by(refusal.reason));
    }

    /// Does not count the request: its response is not sent.
    pub(crate) fn forget_count(&mut self) {
        self.counted = None;
    }

    /// Counts the request when it has its response, if requests are counted. `endpoint` is its function, if it has one.
    #[inline]
    pub(crate) fn count(
        &mut self,
        counting: Option<&RequestCounter>,
        endpoint: Option<&Endpoint>,
        method: http1::Method,
        began: Instant,
    ) {
        self.counted = counting.map(|counting| counting.begin(endpoint, method, began));
    }
}

impl MiddlewareRun {
    #[inline(never)]
    fn after(&self, response: &mut Response) {
        self.is_over.set(true);
        for one in self.middleware[..self.count].iter().rev() {
            one.after(&self.info, response);
        }
    }
}

impl MiddlewareRun {
    /// The trace of the request, if it is recorded.
    #[cold]
    fn recorded_trace(&self) -> Option<TraceIds> {
        let context = self.info.request.extensions().get::<TraceContext>()?;
        context.is_sampled().then(|| TraceIds { trace: context.trace_bytes(), span: context.span_bytes() })
    }
}

impl Drop for MiddlewareRun {
    fn drop(&mut self) {
        if self.is_over.get() {
            return;
        }
        match IN_PLACE.try_with(Cell::take).ok().flatten() {
            Some(mut response) => {
                self.after(&mut response);
                IN_PLACE.set(Some(response));
            }
            None => self.middleware[..self.count].iter().rev().for_each(|one| one.abandoned(&self.info)),
        }
    }
}

thread_local! {
    /// The response in place of that of a function, while the function is dropped.
    static IN_PLACE: Cell<Option<Response>> = const { Cell::new(None) };
}

/// Drops a function that has not responded, by `drop_function`. Middleware within it sees this response in place of the
/// function's.
#[cold]
pub(crate) fn respond_in_place(response: Response, drop_function: impl FnOnce()) -> Response {
    IN_PLACE.set(Some(response));
    drop_function();
    IN_PLACE.take().unwrap_or_else(|| Response::of_error(http1::Status::INTERNAL_SERVER_ERROR))
}

/// A function that middleware is around. If it panics, the middleware sees the response, a 500.
struct CaughtFunction(BoxResponseFuture);

impl Future for CaughtFunction {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        caught(|| self.0.as_mut().poll(cx), Poll::Ready)
    }
}

/// Calls a function that middleware is around.
#[inline]
fn caught<T>(call: impl FnOnce() -> T, respond: impl FnOnce(Response) -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| respond(panicked()))
}

/// An endpoint with middleware of its own.
pub(crate) fn around(endpoint: Rc<Endpoint>, middleware: MiddlewareList) -> Endpoint {
    let (body, half_close, is_gateway) = (endpoint.body, endpoint.half_close.get(), endpoint.is_gateway);
    let (collects_late, limits) = (endpoint.collects_late, endpoint.limits.clone());
    let chosen_fields = endpoint.chosen_fields.clone();
    let call = match endpoint.call {
        Call::Sync(_) => sync_around(endpoint, middleware),
        Call::Async(_) => async_around(endpoint, middleware),
        Call::Polled(_) => polled_around(endpoint, middleware),
        Call::Interim(_) => interim_around(endpoint, middleware),
    };
    let has_middleware = true;
    let around =
        Endpoint { is_gateway, collects_late, limits, has_middleware, chosen_fields, ..Endpoint::new(call, body) };
    around.half_close.set(half_close);
    around
}

fn sync_around(endpoint: Rc<Endpoint>, middleware: MiddlewareList) -> Call {
    Call::Sync(Box::new(move |mut request| {
        let (state, result) = before(&middleware, &mut request, task::now());
        let mut response = match (result, &endpoint.call) {
            (Ok(()), Call::Sync(call)) => match endpoint.refusal_of(&mut request) {
                Some(response) => response,
                None => caught(|| call(request), |response| response),
            },
            (Ok(()), _) => unreachable!("`around` has looked"),
            (Err(response), _) => response,
        };
        state.after(&mut response);
        response
    }))
}

fn async_around(endpoint: Rc<Endpoint>, middleware: MiddlewareList) -> Call {
    Call::Async(Box::new(move |request, cx| {
        let mut request = request.detach();
        let (state, result) = before(&middleware, &mut request, task::now());
        let polled = match (result, &endpoint.call) {
            (Ok(()), Call::Async(call)) => match endpoint.refusal_of(&mut request) {
                Some(response) => Ok(response),
                None => caught(|| call(request, cx), Ok),
            },
            (Ok(()), _) => unreachable!("`around` has looked"),
            (Err(response), _) => Ok(response),
        };
        after_polled(polled, state)
    }))
}

/// Passes the response of a function back that its call has polled.
fn after_polled(
    polled: Result<Response, BoxResponseFuture>,
    state: MiddlewareState,
) -> Result<Response, BoxResponseFuture> {
    match polled {
        Ok(mut response) => {
            state.after(&mut response);
            Ok(response)
        }
        Err(responding) => {
            let state = state.detach();
            Err(Box::pin(async move {
                let mut response = CaughtFunction(responding).await;
                state.after(&mut response);
                response
            }))
        }
    }
}

fn interim_around(endpoint: Rc<Endpoint>, middleware: MiddlewareList) -> Call {
    let (needs_destination, is_pipelined) = match &endpoint.call {
        Call::Interim(function) => (function.needs_destination, function.is_pipelined),
        _ => unreachable!("`around` has looked"),
    };
    let call = Box::new(move |mut request: Request, interims| -> BoxResponseFuture {
        let (middleware, endpoint) = (middleware.clone(), endpoint.clone());
        Box::pin(async move {
            let (state, result) = before(&middleware, &mut request, task::now());
            let mut response = match (result, &endpoint.call) {
                (Ok(()), Call::Interim(function)) => match endpoint.refusal_of(&mut request) {
                    Some(response) => response,
                    None => CaughtFunction((function.call)(request, interims)).await,
                },
                (Ok(()), _) => unreachable!("`around` has looked"),
                (Err(response), _) => response,
            };
            state.after(&mut response);
            response
        })
    });
    // Middleware would see a request twice that is not answered at once.
    Call::Interim(InterimHandler { call, needs_destination, is_pipelined, at_once: None })
}

fn polled_around(endpoint: Rc<Endpoint>, middleware: MiddlewareList) -> Call {
    Call::Polled(Box::new(move |mut request, body, cx| {
        // Middleware may decode the body.
        if body.length() != Some(0) {
            request.set_body(body);
        }
        let (state, result) = before(&middleware, &mut request, task::now());
        let body = request.take_body();
        let polled = match (result, &endpoint.call) {
            (Ok(()), Call::Polled(call)) => match endpoint.refusal_of(&mut request) {
                Some(response) => Ok(response),
                None => caught(|| call(request, body, cx), Ok),
            },
            (Ok(()), _) => unreachable!("`around` has looked"),
            (Err(response), _) => Ok(response),
        };
        after_polled(polled, state)
    }))
}

impl Request {
    /// The same request with an empty body.
    fn without_body(&self) -> Self {
        let mut other = Self::new(self.head().clone(), self.peer().clone(), self.is_secure(), self.route_parts());
        other.copy_values_of(self);
        other
    }
}
