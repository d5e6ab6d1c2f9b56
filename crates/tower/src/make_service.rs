//! `IntoService`: the argument of our [`serve`](crate::axum::serve) as of `axum::serve`: a service, or one that makes a
//! service for each connection.
//!
//! axum's own makers of services make the same one for each connection, but for the address of the peer. So the service
//! itself is cloned once for each loop, and one that wants the address is made for each request.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use ::axum::body::Body;
use ::axum::extract::ConnectInfo;
use ::axum::extract::connect_info::{Connected, IntoMakeServiceWithConnectInfo};
use ::axum::middleware::AddExtension;
use ::axum::routing::IntoMakeService;
use tower_service::Service;

use crate::function::TowerService;

/// A service, or a value that makes one: a `Router`, a `MethodRouter`, any other service of axum's requests; the
/// results of `into_make_service` and of `into_make_service_with_connect_info`.
///
/// `M` tells the implementations apart, and is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service from `http::Request<axum::body::Body>` to `http::Response`",
    note = "a `Router` of axum without missing state is one: call `with_state` first"
)]
pub trait IntoService<M> {
    /// The service.
    type Service: TowerService<Body> + Clone + Send + Sync + 'static;

    /// Whether it wants the address of the client among the extensions of each request.
    #[doc(hidden)]
    const WANTS_CONNECT_INFO: bool = false;

    /// The service, of which each loop gets a clone.
    fn into_service(self) -> Self::Service;
}

/// Marks services.
#[derive(Debug)]
pub struct ServiceMarker(Infallible);

/// Marks results of `into_make_service`.
#[derive(Debug)]
pub struct MakeServiceMarker(Infallible);

/// Marks results of `into_make_service_with_connect_info`.
#[derive(Debug)]
pub struct MadeWithConnectInfo(Infallible);

impl<S> IntoService<ServiceMarker> for S
where
    S: TowerService<Body> + Clone + Send + Sync + 'static,
{
    type Service = S;

    fn into_service(self) -> S {
        self
    }
}

impl<S> IntoService<MakeServiceMarker> for IntoMakeService<S>
where
    S: TowerService<Body> + Clone + Send + Sync + 'static,
{
    type Service = S;

    fn into_service(mut self) -> S {
        made(self.call(()))
    }
}

impl<S, C> IntoService<MadeWithConnectInfo> for IntoMakeServiceWithConnectInfo<S, C>
where
    C: Connected<SocketAddr>,
    S: Clone + Send + Sync + 'static,
    AddExtension<S, ConnectInfo<C>>: TowerService<Body, Error: Send, Future: Send> + Send,
{
    type Service = PerPeer<Self>;

    const WANTS_CONNECT_INFO: bool = true;

    fn into_service(self) -> PerPeer<Self> {
        PerPeer(self)
    }
}

/// Has the service of each request made with the address of its client.
#[derive(Debug, Clone)]
pub struct PerPeer<M>(M);

/// The future of a [`PerPeer`].
type PerPeerFuture<S> = Pin<
    Box<
        dyn Future<
            Output = Result<<S as Service<http::Request<Body>>>::Response, <S as Service<http::Request<Body>>>::Error>,
        >,
    >,
>;

impl<M, S> Service<http::Request<Body>> for PerPeer<M>
where
    M: Service<SocketAddr, Response = S, Error = Infallible>,
    S: TowerService<Body> + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = PerPeerFuture<S>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> PerPeerFuture<S> {
        let address = request.extensions().get().map_or(UNKNOWN, |ConnectInfo(address)| *address);
        let mut service = made(self.0.call(address));
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(request).await
        })
    }
}

/// The service that axum has made: it never waits for that.
fn made<S>(future: impl Future<Output = Result<S, Infallible>>) -> S {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(service)) => service,
        Poll::Ready(Err(never)) => match never {},
        Poll::Pending => unreachable!("axum makes services at once"),
    }
}

/// The address of a client on a Unix socket.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
