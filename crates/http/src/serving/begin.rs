//! `begin`: the way of a request from its head to its function: host, route, connection state, middleware, and counts.
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
use crate::router::Table;
use crate::tls_info::TlsInfo;

/// The host and the route that a request matches.
pub(crate) struct RouteMatch<'t> {
    table: &'t Table,
    function: Result<(&'t Rc<Endpoint>, Option<Route>), Box<Response>>,
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

    /// Whether the request goes on when the client ends its side of the connection.
    #[inline(always)]
    pub(crate) fn keeps_half_closed(&self) -> bool {
        let endpoint = self.endpoint().or(self.table.unrouted.as_ref());
        endpoint.is_some_and(|endpoint| endpoint.keeps_half_closed())
    }
}

/// A request that its middleware has seen.
pub(crate) enum Begin<'t> {
    /// The function of the route is to be called.
    Call { request: Request, endpoint: &'t Rc<Endpoint>, middleware: MiddlewareState },
    /// No route matches, or middleware or a limit of the route has refused the request: the response goes back through the middleware.
    Refuse { response: Response, middleware: MiddlewareState, is_head: bool },
}

/// Begins a request: its middleware sees it, and it is counted. `peer` is the address of the client, and whether the
/// connection is encrypted; `state` is the state of the connection, if the router makes one, and `tls` yields the
/// parameters of the connection.
#[inline(always)]
pub(crate) fn begin<'t>(
    app: &App,
    route: RouteMatch<'t>,
    head: RequestHead,
    (peer, is_secure): (Address, bool),
    state: Option<AnyState>,
    now: Instant,
    tls: impl FnOnce() -> Option<TlsInfo>,
) -> Begin<'t> {
    let RouteMatch { table, function } = route;
    let (endpoint, route) = match function {
        Ok(found) => found,
        Err(response) => {
            let mut request = Request::new(head, peer, is_secure, None);
            add_tls(table, &mut request, tls);
            return refuse(app, table, request, state, *response, now);
        }
    };
    let mut request = Request::new(head, peer, is_secure, route);
    if let Some(state) = state {
        request.set_connection_state(state);
    }
    let mut middleware = MiddlewareState::default();
    // Without any, there is no result to carry: most routes have none.
    if !table.middleware.is_empty() {
        add_tls(table, &mut request, tls);
        let result;
        (middleware, result) = middleware::before(&table.middleware, &mut request, now);
        if let Err(response) = result {
            middleware.count(app.counting.as_ref(), Some(endpoint), request.head().method(), now);
            return Begin::Refuse { response, middleware, is_head: is_head(&request) };
        }
    }
    middleware.count(app.counting.as_ref(), Some(endpoint), request.head().method(), now);
    if let Some(limits) = endpoint.limits.get()
        && let Err(response) = limits.check(&mut request)
    {
        return Begin::Refuse { response, middleware, is_head: is_head(&request) };
    }
    Begin::Call { request, endpoint, middleware }
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
    mut request: Request,
    state: Option<AnyState>,
    response: Response,
    now: Instant,
) -> Begin<'t> {
    if let Some(state) = state {
        request.set_connection_state(state);
    }
    let (mut middleware, result) = middleware::before(&table.middleware, &mut request, now);
    middleware.count(app.counting.as_ref(), None, request.head().method(), now);
    if let Some(endpoint) = &table.unrouted
        && result.is_ok()
    {
        request.set_refusal(response);
        return Begin::Call { request, endpoint, middleware };
    }
    Begin::Refuse { response: result.err().unwrap_or(response), middleware, is_head: is_head(&request) }
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
