//! `ServiceFunction`: a service as a function of the HTTP layer.

use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tidegate_http::{Body, BoxResponseFuture, Endpoint, IntoResponse, Request, RequestFunction, Response};
use tower_service::Service;

use crate::request::{Extend, Requests};
use crate::request_body::{RequestBody, ServiceBody};
use crate::response::{Exchange, Responses, Slot, failed};

/// A service of `http::Request` with a body `B`, whose response has any body.
///
/// It is implemented for all of them: `Service<http::Request<B>, Response = http::Response<R>>` with `R: http_body::Body`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service from `http::Request<{B}>` to `http::Response`",
    note = "a `Router` of axum without missing state is one: call `with_state` first"
)]
pub trait TowerService<B = RequestBody>:
    Service<http::Request<B>, Response = http::Response<Self::ResponseBody>, Error: Into<Box<dyn Error + Send + Sync>>>
{
    /// The body of its responses.
    type ResponseBody: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static;
}

impl<S, B, R> TowerService<B> for S
where
    S: Service<http::Request<B>, Response = http::Response<R>, Error: Into<Box<dyn Error + Send + Sync>>>,
    R: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    type ResponseBody = R;
}

/// A service as a function of a [`Router`](tidegate_http::Router) or a [`Server`](tidegate_http::Server), for all
/// requests or some paths; made by [`function`]. Its requests have the body `B`.
pub struct ServiceFunction<S, B = RequestBody> {
    service: S,
    extend: Option<Extend>,
    keeps_connect: bool,
    body: PhantomData<fn() -> B>,
}

/// A service as a function of a [`Router`](tidegate_http::Router) or a [`Server`](tidegate_http::Server), for all
/// requests or some paths.
///
/// Each loop has a clone of the service. A service that fails is answered with 500, and the error is logged.
///
/// A WebSocket that a client opens over HTTP/2, by extended CONNECT (RFC 8441), reaches the service as the HTTP/1.1 GET
/// that it replaces, so a route by GET accepts both; see [`ServiceFunction::with_extended_connect`].
///
/// Layers with a state, such as a limit of concurrency, have one state for all loops: with the feature `axum`, an axum
/// `Router` or `MethodRouter` gets their state, `with_state(())`, when this is called. Without the feature call it
/// yourself: a router that lacks it makes the layers of its routes anew for each request.
///
/// ```
/// use axum::routing::get;
/// use tidegate::http::{Config, Router};
/// use tidegate::tower;
/// use tidegate_testkit::Embedded;
///
/// let pages = axum::Router::new().route("/tides", get(|| async { "rising" }));
/// let router = Router::new().get("/", || "ours").fallback(tower::function(pages));
/// let (codec, handler) = Config::new().connections(router)();
/// let mut pipe = Embedded::new(codec, handler);
/// pipe.receive(b"GET /tides HTTP/1.1\r\nHost: sea\r\n\r\n");
/// assert!(pipe.take_written().ends_with(b"\r\n\r\nrising"));
/// ```
pub fn function<S>(service: S) -> ServiceFunction<S>
where
    S: TowerService + Clone + 'static,
{
    ServiceFunction::new(service)
}

impl<S, B> ServiceFunction<S, B> {
    pub(crate) fn new(service: S) -> Self
    where
        S: 'static,
    {
        Self { service: prepare(service), extend: None, keeps_connect: false, body: PhantomData }
    }

    /// The same with extended CONNECT for WebSockets as it came over HTTP/2 (RFC 8441): with the method CONNECT,
    /// without the fields `Connection`, `Upgrade` and `Sec-WebSocket-Key`, accepted by a response of the class 2xx. For
    /// services that know it, such as axum routes by `connect`. Other protocols than `websocket` come so in any case.
    #[must_use]
    pub fn with_extended_connect(self) -> Self {
        Self { keeps_connect: true, ..self }
    }

    /// The same with the address of the client among the extensions of each request, as a [`tidegate_sys::Address`]: that
    /// of the peer, or the one that a trusted proxy has reported. It costs a request three allocations.
    #[must_use]
    pub fn with_peer(self) -> Self {
        self.extending(|peer, extensions| {
            extensions.insert(peer.clone());
        })
    }

    /// The same with the address of the client for axum's extractor `ConnectInfo<SocketAddr>`, as
    /// `into_make_service_with_connect_info` has it. Requests of a Unix socket have none.
    #[cfg(feature = "axum")]
    #[must_use]
    pub fn with_connect_info(self) -> Self {
        self.extending(|peer, extensions| {
            if let Some(address) = peer.ip() {
                extensions.insert(::axum::extract::ConnectInfo(address));
            }
        })
    }

    fn extending(self, extend: Extend) -> Self {
        Self { extend: Some(extend), ..self }
    }
}

/// Marks functions that are tower services.
#[derive(Debug)]
pub struct FromTower(Infallible);

