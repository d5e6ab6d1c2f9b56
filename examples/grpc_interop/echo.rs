//! The metadata that the cases expect back: one field in the head of the response, and one in its trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::TryFutureExt;
use futures_util::future::MapOk;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Body as HttpBody, Bytes, Service, http};

use http::HeaderMap;

const INITIAL: &str = "x-grpc-test-echo-initial";
const TRAILING: &str = "x-grpc-test-echo-trailing-bin";

/// Fields that a call adds to its trailers.
#[derive(Debug, Clone)]
pub(crate) struct MoreTrailers(pub(crate) HeaderMap);

/// A service that echoes the metadata.
#[derive(Debug, Clone)]
pub(crate) struct Echo<S>(pub(crate) S);

impl<S, B> Service<http::Request<B>> for Echo<S>
where
    S: Service<http::Request<B>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = MapOk<S::Future, Box<dyn FnOnce(http::Response<Body>) -> http::Response<Body> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let [initial, trailing] = [INITIAL, TRAILING].map(|name| request.headers().get(name).cloned());
        self.0.call(request).map_ok(Box::new(move |mut response| {
            if let Some(initial) = initial {
                response.headers_mut().insert(INITIAL, initial);
            }
            let mut trailers =
                response.extensions_mut().remove().map_or_else(HeaderMap::new, |MoreTrailers(more)| more);
            if let Some(trailing) = trailing {
                trailers.insert(TRAILING, trailing);
            }
            match () {
                () if trailers.is_empty() => response,
                // A response without messages has its trailers in its head.
                () if response.headers().contains_key(Status::GRPC_STATUS) => {
                    response.headers_mut().extend(trailers);
                    response
                }
                () => response.map(|body| Body::new(WithTrailers { body, trailers })),
            }
        }))
    }
}

/// The body of a response with further trailers.
struct WithTrailers {
    body: Body,
    trailers: HeaderMap,
}

impl HttpBody for WithTrailers {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)?) else { return Poll::Ready(None) };
        Poll::Ready(Some(Ok(match frame.into_trailers() {
            Ok(mut trailers) => {
                trailers.extend(std::mem::take(&mut self.trailers));
                Frame::trailers(trailers)
            }
            Err(frame) => frame,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
