//! `Endpoint`: a function of the application, without its type; and the functions that become one.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tidegate_engine::activity::Label;
use tidegate_http_message::Body;
use tidegate_http_message::exchange::Exchange;
use tidegate_http1::{Interim, Outgoing};
use tidegate_metrics::RouteMetrics;
use tidegate_sys::Address;

use crate::extract::{Argument, BodyUse, FromRequest};
use crate::future_place::FuturePlace;
use crate::request::Request;
use crate::response::{IntoResponse, Response};
use crate::route_limits::RouteLimits;
use crate::serving::order::PipelineSlot;

/// A function of the application, without its type.
pub struct Endpoint {
    pub(crate) call: Call,
    pub(crate) body: BodyUse,
    /// Names it for the watchdog.
    pub(crate) label: Cell<Label>,
    /// Counts its requests, if they are counted.
    pub(crate) metrics: OnceCell<Rc<RouteMetrics>>,
    /// It passes paths on as they were sent, to servers that may read them in another way.
    pub(crate) is_gateway: bool,
    /// Whether its requests go on when the client ends its side of the connection: that of the router, or of the listener.
    pub(crate) half_close: Cell<Option<bool>>,
    /// Its function wants the body whole, and its async middleware comes before that.
    pub(crate) collects_late: bool,
    /// The limits of its route.
    pub(crate) limits: OnceCell<Rc<RouteLimits>>,
    /// Middleware lies within it, which sees the response to a request that a limit refuses.
    pub(crate) has_middleware: bool,
    /// Which fields it sends on with values that the request does not have.
    pub(crate) chosen_fields: Option<Rc<ChosenFields>>,
}

/// Which fields a function that passes requests on sends with other values than they have.
pub(crate) struct ChosenFields {
    pub(crate) is_chosen: Box<FieldTest>,
    /// Whether it passes on fields such as `X-Forwarded-Proto` of a request; `None` if of none.
    pub(crate) trusts: Option<Rc<TrustTest>>,
}

/// A test of a field's name.
type FieldTest = dyn Fn(&[u8]) -> bool;

/// Whether a function passes on the fields of a request that only a trusted proxy writes.
pub type TrustTest = dyn Fn(&Request) -> bool;

impl Endpoint {
    pub(crate) fn new(call: Call, body: BodyUse) -> Self {
        let (label, metrics) = (Cell::new(Label::NONE), OnceCell::new());
        let (is_gateway, collects_late, limits) = (false, false, OnceCell::new());
        let chosen_fields = None;
        Self {
            call,
            body,
            label,
            metrics,
            is_gateway,
            half_close: Cell::new(None),
            collects_late,
            limits,
            has_middleware: false,
            chosen_fields,
        }
    }

    /// The response in place of the function's, if the request has one and no middleware within has yet to see it.
    #[inline]
    pub(crate) fn refusal_of(&self, request: &mut Request) -> Option<Response> {
        if self.has_middleware { None } else { request.refusal() }
    }

    /// Whether its requests go on when the client ends its side of the connection.
    #[inline]
    pub(crate) fn keeps_half_closed(&self) -> bool {
        self.half_close.get() == Some(true)
    }
}

pub(crate) enum Call {
    Sync(Box<dyn Fn(Request) -> Response>),
    Async(Box<AsyncCall>),
    Polled(Box<PolledCall>),
    /// As an async one. Its future is always polled in a task, and may send interim responses before the final one.
    Interim(InterimHandler),
}

/// A function that may send interim responses. The call itself only makes the future.
pub struct InterimHandler {
    pub(crate) call: Box<dyn Fn(Request, InterimWriter) -> BoxResponseFuture>,
    /// It asks for the address that the client has connected to, so it needs a task that has the connection.
    pub(crate) needs_destination: bool,
    /// Requests with safe methods may be in progress side by side on one connection.
    pub(crate) is_pipelined: bool,
    /// Answers some requests within the dispatch in which they come, without the call.
    pub(crate) at_once: Option<Box<AnswerAtOnce>>,
}

