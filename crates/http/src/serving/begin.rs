//! `RouteMatch` and `RoutedRequest`: the way of a request from its head to its function: host, route, connection state,
//! middleware, and counts.
//!
//! The way is the same for a request that the handler answers within a dispatch (`inline.rs`), for a pipelined one
//! (`pipeline.rs`), and for one that a task has received (`task.rs`). The three keep the state of the connection in different
//! places, and call the function in different ways.

use std::rc::Rc;
use std::time::Instant;

use tidegate_engine::Context;
use tidegate_http1::{Method, RequestHead};
use tidegate_sys::Address;

use crate::app::App;
use crate::codec::HttpCodec;
use crate::endpoint::Endpoint;
use crate::middleware::{self, MiddlewareState};
use crate::request::{AnyState, Request};
use crate::response::Response;
use crate::route::Route;
use crate::table::{Table, Unmatched};
use crate::tls_info::TlsInfo;

/// The host and the route that a request matches.
pub(crate) struct RouteMatch<'t> {
    table: &'t Table,
    function: Result<(&'t Rc<Endpoint>, Option<Route>), Unmatched<'t>>,
}

impl<'t> RouteMatch<'t> {
    #[inline(always)]
    pub(crate) fn of(table: &'t Table, head: &RequestHead, peer: impl Fn() -> Address) -> Self {
        let table = table.of_host(head);
        Self { table, function: table.find_for(head, peer) }
    }

    /// The function of the route, if there is one.
    #[inline(always)]
    pub(crate) fn endpoint(&self) -> Option<&'t Rc<Endpoint>> {
        self.function.as_ref().ok().map(|(endpoint, _)| *endpoint)
    }

    /// The request of the match, and its function.
    #[inline(always)]
    pub(crate) fn into_request(
        self,
        head: RequestHead,
        (peer, is_secure): (Address, bool),
    ) -> (Request, RoutedRequest<'t>) {
        let (function, route) = match self.function {
            Ok((endpoint, route)) => (Ok(endpoint), route),
            Err(unmatched) => (Err(unmatched), None),
        };
        (Request::new(head, peer, is_secure, route), RoutedRequest { table: self.table, function })
    }

    /// Whether the request goes on when the client ends its side of the connection.
    #[inline(always)]
    pub(crate) fn keeps_half_closed(&self) -> bool {
        let endpoint = match &self.function {
            Ok((endpoint, _)) => Some(*endpoint),
            Err(unmatched) => unmatched.endpoint.or(self.table.unrouted.as_ref()),
        };
        endpoint.is_some_and(|endpoint| endpoint.keeps_half_closed())
    }
}

/// A request whose middleware, counts and limits are due: its function, or the router's response to a request without one.
pub(crate) struct RoutedRequest<'t> {
    table: &'t Table,
    function: Result<&'t Rc<Endpoint>, Unmatched<'t>>,
}

impl<'t> RoutedRequest<'t> {
    /// Begins a request: its middleware sees it, and it is counted. The result is the function to call, or the refusal in
    /// place of its response: no route matches, or middleware or a limit of the route has refused the request. Either
    /// response goes back through `middleware`. `state` is the state of the connection, if the router makes one, and `tls`
    /// yields the parameters of the connection.
    ///
    /// The request and the middleware stay where the caller has them, and the result is two words: a value of a hundred bytes
    /// that passes through a result is copied into it and out of it.
    #[inline(always)]
    pub(crate) fn begin(
        self,
        app: &App,
        (request, middleware): (&mut Request, &mut MiddlewareState),
        state: Option<AnyState>,
        now: Instant,
        tls: impl FnOnce() -> Option<TlsInfo>,
    ) -> Result<&'t Rc<Endpoint>, Box<RouteRefusal>> {
        let Self { table, function } = self;
        if let Some(state) = state {
            request.set_connection_state(state);
        }
        let endpoint = match function {
            Ok(endpoint) => endpoint,
            Err(unmatched) => {
                add_tls(table, request, tls);
                return refuse(app, table, (request, middleware), unmatched, now);
            }
        };
        // Without any, there is no result to carry: most routes have none.
        let mut result = Ok(());
        if !table.middleware.is_empty() {
            add_tls(table, request, tls);
            result = before(table, request, middleware, now);
        }
        middleware.count(app.counting.as_ref(), Some(endpoint), request.head().method(), now);
        result?;
        if let Some(limits) = endpoint.limits.get() {
            // The rate bounds the work of the route's middleware, such as the check of a password.
            limits.check_rate(request).map_err(|response| Box::<RouteRefusal>::from(*response))?;
            limits.check_length(request).map_err(|response| RouteRefusal::new(*response, endpoint))?;
        }
        Ok(endpoint)
    }
}

