//! `Endpoint`: a function of the application, without its type; and the functions that become one.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::extract::FromRequest;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// A function of the application, without its type.
pub struct Endpoint {
    pub(crate) call: Call,
    pub(crate) body: BodyUse,
}

pub(crate) enum Call {
    Sync(Box<dyn Fn(Request) -> Response>),
    Async(Box<dyn Fn(Request) -> Responding>),
}

/// The future of a response.
pub(crate) type Responding = Pin<Box<dyn Future<Output = Response>>>;

/// How a function uses the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BodyUse {
    /// It does not.
    Unused,
    /// It reads the body piece by piece.
    Streamed,
    /// It receives the body in one piece, which is collected before the call.
    Collected,
}

/// A function from a request to a response. `M` tells the implementations apart, and is inferred.
///
/// It is a closure or a function, async or not, of up to six arguments. Each argument is a part of the request that
/// implements [`FromRequest`]; the last may be the [`Request`] itself. It returns a value that becomes a response:
/// [`IntoResponse`].
///
/// A function that is not async runs within the dispatch of its connection, and must not block. It receives a request
/// with its whole body. An async one runs as a task on the connection's loop, as soon as the head of the request has
/// arrived; if the connection breaks, it is dropped where it waits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function from a request to a response",
    note = "its arguments implement `FromRequest`, or the last one is the `Request`; its result implements `IntoResponse`"
)]
pub trait RequestFunction<S, M> {
    /// The function, without its type.
    fn into_endpoint(self, state: Rc<S>) -> Endpoint;
}

/// Marks functions that are not async.
#[derive(Debug)]
pub struct Sync<A>(A);

/// Marks async functions.
#[derive(Debug)]
pub struct Async<A>(A);

/// Marks functions whose last argument is the request.
#[derive(Debug)]
pub struct WithRequest<A>(A);

macro_rules! functions {
    ($($argument:ident)*) => {
        impl<S, F, R, $($argument,)*> RequestFunction<S, Sync<($($argument,)*)>> for F
        where
            S: 'static,
            F: Fn($($argument,)*) -> R + 'static,
            R: IntoResponse,
            $($argument: FromRequest<S> + 'static,)*
        {
            #[expect(non_snake_case, unused_mut, unused_variables, clippy::allow_attributes, reason = "names of arguments are those of types")]
            fn into_endpoint(self, state: Rc<S>) -> Endpoint {
                let body = body_use(&[$($argument::BODY,)*]);
                let call = move |mut request: Request| {
                    $(let $argument = match $argument::from_request(&mut request, &state) {
                        Ok(argument) => argument,
                        Err(response) => return response,
                    };)*
                    self($($argument,)*).into_response()
                };
                Endpoint { call: Call::Sync(Box::new(call)), body }
            }
        }

        impl<S, F, R, $($argument,)*> RequestFunction<S, Sync<WithRequest<($($argument,)*)>>> for F
        where
            S: 'static,
            F: Fn($($argument,)* Request) -> R + 'static,
            R: IntoResponse,
            $($argument: FromRequest<S> + 'static,)*
        {
            #[expect(non_snake_case, unused_mut, unused_variables, clippy::allow_attributes, reason = "names of arguments are those of types")]
            fn into_endpoint(self, state: Rc<S>) -> Endpoint {
                let call = move |mut request: Request| {
                    $(let $argument = match $argument::from_request(&mut request, &state) {
                        Ok(argument) => argument,
                        Err(response) => return response,
                    };)*
                    self($($argument,)* request).into_response()
                };
                Endpoint { call: Call::Sync(Box::new(call)), body: BodyUse::Collected }
            }
        }

        impl<S, F, R, $($argument,)*> RequestFunction<S, Async<($($argument,)*)>> for F
        where
            S: 'static,
            F: Fn($($argument,)*) -> R + 'static,
            R: Future<Output: IntoResponse> + 'static,
            $($argument: FromRequest<S> + 'static,)*
        {
            #[expect(non_snake_case, unused_mut, unused_variables, clippy::allow_attributes, reason = "names of arguments are those of types")]
            fn into_endpoint(self, state: Rc<S>) -> Endpoint {
                let body = body_use(&[$($argument::BODY,)*]);
                let call = move |mut request: Request| -> Responding {
                    $(let $argument = match $argument::from_request(&mut request, &state) {
                        Ok(argument) => argument,
                        Err(response) => return Box::pin(std::future::ready(response)),
                    };)*
                    let responding = self($($argument,)*);
                    Box::pin(async move { responding.await.into_response() })
                };
                Endpoint { call: Call::Async(Box::new(call)), body }
            }
        }

        impl<S, F, R, $($argument,)*> RequestFunction<S, Async<WithRequest<($($argument,)*)>>> for F
        where
            S: 'static,
            F: Fn($($argument,)* Request) -> R + 'static,
            R: Future<Output: IntoResponse> + 'static,
            $($argument: FromRequest<S> + 'static,)*
        {
            #[expect(non_snake_case, unused_mut, unused_variables, clippy::allow_attributes, reason = "names of arguments are those of types")]
            fn into_endpoint(self, state: Rc<S>) -> Endpoint {
                let body = body_use(&[BodyUse::Streamed, $($argument::BODY,)*]);
                let call = move |mut request: Request| -> Responding {
                    $(let $argument = match $argument::from_request(&mut request, &state) {
                        Ok(argument) => argument,
                        Err(response) => return Box::pin(std::future::ready(response)),
                    };)*
                    let responding = self($($argument,)* request);
                    Box::pin(async move { responding.await.into_response() })
                };
                Endpoint { call: Call::Async(Box::new(call)), body }
            }
        }
    };
}

functions!();
functions!(A);
functions!(A B);
functions!(A B C);
functions!(A B C D);
functions!(A B C D E);

/// The most that any argument needs.
fn body_use(uses: &[BodyUse]) -> BodyUse {
    uses.iter().copied().max().unwrap_or(BodyUse::Unused)
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if matches!(self.call, Call::Sync(_)) { "Sync" } else { "Async" };
        f.debug_struct("Endpoint").field("call", &kind).field("body", &self.body).finish()
    }
}