/// A response that is there at once, or none.
pub(crate) type AnswerAtOnce = dyn Fn(&Request) -> Option<Response>;

/// Sends interim responses of one exchange.
pub enum InterimWriter {
    /// A task has the connection.
    Exchange {
        /// The exchange of the request.
        exchange: Rc<dyn Exchange>,
        /// The number of the exchange on its connection.
        number: u32,
    },
    /// The handler of the connection waits for the response. The place is that of the request among those of its
    /// connection, if others may be in progress beside it.
    Handler {
        /// The interim responses of this loop.
        interims: Rc<InterimQueue>,
        /// The slot of the request.
        slot: Option<PipelineSlot>,
    },
}

/// The interim responses that a future has sent while it was polled, for the handler of its connection. A loop has one: each
/// poll is followed by taking them out.
#[derive(Default)]
pub struct InterimQueue(RefCell<Vec<Interim>>);

impl InterimQueue {
    /// The interim responses sent within this poll.
    #[inline]
    pub(crate) fn take(&self) -> Vec<Interim> {
        self.0.take()
    }
}

impl InterimWriter {
    /// Sends an interim response. One that comes too late, or that the protocol cannot express, is dropped.
    pub fn send(&self, interim: Interim) {
        match self {
            Self::Exchange { exchange, number } => drop(exchange.send(*number, Outgoing::Interim(interim))),
            Self::Handler { interims, .. } => interims.0.borrow_mut().push(interim),
        }
    }

    /// The address that the client has connected to; that which a trusted proxy has reported, if it has reported the
    /// client. A function that asks has to be one that [needs it](InterimHandler::needs_destination).
    #[must_use]
    pub fn destination(&self) -> Option<Address> {
        match self {
            Self::Exchange { exchange, number } => exchange.destination(*number),
            Self::Handler { .. } => None,
        }
    }

    /// Whether the function does not go on before its request is in turn, since an interim response waits for that.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        match self {
            Self::Handler { interims, slot: Some(slot) } => !slot.is_in_turn() && !interims.0.borrow().is_empty(),
            Self::Handler { .. } | Self::Exchange { .. } => false,
        }
    }

    /// The place of the request, if others of its connection may be in progress beside it.
    #[must_use]
    pub fn place(&self) -> Option<&PipelineSlot> {
        match self {
            Self::Handler { slot, .. } => slot.as_ref(),
            Self::Exchange { .. } => None,
        }
    }
}

