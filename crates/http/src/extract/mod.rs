//! Parts of a request as arguments of functions: `FromRequest`, and the types that implement it.

mod state;

pub use state::State;

use std::rc::Rc;

use crate::endpoint::BodyUse;
use crate::request::Request;
use crate::response::Response;

/// A part of a request, as an argument of a function of the application. `S` is the state of its
/// [`Router`](crate::Router).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no part of a request with the state `{S}`",
    note = "arguments are `Path`, `Query`, `Json`, `Form`, `State` and others that implement `FromRequest`; `Request` may only be the last"
)]
pub trait FromRequest<S>: Sized {
    /// Whether the body is collected first, or read.
    const BODY: BodyUse = BodyUse::Unused;

    /// Takes the part out of the request.
    ///
    /// # Errors
    /// The response to a request that does not have it; the function is not called then.
    fn from_request(request: &mut Request, state: &Rc<S>) -> Result<Self, Response>;
}

/// Several parts, in their order.
macro_rules! tuples {
    ($($part:ident)*) => {
        impl<S, $($part: FromRequest<S>,)*> FromRequest<S> for ($($part,)*) {
            const BODY: BodyUse = {
                let mut most = BodyUse::Unused;
                $(most = BodyUse::max(most, $part::BODY);)*
                most
            };

            fn from_request(request: &mut Request, state: &Rc<S>) -> Result<Self, Response> {
                Ok(($($part::from_request(request, state)?,)*))
            }
        }
    };
}

impl<S> FromRequest<S> for () {
    #[inline]
    fn from_request(_: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(())
    }
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
