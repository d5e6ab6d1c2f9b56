//! Parts of a request as arguments of functions: `FromRequest`, and the types that implement it.

mod state;

pub use state::State;

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
    fn from_request(request: &mut Request, state: &std::rc::Rc<S>) -> Result<Self, Response>;
}
