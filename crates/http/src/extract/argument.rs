//! `Argument`: an argument of an async function, which the request has at once, or which is awaited. `FromRequestAsync`.

use std::future::{Future, ready};
use std::rc::Rc;

use super::{BodyUse, FromRequest};
use crate::request::Request;
use crate::response::Response;

/// A part of a request that is awaited: a session that lies in a database, a token that another service checks. Async
/// functions and async [middleware](crate::Router::wrap) take such arguments beside those that implement
/// [`FromRequest`]. They are made in their order, and the first one that refuses the request ends it.
///
/// ```
/// use std::rc::Rc;
/// use std::time::Duration;
///
/// use tidegate::http::{FromRequestAsync, IntoResponse, Request, Response, Router, StatusCode};
/// use tidegate::task;
///
/// struct Session {
///     user: String,
/// }
///
/// impl<S> FromRequestAsync<S> for Session {
///     async fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
///         let Some(key) = request.header_str("x-session").map(str::to_owned) else {
///             return Err(StatusCode::UNAUTHORIZED.into_response());
///         };
///         task::sleep(Duration::from_millis(1)).await; // a query
///         Ok(Self { user: key })
///     }
/// }
///
/// let router = Router::new().get("/", async |session: Session| session.user);
/// # drop(router);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no part of a request with the state `{S}`",
    note = "implement `FromRequestAsync` for a part that is awaited, and `FromRequest` for one that is not"
)]
pub trait FromRequestAsync<S>: Sized {
    /// Whether the body is collected first, or read.
    const BODY: BodyUse = BodyUse::Unused;

    /// Takes the part out of the request.
    ///
    /// # Errors
    /// The response to a request that does not have it; the function is not called then.
    fn from_request(request: &mut Request, state: &Rc<S>) -> impl Future<Output = Result<Self, Response>>;
}

/// An argument of an async function: each type that implements [`FromRequest`] or [`FromRequestAsync`]. `M` tells the two
/// apart, and is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument of a function whose router has the state `{S}`",
    label = "neither `FromRequest<{S}>` nor `FromRequestAsync<{S}>` is implemented for it",
    note = "arguments are `Path`, `Query`, `Json`, `Form`, `State` and others that implement `FromRequest`; `Request` may only be the last",
    note = "`Json<T>`, `Query<T>`, `Form<T>` and `Path<T>` need `T: serde::de::DeserializeOwned`: derive `Deserialize`",
    note = "`State<T>` needs `Router::with_state` with a value of the type `T`"
)]
pub trait Argument<S, M>: Sized {
    /// Whether the body is collected first, or read.
    const BODY: BodyUse;

    /// Whether [`take`](Self::take) makes it.
    const IS_READY: bool;

    /// Makes one that is [ready](Self::IS_READY).
    ///
    /// # Errors
    /// The response to a request that does not have it.
    fn take(request: &mut Request, state: &Rc<S>) -> Result<Self, Response>;

    /// Makes one of either kind.
    ///
    /// # Errors
    /// The response to a request that does not have it.
    fn receive(request: &mut Request, state: &Rc<S>) -> impl Future<Output = Result<Self, Response>>;
}

/// Marks arguments that the request has at once.
#[derive(Debug)]
pub struct Ready;

/// Marks arguments that are awaited.
#[derive(Debug)]
pub struct Awaited;

impl<S, T: FromRequest<S>> Argument<S, Ready> for T {
    const BODY: BodyUse = T::BODY;
    const IS_READY: bool = true;

    #[inline]
    fn take(request: &mut Request, state: &Rc<S>) -> Result<Self, Response> {
        T::from_request(request, state)
    }

    fn receive(request: &mut Request, state: &Rc<S>) -> impl Future<Output = Result<Self, Response>> {
        ready(T::from_request(request, state))
    }
}

impl<S, T: FromRequestAsync<S>> Argument<S, Awaited> for T {
    // The request waits with its function, and must not keep the memory of the loop then.
    const BODY: BodyUse = BodyUse::max(BodyUse::Streamed, T::BODY);
    const IS_READY: bool = false;

    fn take(_: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        unreachable!("it is awaited")
    }

    fn receive(request: &mut Request, state: &Rc<S>) -> impl Future<Output = Result<Self, Response>> {
        T::from_request(request, state)
    }
}

#[diagnostic::do_not_recommend]
impl<S> Argument<S, ()> for () {
    const BODY: BodyUse = BodyUse::Unused;
    const IS_READY: bool = true;

    #[inline]
    fn take(_: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(())
    }

    fn receive(_: &mut Request, _: &Rc<S>) -> impl Future<Output = Result<Self, Response>> {
        ready(Ok(()))
    }
}

/// Several arguments, in their order.
macro_rules! tuples {
    ($($part:ident $marker:ident)*) => {
        #[diagnostic::do_not_recommend]
        impl<S, $($part: Argument<S, $marker>, $marker,)*> Argument<S, ($($marker,)*)> for ($($part,)*) {
            const BODY: BodyUse = {
                let mut most = BodyUse::Unused;
                $(most = BodyUse::max(most, $part::BODY);)*
                most
            };
            const IS_READY: bool = $($part::IS_READY &&)* true;

            #[inline]
            fn take(request: &mut Request, state: &Rc<S>) -> Result<Self, Response> {
                Ok(($($part::take(request, state)?,)*))
            }

            async fn receive(request: &mut Request, state: &Rc<S>) -> Result<Self, Response> {
                Ok(($($part::receive(request, state).await?,)*))
            }
        }
    };
}

tuples!(A MA);
tuples!(A MA B MB);
tuples!(A MA B MB C MC);
tuples!(A MA B MB C MC D MD);
tuples!(A MA B MB C MC D MD E ME);

/// The part, or the response that refuses the request: the function decides.
impl<S, T: FromRequestAsync<S>> FromRequestAsync<S> for Result<T, Response> {
    const BODY: BodyUse = T::BODY;

    async fn from_request(request: &mut Request, state: &Rc<S>) -> Result<Self, Response> {
        Ok(T::from_request(request, state).await)
    }
}
