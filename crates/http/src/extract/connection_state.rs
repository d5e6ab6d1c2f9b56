//! `ConnectionState`: the state that one connection's requests share.

use std::ops::Deref;
use std::rc::Rc;

use tidegate_http1::Status;

use super::FromRequest;
use crate::request::Request;
use crate::response::Response;

/// The state of the connection, which its requests share: made when the first request of the connection arrives, by the
/// function that [`Router::connection_state`](crate::Router::connection_state) was called with, and dropped when the
/// connection is closed and no request of it is left.
///
/// A request of a router without such a function, or whose function makes another type, is answered with 500, and the
/// log has the reason.
///
/// ```
/// use std::cell::Cell;
///
/// use tidegate::http::{ConnectionState, Router};
///
/// let router = Router::new().connection_state(|_peer| Cell::new(0)).get("/", |requests: ConnectionState<Cell<u32>>| {
///     requests.set(requests.get() + 1);
///     format!("request {} of this connection\n", requests.get())
/// });
/// # drop(router);
/// ```
#[derive(Debug)]
pub struct ConnectionState<T>(pub Rc<T>);

impl<S, T: 'static> FromRequest<S> for ConnectionState<T> {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        request.connection_state().map(Self).ok_or_else(|| {
            tracing::error!("a function requests a state of its connection that the router does not make");
            Response::of_error(Status::INTERNAL_SERVER_ERROR)
        })
    }

    fn is_absent(request: &Request) -> bool {
        request.connection_state::<T>().is_none()
    }
}

impl<T> Deref for ConnectionState<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