/// A response in place of that of a function, which was not called.
pub(crate) struct RouteRefusal {
    response: Response,
    /// The function, if middleware within it has yet to see the request.
    endpoint: Option<Rc<Endpoint>>,
}

impl RouteRefusal {
    #[cold]
    pub(crate) fn new(response: Response, endpoint: &Rc<Endpoint>) -> Box<Self> {
        Box::new(Self { response, endpoint: endpoint.has_middleware.then(|| endpoint.clone()) })
    }

    /// The function to call, whose middleware finds the response in the request. The error is the response, if there is no such
    /// middleware.
    pub(crate) fn into_function(self, request: &mut Request) -> Result<Rc<Endpoint>, Response> {
        let Some(endpoint) = self.endpoint else { return Err(self.response) };
        request.refuse(self.response);
        Ok(endpoint)
    }
}

impl From<Response> for Box<RouteRefusal> {
    fn from(response: Response) -> Self {
        Box::new(RouteRefusal { response, endpoint: None })
    }
}

/// Passes a request through middleware. An error is a response in place of the function's.
#[inline(never)]
fn before(
    table: &Table,
    request: &mut Request,
    middleware: &mut MiddlewareState,
    now: Instant,
) -> Result<(), Box<RouteRefusal>> {
    let result;
    (*middleware, result) = middleware::before(&table.middleware, request, now);
    Ok(result?)
}

/// Adds the parameters of the TLS connection, for middleware that reads them.
#[inline]
fn add_tls(table: &Table, request: &mut Request, tls: impl FnOnce() -> Option<TlsInfo>) {
    if request.is_secure()
        && table.reads_tls()
        && let Some(tls) = tls()
    {
        request.extensions_mut().insert(tls);
    }
}

/// Begins a request that has no function. Middleware may respond in place of the router.
#[cold]
fn refuse<'t>(
    app: &App,
    table: &'t Table,
    (request, middleware): (&mut Request, &mut MiddlewareState),
    unmatched: Unmatched<'t>,
    now: Instant,
) -> Result<&'t Rc<Endpoint>, Box<RouteRefusal>> {
    let result = before(table, request, middleware, now);
    middleware.count(app.counting.as_ref(), None, request.head().method(), now);
    result?;
    let Unmatched { response, endpoint } = unmatched;
    match endpoint.or(table.unrouted.as_ref()) {
        Some(endpoint) => {
            request.set_refusal(*response);
            Ok(endpoint)
        }
        None => Err((*response).into()),
    }
}

/// The address of the client, and whether the connection is encrypted.
#[inline(always)]
pub(crate) fn peer_of<C: HttpCodec>(cx: &Context<'_, C>) -> (Address, bool) {
    (peer(cx), cx.codec().is_secure())
}

/// The address of the client.
pub(crate) fn peer<C: HttpCodec>(cx: &Context<'_, C>) -> Address {
    cx.codec().reported_peer().unwrap_or_else(|| cx.peer())
}

pub(crate) fn is_head(request: &Request) -> bool {
    request.head().method() == Method::Head
}
