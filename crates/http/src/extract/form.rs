//! `Form`: a form in the body of a request as a type of the application.

use std::ops::Deref;
use std::rc::Rc;

use serde::de::DeserializeOwned;
use tidegate_http1::Status;

use super::refusal::refuse;
use super::{FromRequest, media_type, query};
use crate::extract::BodyUse;
use crate::request::Request;
use crate::response::Response;

/// The form in the body of a request, of the media type `application/x-www-form-urlencoded`, as a type of the
/// application, as in [`Query`](crate::Query).
///
/// A body of another media type is answered with 415. One that the type cannot be made of is answered with 400, as is
/// one of more than [`FORM_PAIRS_MAX`](crate::FORM_PAIRS_MAX) pairs. The body has at most
/// [`collected_body_bytes_max`](crate::Limits::collected_body_bytes_max) bytes.
///
/// ```
/// use tidegate::http::{Form, Response, Router};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Harbour {
///     name: String,
///     boats: Vec<String>,
/// }
///
/// let router = Router::new().post("/harbours", |Form(harbour): Form<Harbour>| {
///     format!("{} has {} boats\n", harbour.name, harbour.boats.len())
/// });
/// # drop(router);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form<T>(pub T);

impl<S, T: DeserializeOwned> FromRequest<S> for Form<T> {
    const BODY: BodyUse = BodyUse::Collected;

    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        if !media_type::of(request).eq_ignore_ascii_case(MEDIA_TYPE) {
            return Err(refuse(Status::UNSUPPORTED_MEDIA_TYPE, format_args!("the body has to be {MEDIA_TYPE}")));
        }
        query::decode(request.bytes(), "form").map(Self)
    }

    fn is_absent(request: &Request) -> bool {
        super::has_no_body(request)
    }
}

const MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

impl<T> Deref for Form<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