/// The call makes a future, and polls it once: the response, or the future that is not complete.
pub(crate) type AsyncCall = dyn Fn(Request, &mut Context<'_>) -> Result<Response, BoxResponseFuture>;

/// The response of a function that its call polls.
pub(crate) async fn begun(call: impl FnOnce(&mut Context<'_>) -> Result<Response, BoxResponseFuture>) -> Response {
    let mut call = Some(call);
    let polled = poll_fn(|cx| Poll::Ready(call.take().expect("it is polled once")(cx)));
    match polled.await {
        Ok(response) => response,
        Err(responding) => responding.await,
    }
}

pub(crate) type PolledCall = dyn Fn(Request, Body, &mut Context<'_>) -> Result<Response, BoxResponseFuture>;

/// The future of a response.
pub type BoxResponseFuture = Pin<Box<dyn Future<Output = Response>>>;

impl Endpoint {
    /// An async function that is polled by its call: the call returns the response, or a future that is not complete. So
    /// an adapter to another kind of service need not allocate a future for a response that is there at once.
    ///
    /// The body is an argument of its own, and the request has none. Within the dispatch of the connection the head,
    /// and a body that came with it, are views of the loop's memory: the call copies bytes that are kept beyond it.
    pub fn polled(
        call: impl Fn(Request, Body, &mut Context<'_>) -> Result<Response, BoxResponseFuture> + 'static,
    ) -> Self {
        Self::new(Call::Polled(Box::new(call)), BodyUse::Streamed)
    }
}

/// A function from a request to a response. `M` tells the implementations apart, and is inferred.
///
/// It is a closure or a function, async or not, of up to five arguments, and the request behind them. Each argument is a
/// part of the request that implements [`FromRequest`], or [`FromRequestAsync`](crate::FromRequestAsync) if the function
/// is async; one more, the last, may be the [`Request`] itself. It returns a
/// value that becomes a response: [`IntoResponse`].
///
/// A function that is not async runs within the dispatch of its connection, and must not block. It receives a request
/// with its whole body. An async one starts as soon as the head of the request has arrived, and where it waits, a task on
/// the connection's loop goes on with it. If the connection breaks, or the client ends its side of it, the function is
/// dropped where it waits; see [`Router::half_close`](crate::Router::half_close).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function from a request to a response",
    label = "an argument or the result of this function is not one of a router whose state is `{S}`",
    note = "its arguments implement `FromRequest`, or the last one is the `Request`; its result implements `IntoResponse`",
    note = "`#[tidegate::debug_function]` at the function names the argument that is wrong"
)]
pub trait RequestFunction<S, M> {
    /// The function, without its type.
    fn into_endpoint(self, state: Rc<S>) -> Endpoint;
}

/// Marks functions that are not async.
#[derive(Debug)]
pub struct SyncFunction<A>(A);

/// Marks async functions.
#[derive(Debug)]
pub struct AsyncFunction<A>(A);

/// Marks functions whose last argument is the request.
#[derive(Debug)]
pub struct WithRequest<A>(A);

/// A function with a choice of its own for half-closed connections; see [`half_close`].
#[derive(Debug, Clone)]
pub struct HalfClose<F> {
    function: F,
    keeps: Option<bool>,
}

/// Marks functions with a choice of their own for half-closed connections.
#[derive(Debug)]
pub struct WithHalfClose<M>(M);

/// Decides for one function whether its requests go on when their client ends its side of the connection, in place of
/// [`Router::half_close`](crate::Router::half_close). `None` leaves it to the router.
///
/// ```
/// use tidegate::http::{Router, half_close};
/// use tidegate::task;
/// use std::time::Duration;
///
/// // `printf 'GET /count ..' | nc -N` ends its side at once, and waits for the response.
/// let count = async || {
///     task::sleep(Duration::from_secs(1)).await;
///     "412"
/// };
/// let router = Router::new().get("/count", half_close(true, count));
/// # drop(router);
/// ```
pub fn half_close<F>(keeps: impl Into<Option<bool>>, function: F) -> HalfClose<F> {
    HalfClose { function, keeps: keeps.into() }
}

impl<S, M, F: RequestFunction<S, M>> RequestFunction<S, WithHalfClose<M>> for HalfClose<F> {
    fn into_endpoint(self, state: Rc<S>) -> Endpoint {
        let endpoint = self.function.into_endpoint(state);
        if self.keeps.is_some() {
            endpoint.half_close.set(self.keeps);
        }
        endpoint
    }
}

macro_rules! functions {
    ($($argument:ident $value:ident $marker:ident)*) => {
        impl<S, F, R, $($argument,)*> RequestFunction<S, SyncFunction<($($argument,)*)>> for F
        where
            S: 'static,
            F: Fn($($argument,)*) -> R + 'static,
            R: IntoResponse,
            $($argument: FromRequest<S> + 'static,)*
        {
            fn into_endpoint(self, state: Rc<S>) -> Endpoint {
                let call = move |mut request: Request| match <($($argument,)*)>::from_request(&mut request, &state) {
                    Ok(($($value,)*)) => self($($value,)*).into_response(),
                    Err(response) => response,
                };
                Endpoint::new(Call::Sync(Box::new(call)), <($($argument,)*) as FromRequest<S>>::BODY)
            }
        }

        impl<S, F, R, $($argument,)*> RequestFunction<S, SyncFunction<WithRequest<($($argument,)*)>>> for F
        where
            S: 'static,
            F: Fn($($argument,)* Request) -> R + 'static,
            R: IntoResponse,
            $($argument: FromRequest<S> + 'static,)*
        {
            fn into_endpoint(self, state: Rc<S>) -> Endpoint {
                let call = move |mut request: Request| match <($($argument,)*)>::from_request(&mut request, &state) {
                    Ok(($($value,)*)) => self($($value,)* request).into_response(),
                    Err(response) => response,
                };
                Endpoint::new(Call::Sync(Box::new(call)), BodyUse::Collected)
            }
        }

        impl<S, F, R, $($argument, $marker,)*> RequestFunction<S, AsyncFunction<($(($argument, $marker),)*)>> for F
        where
            S: 'static,
            F: AsyncFn($($argument,)*) -> R + 'static,
            R: IntoResponse,
            $($argument: Argument<S, $marker> + 'static,)*
        {
            fn into_endpoint(self, state: Rc<S>) -> Endpoint {
                let function = Rc::new(self);
                let (early, late) = (FuturePlace::default(), FuturePlace::default());
                let call = move |mut request: Request, cx: &mut Context<'_>| {
                    if !<($($argument,)*) as Argument<S, ($($marker,)*)>>::IS_READY {
                        let (function, state) = (function.clone(), state.clone());
                        let received = async move {
                            match <($($argument,)*) as Argument<S, ($($marker,)*)>>::receive(&mut request, &state).await {
                                Ok(($($value,)*)) => {
                                    drop(request);
                                    function($($value,)*).await.into_response()
                                }
                                Err(response) => response,
                            }
                        };
                        return late.poll(received, cx);
                    }
                    match <($($argument,)*) as Argument<S, ($($marker,)*)>>::take(&mut request, &state) {
                        Ok(($($value,)*)) => {
                            let function = function.clone();
                            early.poll(async move { function($($value,)*).await.into_response() }, cx)
                        }
                        Err(response) => Ok(response),
                    }
                };
                let body = <($($argument,)*) as Argument<S, ($($marker,)*)>>::BODY;
                Endpoint::new(Call::Async(Box::new(call)), body)
            }
        }

        impl<S, F, R, $($argument, $marker,)*> RequestFunction<S, AsyncFunction<WithRequest<($(($argument, $marker),)*)>>>
            for F
        where
            S: 'static,
            F: AsyncFn($($argument,)* Request) -> R + 'static,
            R: IntoResponse,
            $($argument: Argument<S, $marker> + 'static,)*
        {
            fn into_endpoint(self, state: Rc<S>) -> Endpoint {
                let function = Rc::new(self);
                let (early, late) = (FuturePlace::default(), FuturePlace::default());
                let call = move |mut request: Request, cx: &mut Context<'_>| {
                    if !<($($argument,)*) as Argument<S, ($($marker,)*)>>::IS_READY {
                        let (function, state) = (function.clone(), state.clone());
                        let received = async move {
                            match <($($argument,)*) as Argument<S, ($($marker,)*)>>::receive(&mut request, &state).await {
                                Ok(($($value,)*)) => function($($value,)* request).await.into_response(),
                                Err(response) => response,
                            }
                        };
                        return late.poll(received, cx);
                    }
                    match <($($argument,)*) as Argument<S, ($($marker,)*)>>::take(&mut request, &state) {
                        Ok(($($value,)*)) => {
                            let function = function.clone();
                            early.poll(async move { function($($value,)* request).await.into_response() }, cx)
                        }
                        Err(response) => Ok(response),
                    }
                };
                let body = BodyUse::max(BodyUse::Streamed, <($($argument,)*) as Argument<S, ($($marker,)*)>>::BODY);
                Endpoint::new(Call::Async(Box::new(call)), body)
            }
        }
    };
}

functions!();
functions!(A a MA);
functions!(A a MA B b MB);
functions!(A a MA B b MB C c MC);
functions!(A a MA B b MB C c MC D d MD);
functions!(A a MA B b MB C c MC D d MD E e ME);

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if matches!(self.call, Call::Sync(_)) { "Sync" } else { "Async" };
        f.debug_struct("Endpoint").field("call", &kind).field("body", &self.body).finish()
    }
}
