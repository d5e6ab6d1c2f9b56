//! `State`: the state that a router's functions share.

use std::ops::Deref;
use std::rc::Rc;

use super::FromRequest;
use crate::request::Request;
use crate::response::Response;

/// The state of the router, which its functions on one loop share: see [`Router::with_state`](crate::Router::with_state).
#[derive(Debug)]
pub struct State<S>(pub Rc<S>);

impl<S> FromRequest<S> for State<S> {
    fn from_request(_: &mut Request, state: &Rc<S>) -> Result<Self, Response> {
        Ok(Self(state.clone()))
    }
}

impl<S> Deref for State<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}
