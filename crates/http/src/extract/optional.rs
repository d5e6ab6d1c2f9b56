//! `Option` and `Result` of a part: requests without it, and requests in which it is wrong.

use std::rc::Rc;

use super::FromRequest;
use crate::extract::BodyUse;
use crate::request::Request;
use crate::response::Response;

/// `None` if the request does not have the part: no query, no body, no such extension. A part that the request has, but
/// that is wrong, is refused as without the `Option`.
impl<S, T: FromRequest<S>> FromRequest<S> for Option<T> {
    const BODY: BodyUse = T::BODY;

    fn from_request(request: &mut Request, state: &Rc<S>) -> Result<Self, Response> {
        if T::is_absent(request) { Ok(None) } else { T::from_request(request, state).map(Some) }
    }
}

/// The part, or the response that refuses the request: the function decides.
impl<S, T: FromRequest<S>> FromRequest<S> for Result<T, Response> {
    const BODY: BodyUse = T::BODY;

    fn from_request(request: &mut Request, state: &Rc<S>) -> Result<Self, Response> {
        Ok(T::from_request(request, state))
    }

    fn is_absent(request: &Request) -> bool {
        T::is_absent(request)
    }
}
