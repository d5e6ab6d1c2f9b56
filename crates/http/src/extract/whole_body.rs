//! The body of a request as an argument: `Bytes`, `Vec<u8>`, `String`, and `Body` for one that is read piece by piece.

use std::rc::Rc;

use bytes::Bytes;
use tidegate_http_message::Body;
use tidegate_http1::Status;

use super::FromRequest;
use super::refusal::refuse;
use crate::extract::BodyUse;
use crate::request::Request;
use crate::response::Response;

/// The whole body, of at most [`collected_body_bytes_max`](crate::Limits::collected_body_bytes_max) bytes. The request
/// keeps it as well.
impl<S> FromRequest<S> for Bytes {
    const BODY: BodyUse = BodyUse::Collected;

    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(request.body().to_bytes())
    }

    fn is_absent(request: &Request) -> bool {
        super::has_no_body(request)
    }
}

/// The whole body, of at most [`collected_body_bytes_max`](crate::Limits::collected_body_bytes_max) bytes. The request
/// keeps it as well.
impl<S> FromRequest<S> for Vec<u8> {
    const BODY: BodyUse = BodyUse::Collected;

    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(request.bytes().to_vec())
    }

    fn is_absent(request: &Request) -> bool {
        super::has_no_body(request)
    }
}

/// The whole body as text, whatever its media type; a body that is not UTF-8 is answered with 400. It has at most
/// [`collected_body_bytes_max`](crate::Limits::collected_body_bytes_max) bytes. The request keeps it as well.
impl<S> FromRequest<S> for String {
    const BODY: BodyUse = BodyUse::Collected;

    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        match std::str::from_utf8(request.bytes()) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(refuse(Status::BAD_REQUEST, format_args!("the body is not UTF-8: {error}"))),
        }
    }

    fn is_absent(request: &Request) -> bool {
        super::has_no_body(request)
    }
}

/// The body, which an async function reads piece by piece; the [`Request`] has an empty one then. If another argument is
/// made of the whole body, or the function is not async, the body is in memory.
impl<S> FromRequest<S> for Body {
    const BODY: BodyUse = BodyUse::Streamed;

    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(std::mem::take(request.body_mut()))
    }
}