impl<S, B, State> RequestFunction<State, FromTower> for ServiceFunction<S, B>
where
    S: TowerService<B> + Clone + 'static,
    B: ServiceBody,
{
    fn into_endpoint(self, _: Rc<State>) -> Endpoint {
        let caller = Rc::new(Caller {
            ready: Cell::new(None),
            calling: Cell::new(None),
            requests: Requests::new(self.extend, self.keeps_connect),
            responses: Rc::default(),
            service: self.service,
        });
        Endpoint::polled(move |request, body, cx| caller.call(request, body, cx))
    }
}

/// Calls a service, on one loop. Memory that a loop's requests need one after the other is kept between them: a
/// response that is there at once needs no memory for its future and its body.
struct Caller<S: TowerService<B>, B> {
    service: S,
    /// A clone that was called before. One that has to wait until it is ready goes with its request.
    ready: Cell<Option<S>>,
    /// The place of a future that is called.
    calling: Cell<Option<Slot<S::Future>>>,
    requests: Requests,
    responses: Rc<Responses<S::ResponseBody>>,
}

impl<S: TowerService<B> + Clone + 'static, B: ServiceBody> Caller<S, B> {
    fn call(&self, request: Request, body: Body, cx: &mut Context<'_>) -> Result<Response, BoxResponseFuture> {
        let mut made = http::Request::new(B::empty());
        let exchange = match self.requests.convert((request, body), self.responses.take_fields(), &mut made) {
            Ok(exchange) => exchange,
            Err(status) => return Ok(status.into_response()),
        };
        let mut service = self.ready.take().unwrap_or_else(|| self.service.clone());
        match service.poll_ready(cx) {
            Poll::Ready(Ok(())) => {
                let mut slot = self.calling.take().unwrap_or_else(|| Box::pin(None));
                slot.as_mut().set(Some(service.call(made)));
                self.ready.set(Some(service));
                self.poll(slot, exchange, cx)
            }
            Poll::Ready(Err(error)) => Ok(failed(error)),
            Poll::Pending => Err(Box::pin(when_ready(service, made, exchange, self.responses.clone()))),
        }
    }

    /// Polls the future of a service for the first time.
    fn poll(
        &self,
        mut slot: Slot<S::Future>,
        exchange: Exchange,
        cx: &mut Context<'_>,
    ) -> Result<Response, BoxResponseFuture> {
        match poll_slot(&mut slot, cx) {
            Poll::Ready(response) => {
                slot.as_mut().set(None);
                self.calling.set(Some(slot));
                Ok(respond::<S, B>(response, exchange, &self.responses, cx))
            }
            Poll::Pending => {
                let responses = self.responses.clone();
                Err(Box::pin(async move {
                    let response = poll_fn(|cx| {
                        exchange.serve_reads(cx);
                        poll_slot(&mut slot, cx)
                    })
                    .await;
                    drop(slot);
                    respond_later::<S, B>(response, exchange, responses).await
                }))
            }
        }
    }
}

fn poll_slot<F: Future>(slot: &mut Slot<F>, cx: &mut Context<'_>) -> Poll<F::Output> {
    slot.as_mut().as_pin_mut().expect("the future is in its place").poll(cx)
}

/// Calls a service that was not ready.
async fn when_ready<S: TowerService<B> + 'static, B>(
    mut service: S,
    request: http::Request<B>,
    exchange: Exchange,
    responses: Rc<Responses<S::ResponseBody>>,
) -> Response {
    if let Err(error) = poll_fn(|cx| service.poll_ready(cx)).await {
        return failed(error);
    }
    let mut responding = pin!(service.call(request));
    let response = poll_fn(|cx| {
        exchange.serve_reads(cx);
        responding.as_mut().poll(cx)
    })
    .await;
    respond_later::<S, B>(response, exchange, responses).await
}

async fn respond_later<S: TowerService<B>, B>(
    response: Result<S::Response, S::Error>,
    exchange: Exchange,
    responses: Rc<Responses<S::ResponseBody>>,
) -> Response {
    let mut parts = Some((response, exchange));
    poll_fn(|cx| {
        let (response, exchange) = parts.take().expect("it is polled once");
        Poll::Ready(respond::<S, B>(response, exchange, &responses, cx))
    })
    .await
}

fn respond<S: TowerService<B>, B>(
    response: Result<S::Response, S::Error>,
    exchange: Exchange,
    responses: &Responses<S::ResponseBody>,
    cx: &mut Context<'_>,
) -> Response {
    match response {
        Ok(response) => responses.convert(response, exchange, cx),
        Err(error) => failed(error),
    }
}

/// The service with its layers made. An axum router that has no state yet makes them anew for each request.
pub(crate) fn prepare<S: 'static>(service: S) -> S {
    #[cfg(feature = "axum")]
    let service = {
        let mut service = service;
        crate::prepare::make_layers(&mut service);
        service
    };
    service
}

impl<S: Clone, B> Clone for ServiceFunction<S, B> {
    fn clone(&self) -> Self {
        let Self { extend, keeps_connect, .. } = *self;
        Self { service: self.service.clone(), extend, keeps_connect, body: PhantomData }
    }
}

impl<S, B> fmt::Debug for ServiceFunction<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServiceFunction")
    }
}
