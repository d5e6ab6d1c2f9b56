//! `Path`: the parameters of the route as a type of the application.

use std::ops::Deref;
use std::rc::Rc;

use serde::de::DeserializeOwned;
use tidegate_http1::Status;

use super::FromRequest;
use super::parameters::{ParameterError, Parameters};
use super::refusal::{failed, refuse};
use crate::request::Request;
use crate::response::Response;

/// The parameters of the route, percent-decoded, as a type of the application.
///
/// | route | argument |
/// |---|---|
/// | `/tides/{harbour}` | `Path<String>`, or any other type of one value |
/// | `/tides/{year}/{month}` | `Path<(u16, u8)>`: the values in their order |
/// | the same | `Path<Month>` with a struct whose fields are `year` and `month`, or a map |
///
/// A value is a number, a `bool`, a `char`, a text, an enum of unit variants, an `Option` of one of these, which is never
/// `None`, or a newtype around one.
///
/// A value that does not parse, or is not UTF-8, is answered with 400 and a text that names the parameter. If the type
/// does not fit the route, such as a field that is no parameter, the response is a 500, and the log has the reason. The
/// number of values is that of the route, and their size is bounded by
/// [`request_line_bytes_max`](crate::Limits::request_line_bytes_max).
///
/// ```
/// use tidegate::http::{Path, Router};
///
/// let router = Router::new().get("/tides/{year}/{month}", |Path((year, month)): Path<(u16, u8)>| {
///     format!("tides of {month}/{year}\n")
/// });
/// # drop(router);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path<T>(pub T);

impl<S, T: DeserializeOwned> FromRequest<S> for Path<T> {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        T::deserialize(Parameters::of(request)).map(Self).map_err(|error| respond(&error, request))
    }
}

#[cold]
fn respond(error: &ParameterError, request: &Request) -> Response {
    match error {
        ParameterError::Value { .. } => refuse(Status::BAD_REQUEST, error),
        ParameterError::Type(_) => {
            let route = request.route().unwrap_or_default();
            tracing::error!("the argument `Path` of a function does not fit its route `{route}`: {error}");
            failed(format_args!("the argument `Path` of the function does not fit its route: {error}"))
        }
    }
}

impl<T> Deref for Path<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
