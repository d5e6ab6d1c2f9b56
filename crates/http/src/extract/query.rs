//! `Query`: the query of the target as a type of the application; and the bound on pairs that it shares with `Form`.

use std::ops::Deref;
use std::rc::Rc;

use serde::de::DeserializeOwned;
use tidegate_http1::Status;

use super::FromRequest;
use super::refusal::refuse;
use crate::request::Request;
use crate::response::Response;

/// The query of the target, decoded, as a type of the application: usually a struct, whose fields are the names.
///
/// A name that occurs more than once fills a `Vec`. An `Option` is `None` where its name does not occur. A request
/// without a query has an empty one.
///
/// A query that the type cannot be made of is answered with 400, as is one of more than [`FORM_PAIRS_MAX`] pairs, which
/// stops a peer that makes the server spend time on them.
///
/// ```
/// use tidegate::http::{Query, Router};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Page {
///     number: u32,
///     size: Option<u32>,
/// }
///
/// let router = Router::new().get("/tides", |Query(page): Query<Page>| {
///     format!("page {} of {} tides each\n", page.number, page.size.unwrap_or(20))
/// });
/// # drop(router);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query<T>(pub T);

/// How many pairs of name and value a query or a form may have: 1,000.
pub const FORM_PAIRS_MAX: usize = 1000;

impl<S, T: DeserializeOwned> FromRequest<S> for Query<T> {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        decode(request.head().query_bytes().unwrap_or_default(), "query").map(Self)
    }

    fn is_absent(request: &Request) -> bool {
        request.query().is_none()
    }
}

/// A type from pairs of names and values.
pub(crate) fn decode<T: DeserializeOwned>(pairs: &[u8], what: &str) -> Result<T, Response> {
    if pairs.split(|&byte| byte == b'&').nth(FORM_PAIRS_MAX).is_some() {
        return Err(refuse(Status::BAD_REQUEST, format_args!("the {what} has more than {FORM_PAIRS_MAX} pairs")));
    }
    serde_html_form::from_bytes(pairs)
        .map_err(|error| refuse(Status::BAD_REQUEST, format_args!("the {what} is not valid: {error}")))
}

impl<T> Deref for Query<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_counted_before_they_are_decoded() {
        let most = vec!["a=1"; FORM_PAIRS_MAX].join("&");
        assert_eq!(decode::<Vec<(String, u8)>>(most.as_bytes(), "query").unwrap().len(), FORM_PAIRS_MAX);
        let refused = decode::<Vec<(String, u8)>>((most + "&a=1").as_bytes(), "query").unwrap_err();
        assert_eq!(refused.status_code(), 400);
    }

    #[test]
    fn names_and_values_are_decoded() {
        let pairs: Vec<(String, String)> = decode(b"a+b=%C3%BC%26&c", "query").unwrap();
        assert_eq!(pairs, [("a b".to_owned(), "ü&".to_owned()), ("c".to_owned(), String::new())]);
        assert_eq!(decode::<Vec<(String, u8)>>(b"a=x", "query").unwrap_err().status_code(), 400);
    }
}
