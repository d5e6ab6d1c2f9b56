//! `AsyncMiddleware` and `Next`: async functions around the functions of a router.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tidegate_codec::work;
use tidegate_engine::{ConnectionCharge, task};
use tidegate_http_message::BodyError;
use tidegate_http_message::body::{Body, BodyCollector};
use tidegate_http_message::slices::{LONG_BODY_BYTES, PARSING_NANOS};

use crate::endpoint::{BoxResponseFuture, Call, Endpoint, InterimHandler, InterimWriter, begun};
use crate::extract::{Argument, BodyUse};
use crate::future_place::FuturePlace;
use crate::request::Request;
use crate::response::{IntoResponse, Response};
use crate::serving::too_long;

/// Async middleware: see [`Router::wrap`](crate::Router::wrap). `M` tells the implementations apart, and is inferred.
///
/// It is an async closure or function of up to four [arguments](crate::FromRequest), the [`Request`], and [`Next`]. It
/// returns a value that becomes a response.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no async middleware",
    note = "it is an `async fn(Request, Next)`, with up to four arguments before them that implement `FromRequest`; its result implements `IntoResponse`",
    note = "`#[tidegate::debug_function]` at the function names the argument that is wrong"
)]
pub trait AsyncMiddleware<S, M> {
    /// The middleware, without its type.
    fn into_wrapper(self, state: Rc<S>) -> Wrapper;
}

/// Async middleware, without its type. Clones share it, so that several functions of a loop can have the same one.
///
/// ```
/// use std::rc::Rc;
///
/// use tidegate::http::{AsyncMiddleware, Next, Request, Router, Wrapper, with_middleware};
///
/// let pass = async |request: Request, next: Next| next.run(request).await;
/// let shared: Wrapper = pass.into_wrapper(Rc::new(()));
/// let router = Router::new()
///     .get("/ebb", with_middleware(|| "ebb").wrap(shared.clone()))
///     .get("/flow", with_middleware(|| "flow").wrap(shared));
/// # drop(router);
/// ```
#[derive(Clone)]
pub struct Wrapper {
    call: Rc<WrapperCall>,
    body: BodyUse,
}

/// The call makes a future, and polls it once.
type WrapperCall = dyn Fn(Request, Next, &mut Context<'_>) -> Result<Response, BoxResponseFuture>;

/// The rest of the way of a request: the middleware behind this one, then the function of its route.
///
/// A request without a function passes as well; its response is the 404, the 405 or the 204 of the
/// [`Router`](crate::Router).
pub struct Next {
    endpoint: Rc<Endpoint>,
    interims: Option<InterimWriter>,
}

impl Next {
    /// Passes the request on, and waits for its response. Nothing happens before the future is polled.
    ///
    /// A body that the function wants whole is collected here, so that a request which the middleware refuses costs no
    /// memory for its body, beyond 16 KiB. Middleware that reads the body puts one back with
    /// [`body_mut`](Request::body_mut).
    pub fn run(self, request: Request) -> NextResponse {
        NextResponse(NextState::Begin(request, self))
    }

    fn begin(self, mut request: Request, cx: &mut Context<'_>) -> Begun {
        if let Some(response) = self.endpoint.refusal_of(&mut request) {
            return Begun::Response(response);
        }
        if self.endpoint.body == BodyUse::Collected && !request.body().is_whole() {
            return Begun::NotPolled(Box::pin(self.run_collected(request)));
        }
        let polled = match &self.endpoint.call {
            Call::Sync(call) => Ok(call(request)),
            Call::Async(call) => call(request, cx),
            Call::Polled(call) => {
                let body = request.take_body();
                call(request, body, cx)
            }
            Call::Interim(function) => match self.interims {
                Some(interims) => return Begun::NotPolled((function.call)(request, interims)),
                None => unreachable!("`Wrapper::around` has made another kind of function"),
            },
        };
        polled.map_or_else(Begun::Waits, Begun::Response)
    }

    async fn run_collected(self, mut request: Request) -> Response {
        let charge = match collect(&mut request).await {
            Ok(charge) => charge,
            Err(response) if self.endpoint.has_middleware => {
                request.refuse(response);
                None
            }
            Err(response) => return response,
        };
        let response = NextResponse(NextState::Begin(request, self)).await;
        drop(charge);
        response
    }
}

/// Collects the body of a request, and returns the charge for its memory.
async fn collect(request: &mut Request) -> Result<Option<Box<ConnectionCharge>>, Response> {
    let bytes_max = request.collected_body_bytes_max();
    let body = request.body_mut();
    if body.length().is_some_and(|length| length > bytes_max as u64) {
        return Err(too_long());
    }
    let mut collected = BodyCollector::new(bytes_max).charged_to(body.account());
    while let Some(piece) = body.next().await {
        match piece.and_then(|piece| collected.add(&piece)) {
            Ok(()) => {}
            Err(BodyError::TooLong) => return Err(too_long()),
            Err(error) => return Err(error.into_response()),
        }
    }
    let (bytes, charge) = collected.into_parts();
    if bytes.len() > LONG_BODY_BYTES {
        // The function parses its body within its call, which cannot be divided.
        task::long_work().await;
        work::add(bytes.len() as u64 * PARSING_NANOS);
    }
    request.set_body(Body::from(bytes));
    Ok(charge)
}

/// The state of a function after its call.
enum Begun {
    Response(Response),
    /// It was polled, and is not complete.
    Waits(BoxResponseFuture),
    NotPolled(BoxResponseFuture),
}

/// The future of [`Next::run`].
#[must_use = "the request goes no further before it is awaited"]
pub struct NextResponse(NextState);

enum NextState {
    Begin(Request, Next),
    Responding(BoxResponseFuture),
    Complete,
}

impl Future for NextResponse {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let mut responding = match std::mem::replace(&mut self.0, NextState::Complete) {
            NextState::Begin(request, next) => match next.begin(request, cx) {
                Begun::Response(response) => return Poll::Ready(response),
                Begun::Waits(responding) => {
                    self.0 = NextState::Responding(responding);
                    return Poll::Pending;
                }
                Begun::NotPolled(responding) => responding,
            },
            NextState::Responding(responding) => responding,
            NextState::Complete => return Poll::Pending,
        };
        let polled = responding.as_mut().poll(cx);
        if polled.is_pending() {
            self.0 = NextState::Responding(responding);
        }
        polled
    }
}

