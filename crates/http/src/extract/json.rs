//! `Json`: JSON in the body of a request as a type of the application, and a value of the application as a response.

use std::cell::Cell;
use std::io;
use std::ops::Deref;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tidegate_http1::{ContentType, Status};

use super::refusal::{failed, refuse};
use super::{FromRequest, media_type};
use crate::extract::BodyUse;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// JSON: the body of a request as a type of the application, or a value of the application as a response.
///
/// As an argument: a body whose media type is neither `application/json` nor ends with `+json` is answered with 415. One
/// that is not JSON is answered with 400, and JSON that does not fit the type with 422; both texts have the line and
/// column. The body has at most [`collected_body_bytes_max`](crate::Limits::collected_body_bytes_max) bytes, and its
/// arrays and objects are nested at most 128 deep, which stops a peer that exhausts the stack; deeper is 400.
///
/// As a response: `application/json`. A value that cannot be serialized becomes a 500, and the log has the reason.
///
/// ```
/// use tidegate::http::{Json, Router};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize, Serialize)]
/// struct Tide {
///     harbour: String,
///     metres: f64,
/// }
///
/// let router = Router::new().post("/rise", |Json(mut tide): Json<Tide>| {
///     tide.metres += 1.0;
///     Json(tide)
/// });
/// # drop(router);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<S, T: DeserializeOwned> FromRequest<S> for Json<T> {
    const BODY: BodyUse = BodyUse::Collected;

    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        if !media_type::is_json(media_type::of(request)) {
            return Err(refuse(Status::UNSUPPORTED_MEDIA_TYPE, "the body has to be application/json"));
        }
        serde_json::from_slice(request.bytes()).map(Self).map_err(|error| match error.classify() {
            Category::Data => refuse(Status::UNPROCESSABLE_CONTENT, format_args!("the JSON does not fit: {error}")),
            _ => refuse(Status::BAD_REQUEST, format_args!("the body is not JSON: {error}")),
        })
    }

    fn is_absent(request: &Request) -> bool {
        super::has_no_body(request)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serialize(&self.0) {
            Ok(bytes) => Response::new().content_type(ContentType::JSON).body(bytes),
            Err(error) => {
                tracing::error!("a response cannot be serialized as JSON: {error}");
                failed(format_args!("the response cannot be serialized as JSON: {error}"))
            }
        }
    }
}

impl<T> Deref for Json<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

thread_local! {
    /// Where values are serialized. Short ones share its memory: in most cases the codec copies one at once, and the next
    /// one reuses the memory, so that nothing is allocated.
    static BUFFER: Cell<Option<BytesMut>> = const { Cell::new(None) };
}

/// Up to this length the codec copies a body; a longer one is kept until it is sent.
const SHORT_BYTES_MAX: usize = tidegate_buffer::LINK_BYTES_MIN - 1;

/// The memory of [`BUFFER`].
const BUFFER_BYTES: usize = 4 * SHORT_BYTES_MAX;

fn serialize(value: &impl Serialize) -> serde_json::Result<Bytes> {
    // It is taken: serializing may call application code, which may come here again.
    let mut buffer = BUFFER.take().unwrap_or_default();
    if buffer.capacity() <= SHORT_BYTES_MAX {
        buffer.reserve(BUFFER_BYTES);
    }
    let result = serde_json::to_writer(Writer(&mut buffer), value);
    if result.is_err() {
        buffer.clear();
        BUFFER.set(Some(buffer));
        return result.map(|()| Bytes::new());
    }
    if buffer.len() <= SHORT_BYTES_MAX {
        let bytes = buffer.split().freeze();
        BUFFER.set(Some(buffer));
        return Ok(bytes);
    }
    if buffer.len() <= BUFFER_BYTES {
        // It keeps no more memory than it has bytes, while the peer reads.
        let bytes = Bytes::copy_from_slice(&buffer);
        buffer.clear();
        BUFFER.set(Some(buffer));
        return Ok(bytes);
    }
    Ok(buffer.freeze())
}

struct Writer<'a>(&'a mut BytesMut);

impl io::Write for Writer<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn body(value: impl Serialize) -> Vec<u8> {
        let response = Json(value).into_response();
        assert_eq!(response.status_code(), 200);
        assert_eq!(response.field("Content-Type"), Some(&b"application/json"[..]));
        response.body.collected().to_vec()
    }

    #[test]
    fn values_of_all_lengths_are_whole() {
        for length in [0, 1, SHORT_BYTES_MAX - 2, SHORT_BYTES_MAX - 1, BUFFER_BYTES - 2, BUFFER_BYTES - 1, 1_000_000] {
            let text = "x".repeat(length);
            assert_eq!(body(&text), format!("\"{text}\"").into_bytes(), "{length}");
        }
    }

    #[test]
    fn bodies_that_are_kept_are_not_overwritten() {
        let kept: Vec<Bytes> = (0..10_000_u32).map(|number| serialize(&[number; 3]).unwrap()).collect();
        for (number, bytes) in kept.iter().enumerate() {
            assert_eq!(*bytes, format!("[{number},{number},{number}]"));
        }
    }

    #[test]
    fn a_value_that_fails_leaves_nothing_behind() {
        let fails = HashMap::from([(vec![1_u8], "a key that is no text")]);
        let response = Json([Ok("part"), Err(fails)].map(|one| one.map_err(Fails))).into_response();
        assert_eq!(response.status_code(), 500);
        assert_eq!(body(7), b"7");
    }

    #[test]
    fn serializing_may_serialize() {
        struct Nested;
        impl Serialize for Nested {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let inner = serialize(&[1, 2]).map_err(serde::ser::Error::custom)?;
                serializer.serialize_str(std::str::from_utf8(&inner).map_err(serde::ser::Error::custom)?)
            }
        }
        assert_eq!(body((Nested, 3)), b"[\"[1,2]\",3]");
    }

    /// Serializes as its content.
    #[derive(Serialize)]
    struct Fails(HashMap<Vec<u8>, &'static str>);
}
