//! gRPC by services such as tonic's `Routes`: gRPC's requirements on a server beside HTTP/2.
//!
//! Messages, statuses and compression are the service's. A gRPC server ends calls at the deadlines of their clients,
//! and limits messages instead of bodies: a stream of messages has no end by itself.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;
use tidegate_engine::task::{self, Sleep};
use tidegate_engine::{ServerHandle, StartError};
use tidegate_http::{Limits, Server};
use tower_service::Service;

use crate::function::{TowerService, function, prepare};

/// Serves a gRPC service, such as tonic's `Routes`, at an address: on a loop for each core, with [`limits`] and
/// [`Deadlines`]. For TLS and limits of your own, give the service with `Deadlines` to a [`Server`].
///
/// # Errors
/// [`StartError`], with a remedy.
pub fn serve<S, R>(address: &str, service: S) -> Result<ServerHandle, StartError>
where
    S: TowerService<ResponseBody = R> + Clone + Send + Sync + 'static,
    R: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>> + Unpin + 'static,
{
    Server::bind(address)?.limits(limits()).serve(function(Deadlines::new(service)))
}

/// The default limits, without a limit of a request's whole body: a stream of messages may be endless. The service
/// limits each message (tonic: 4 MiB), and the HTTP/2 windows its waiting bytes. Messages that a client sends slower
/// than [`body_rate_min`](Limits::body_rate_min) end the call, but not once the response has begun.
#[must_use]
pub fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.body_bytes_max = u64::MAX;
    limits
}

/// A service whose calls end at the deadlines that clients name in `grpc-timeout`: with the status `DEADLINE_EXCEEDED`,
/// also within a stream of messages. The service's future for the call is dropped.
///
/// ```no_run
/// use tidegate::http::Server;
/// use tidegate::tower::{self, grpc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let routes = axum::Router::new();
/// let service = tower::function(grpc::Deadlines::new(routes));
/// Server::bind("127.0.0.1:50051")?.limits(grpc::limits()).serve(service)?.wait();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Deadlines<S>(S);

impl<S: 'static> Deadlines<S> {
    /// The service with deadlines. An axum router gets its state here, as [`function`] gives it.
    pub fn new(service: S) -> Self {
        Self(prepare(service))
    }
}

impl<S, B, R> Service<http::Request<B>> for Deadlines<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>>,
    R: http_body::Body,
{
    type Response = http::Response<CallBody<R>>;
    type Error = S::Error;
    type Future = Call<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Call<S::Future> {
        let after = match request.headers().get(TIMEOUT) {
            None => None,
            Some(value) => match timeout(value.as_bytes()) {
                Some(after) => Some(after),
                None => return Call { state: CallState::Malformed },
            },
        };
        Call { state: CallState::Running { future: self.0.call(request), deadline: after.map(task::sleep) } }
    }
}

pin_project! {
    /// The future of a call.
    pub struct Call<F> {
        #[pin]
        state: CallState<F>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum CallState<F> {
        // The deadline of the client is malformed.
        Malformed,
        Running {
            #[pin]
            future: F,
            deadline: Option<Sleep>,
        },
        Done,
    }
}

impl<F, R, E> Future for Call<F>
where
    F: Future<Output = Result<http::Response<R>, E>>,
{
    type Output = Result<http::Response<CallBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        let response = match state.as_mut().project() {
            StateProjection::Malformed => without_messages(INTERNAL, "grpc-timeout is malformed"),
            StateProjection::Running { future, deadline } => match future.poll(cx) {
                Poll::Ready(result) => {
                    let deadline = deadline.take();
                    result.map(|response| response.map(|body| CallBody { body: Some(body), deadline }))
                }
                Poll::Pending => {
                    let Some(deadline) = deadline else { return Poll::Pending };
                    ready!(Pin::new(deadline).poll(cx));
                    without_messages(DEADLINE_EXCEEDED, DEADLINE_MESSAGE)
                }
            },
            StateProjection::Done => return Poll::Pending,
        };
        state.set(CallState::Done);
        Poll::Ready(response)
    }
}

/// A response that has no messages, so its status is in its head.
fn without_messages<R, E>(status: &'static str, message: &'static str) -> Result<http::Response<CallBody<R>>, E> {
    let mut response = http::Response::new(CallBody { body: None, deadline: None });
    *response.headers_mut() = trailers(status, message);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

fn trailers(status: &'static str, message: &'static str) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(4);
    fields.insert(HeaderName::from_static("grpc-status"), HeaderValue::from_static(status));
    fields.insert(HeaderName::from_static("grpc-message"), HeaderValue::from_static(message));
    fields
}

/// The body of a response, which ends at the deadline of its call.
pub struct CallBody<R> {
    /// `None` once it has ended.
    body: Option<R>,
    deadline: Option<Sleep>,
}

impl<R: http_body::Body + Unpin> http_body::Body for CallBody<R> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        let Self { body, deadline } = &mut *self;
        let Some(inner) = body else { return Poll::Ready(None) };
        // An endless stream that always has a message ends at its deadline as well.
        if let Some(deadline) = deadline
            && Pin::new(deadline).poll(cx).is_ready()
        {
            self.body = None;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers(DEADLINE_EXCEEDED, DEADLINE_MESSAGE)))));
        }
        Pin::new(inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(R::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) if self.deadline.is_none() => body.size_hint(),
            Some(_) => SizeHint::default(),
            None => SizeHint::with_exact(0),
        }
    }
}

/// The time in `grpc-timeout`: up to eight digits and a unit.
fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |count, digit| count * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

impl<F> fmt::Debug for Call<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

impl<R> fmt::Debug for CallBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBody").field("has_deadline", &self.deadline.is_some()).finish_non_exhaustive()
    }
}

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The digits of a time-out, by the gRPC specification over HTTP/2.
const DIGITS_MAX: usize = 8;

/// Codes of statuses.
const DEADLINE_EXCEEDED: &str = "4";
const INTERNAL: &str = "13";

const DEADLINE_MESSAGE: &str = "the deadline of the call has come";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_short_number_and_a_unit() {
        for (value, expected) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("99999999S", Duration::from_secs(99_999_999)),
            ("0m", Duration::ZERO),
            ("7u", Duration::from_micros(7)),
            ("00000008n", Duration::from_nanos(8)),
        ] {
            assert_eq!(timeout(value.as_bytes()), Some(expected), "{value}");
        }
        for value in ["", "S", "1", "1s", "-1S", "1.5S", " 1S", "1S ", "999999999S", "1SS"] {
            assert_eq!(timeout(value.as_bytes()), None, "{value:?}");
        }
    }
}
