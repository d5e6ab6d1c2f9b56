//! `ConnectionState`: what the requests of one connection share.

use std::any::Any;
use std::cell::OnceCell;
use std::ops::Deref;
use std::rc::Rc;

use tidegate_http1::Status;
use tidegate_sys::Address;

use crate::extract::FromRequest;
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

/// A state, without its type.
pub(crate) type AnyState = Rc<dyn Any>;

/// The state of a connection whose requests have a handler each: the streams of a session share it.
pub(crate) type SharedState = Rc<OnceCell<AnyState>>;

/// Makes the state of a connection, from the address of its client.
pub(crate) type MakeState = Rc<dyn Fn(&Address) -> AnyState>;
