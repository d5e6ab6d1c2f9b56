//! Parts of a request as arguments of functions: `FromRequest`, and the types that implement it.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | `FromRequest`: a part of a request as an argument; tuples of them |
//! | `argument.rs` | `FromRequestAsync`: a part that is awaited; `Argument`, either kind |
//! | `body_use.rs` | `BodyUse`, the part of the body that a function needs |
//! | `connection_state.rs` | `ConnectionState`: a value that the requests of one connection share |
//! | `path.rs` | `Path`, the parameters of the route |
//! | `parameters.rs` | the deserializer of serde for such parameters |
//! | `query.rs` | `Query`, and the bound on pairs of queries and forms |
//! | `form.rs` | `Form`, a form in the body |
//! | `json.rs` | `Json`, of a body and as a response; the memory that responses are serialized in |
//! | `whole_body.rs` | `Bytes`, `Vec<u8>`, `String`, `Body` |
//! | `multipart.rs` | `Multipart`, forms with files: the pieces on their way to the parser, and its bounds |
//! | `cookies.rs` | `Cookies` of a request, and cookies of a response |
//! | `parts.rs` | `Method`, `HeaderMap`, `Host`, `Peer`, `Extension` |
//! | `state.rs` | `State` |
//! | `optional.rs` | `Option` and `Result` of a part |
//! | `media_type.rs` | the media type of a body |
//! | `refusal.rs` | the responses to requests that lack a part |

mod argument;
mod body_use;
mod connection_state;
#[cfg(feature = "cookies")]
mod cookies;
#[cfg(feature = "form")]
mod form;
#[cfg(feature = "json")]
mod json;
#[cfg(any(feature = "form", feature = "json", feature = "multipart"))]
mod media_type;
#[cfg(feature = "multipart")]
mod multipart;
mod optional;
mod parameters;
mod parts;
mod path;
#[cfg(feature = "form")]
mod query;
mod refusal;
mod state;
mod whole_body;

pub use argument::{Argument, FromRequestAsync};
pub use body_use::BodyUse;
pub use connection_state::ConnectionState;
#[cfg(feature = "cookies")]
pub use cookies::Cookies;
#[cfg(feature = "form")]
pub use form::Form;
#[cfg(feature = "json")]
pub use json::Json;
#[cfg(feature = "multipart")]
pub use multipart::{Field, Multipart, MultipartError, MultipartLimits};
pub use parts::{Extension, Host, Peer};
pub use path::Path;
#[cfg(feature = "form")]
pub use query::{FORM_PAIRS_MAX, Query};
pub use state::State;

use std::rc::Rc;

use crate::request::Request;
use crate::response::Response;

/// A part of a request, as an argument of a function of the application. `S` is the state of its
/// [`Router`](crate::Router).
///
/// | argument | part |
/// |---|---|
/// | [`Path<T>`](Path) | the parameters of the route |
/// | [`Query<T>`](Query) | the query |
/// | [`Json<T>`](Json) | a JSON body |
/// | [`Form<T>`](Form) | a body that is a form |
/// | [`Bytes`](bytes::Bytes), `Vec<u8>`, `String` | the whole body |
/// | [`Body`](crate::Body) | the body, read piece by piece; for async functions |
/// | `Multipart`, with the feature `multipart` | a form with files, read part by part; for async functions |
/// | `Cookies`, with the feature `cookies` | the cookies |
/// | [`Method`](crate::Method), [`HeaderMap`](crate::HeaderMap), [`Host`] | parts of the head |
/// | [`LastEventId`](crate::LastEventId) | the event after which an event source continues |
/// | [`Peer`] | the address of the client |
/// | [`State<S>`](State) | the state of the router |
/// | [`ConnectionState<T>`](crate::ConnectionState) | the state of the connection |
/// | [`Extension<T>`](Extension) | a value that middleware has added |
/// | `Option<T>` | the part, or `None` if the request does not have it |
/// | `Result<T, Response>` | the part, or the response that refuses the request |
///
/// An application implements it for its own types:
///
/// ```
/// use std::rc::Rc;
///
/// use tidegate::http::{FromRequest, IntoResponse, Request, Response, Router, StatusCode};
///
/// /// A request with a token.
/// struct Token(String);
///
/// impl<S> FromRequest<S> for Token {
///     fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
///         match request.header_str("authorization").and_then(|value| value.strip_prefix("Bearer ")) {
///             Some(token) => Ok(Self(token.to_owned())),
///             None => Err(StatusCode::UNAUTHORIZED.into_response()),
///         }
///     }
/// }
///
/// let router = Router::new().get("/", |token: Token| format!("{} characters\n", token.0.len()));
/// # drop(router);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no part of a request with the state `{S}`",
    note = "arguments are `Path`, `Query`, `Json`, `Form`, `State` and others that implement `FromRequest`; `Request` may only be the last",
    note = "one that implements `FromRequestAsync` is for async functions"
)]
pub trait FromRequest<S>: Sized {
    /// Whether the body is collected first, or read.
    const BODY: BodyUse = BodyUse::Unused;

    /// Takes the part out of the request.
    ///
    /// # Errors
    /// The response to a request that does not have it; the function is not called then.
    fn from_request(request: &mut Request, state: &Rc<S>) -> Result<Self, Response>;

    /// Whether the request does not have the part at all, so that an `Option` of it is `None`.
    fn is_absent(_: &Request) -> bool {
        false
    }
}

/// Whether a request has no body, or an empty one without a media type.
fn has_no_body(request: &Request) -> bool {
    let length = request.content_length();
    length == Some(0) || (request.body().length() == Some(0) && request.header("content-type").is_none())
}

/// Several parts, in their order.
macro_rules! tuples {
    ($($part:ident)*) => {
        #[diagnostic::do_not_recommend]
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
