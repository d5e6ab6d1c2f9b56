//! An async extractor as an argument of a function that is not async.
//@ Session` is no part of a request with the state `()`
//@ one that implements `FromRequestAsync` is for async functions

use std::rc::Rc;

use tidegate::http::{FromRequestAsync, Request, Response};

struct Session;

impl<S> FromRequestAsync<S> for Session {
    async fn from_request(_: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(Self)
    }
}

#[tidegate::debug_function]
fn show(_session: Session) -> &'static str {
    "shown"
}