/// Marks async middleware without its type.
#[derive(Debug)]
pub struct SharedWrapper(());

impl<S> AsyncMiddleware<S, SharedWrapper> for Wrapper {
    fn into_wrapper(self, _: Rc<S>) -> Wrapper {
        self
    }
}

impl Wrapper {
    /// Middleware that is no async function.
    pub(super) fn new(body: BodyUse, call: impl Fn(Request, Next) -> BoxResponseFuture + 'static) -> Self {
        let call = move |request: Request, next: Next, cx: &mut Context<'_>| {
            let mut responding = call(request, next);
            match responding.as_mut().poll(cx) {
                Poll::Ready(response) => Ok(response),
                Poll::Pending => Err(responding),
            }
        };
        Self { call: Rc::new(call), body }
    }

    /// A function with this middleware around it.
    pub(crate) fn around(&self, endpoint: Rc<Endpoint>) -> Endpoint {
        let (half_close, is_gateway, limits) =
            (endpoint.half_close.get(), endpoint.is_gateway, endpoint.limits.clone());
        let collects_late = endpoint.collects_late || endpoint.body == BodyUse::Collected;
        let chosen_fields = endpoint.chosen_fields.clone();
        let middleware = self.call.clone();
        let call = match &endpoint.call {
            Call::Interim(InterimHandler { needs_destination, is_pipelined, .. }) => {
                let (needs_destination, is_pipelined) = (*needs_destination, *is_pipelined);
                let call = Box::new(move |request, interims| -> BoxResponseFuture {
                    let middleware = middleware.clone();
                    let next = Next { endpoint: endpoint.clone(), interims: Some(interims) };
                    Box::pin(begun(move |cx| middleware(request, next, cx)))
                });
                // A response that is there at once would pass the middleware by.
                Call::Interim(InterimHandler { call, needs_destination, is_pipelined, at_once: None })
            }
            Call::Sync(_) | Call::Async(_) | Call::Polled(_) => Call::Async(Box::new(move |request, cx| {
                middleware(request, Next { endpoint: endpoint.clone(), interims: None }, cx)
            })),
        };
        let has_middleware = true;
        let around = Endpoint {
            is_gateway,
            limits,
            collects_late,
            has_middleware,
            chosen_fields,
            ..Endpoint::new(call, self.body)
        };
        around.half_close.set(half_close);
        around
    }

    /// The function of a request that no route matches: its response lies in the request.
    pub(crate) fn function_of_unrouted() -> Endpoint {
        Endpoint::new(Call::Sync(Box::new(|mut request| request.take_refusal())), BodyUse::Unused)
    }
}

macro_rules! functions {
    ($($argument:ident $value:ident $marker:ident)*) => {
        impl<S, F, R, $($argument, $marker,)*> AsyncMiddleware<S, ($(($argument, $marker),)*)> for F
        where
            S: 'static,
            F: AsyncFn($($argument,)* Request, Next) -> R + 'static,
            R: IntoResponse,
            $($argument: Argument<S, $marker> + 'static,)*
        {
            fn into_wrapper(self, state: Rc<S>) -> Wrapper {
                let function = Rc::new(self);
                let body = BodyUse::max(
                    BodyUse::Streamed,
                    <($($argument,)*) as Argument<S, ($($marker,)*)>>::BODY,
                );
                let (early, late) = (FuturePlace::default(), FuturePlace::default());
                let call = move |mut request: Request, next: Next, cx: &mut Context<'_>| {
                    let function = function.clone();
                    if <($($argument,)*) as Argument<S, ($($marker,)*)>>::IS_READY {
                        return match <($($argument,)*) as Argument<S, ($($marker,)*)>>::take(&mut request, &state) {
                            Ok(($($value,)*)) => {
                                early.poll(async move { function($($value,)* request, next).await.into_response() }, cx)
                            }
                            Err(response) => Ok(response),
                        };
                    }
                    let state = state.clone();
                    let received = async move {
                        match <($($argument,)*) as Argument<S, ($($marker,)*)>>::receive(&mut request, &state).await {
                            Ok(($($value,)*)) => function($($value,)* request, next).await.into_response(),
                            Err(response) => response,
                        }
                    };
                    late.poll(received, cx)
                };
                Wrapper { call: Rc::new(call), body }
            }
        }
    };
}

functions!();
functions!(A a MA);
functions!(A a MA B b MB);
functions!(A a MA B b MB C c MC);
functions!(A a MA B b MB C c MC D d MD);

impl fmt::Debug for Wrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapper").field("body", &self.body).finish_non_exhaustive()
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl fmt::Debug for NextResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NextResponse")
    }
}
