//! `function`: a service as a function of the HTTP layer.

use std::error::Error;
use std::future::poll_fn;

use http::request::Parts;
use tidegate_http::{Request, Response};
use tower_service::Service;

use crate::request_body::{Registered, RequestBody};
use crate::response;

/// A service of `http::Request` whose response has any body.
///
/// It is implemented for all of them: `Service<http::Request<RequestBody>, Response = http::Response<B>>` with
/// `B: http_body::Body`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service from `http::Request<RequestBody>` to `http::Response`",
    note = "a `Router` of axum without missing state is one: call `with_state` first"
)]
pub trait TowerService {
    /// Calls the service.
    #[doc(hidden)]
    fn respond(
        &mut self,
        request: http::Request<RequestBody>,
        registered: Option<Registered>,
    ) -> impl Future<Output = Result<Response, Box<dyn Error>>>;
}

impl<S, B> TowerService for S
where
    S: Service<http::Request<RequestBody>, Response = http::Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    async fn respond(
        &mut self,
        request: http::Request<RequestBody>,
        registered: Option<Registered>,
    ) -> Result<Response, Box<dyn Error>> {
        let is_head = request.method() == http::Method::HEAD;
        poll_fn(|cx| self.poll_ready(cx)).await.map_err(|error| -> Box<dyn Error> { error.into() })?;
        let response = self.call(request).await.map_err(|error| -> Box<dyn Error> { error.into() })?;
        response::from_http(response, is_head, registered).await
    }
}

/// A service as a function of a [`Router`](tidegate_http::Router) or a [`Server`](tidegate_http::Server), for all
/// requests or some paths.
///
/// Each request is served by a clone of the service. A service that fails is answered with 500, and the error is logged.
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
pub fn function<S>(service: S) -> impl AsyncFn(Request) -> Response + Clone
where
    S: TowerService + Clone + 'static,
{
    async move |request: Request| {
        let mut service = service.clone();
        let (request, registered) = match into_http(request) {
            Ok(converted) => converted,
            Err(response) => return response,
        };
        match service.respond(request, registered).await {
            Ok(response) => response,
            Err(error) => {
                tracing::error!("a service failed: {error}");
                tidegate_http::IntoResponse::into_response(http::StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }
}

/// The request of the `http` crate. The address of the client is among its extensions, as a
/// [`tidegate_sys::Address`].
fn into_http(request: Request) -> Result<(http::Request<RequestBody>, Option<Registered>), Response> {
    let bad = |_| tidegate_http::IntoResponse::into_response(http::StatusCode::BAD_REQUEST);
    let (mut parts, ()): (Parts, ()) = http::Request::new(()).into_parts();
    parts.method = request.method();
    parts.uri = request.target().parse().map_err(bad)?;
    parts.version = request.version();
    parts.headers = request.header_map();
    parts.extensions = request.extensions().clone();
    parts.extensions.insert(request.peer().clone());
    let length = request.content_length();
    let (body, registered) = if length == Some(0) {
        (RequestBody::empty(), None)
    } else {
        let (body, registered) = RequestBody::register(request.into_body(), length);
        (body, Some(registered))
    };
    Ok((http::Request::from_parts(parts, body), registered))
}
