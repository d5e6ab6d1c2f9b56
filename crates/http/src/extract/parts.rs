//! Parts of the head, of the connection and of middleware as arguments.

use std::ops::Deref;
use std::rc::Rc;

use http::{HeaderMap, Method};
use tidegate_sys::Address;

use super::FromRequest;
use super::refusal::failed;
use crate::client_address::ClientAddress;
use crate::request::Request;
use crate::response::Response;

impl<S> FromRequest<S> for Method {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(request.method())
    }
}

/// All fields, as a map that is made for this argument. To look up a few fields,
/// [`Request::header`](crate::Request::header) costs less.
impl<S> FromRequest<S> for HeaderMap {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(request.header_map())
    }
}

/// The host that a request is for, with its port if it was sent: [`Request::host`](crate::Request::host). The peer
/// chooses it.
///
/// ```
/// use tidegate::http::{Host, Router};
///
/// let router = Router::new().get("/", |host: Host| format!("this is {}\n", host.0));
/// # drop(router);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host(pub String);

impl<S> FromRequest<S> for Host {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(Self(request.host().to_owned()))
    }

    fn is_absent(request: &Request) -> bool {
        request.host().is_empty()
    }
}

impl Deref for Host {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<S> FromRequest<S> for ClientAddress {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(request.client())
    }
}

/// The address of the peer: the other end of the connection, or the one that a trusted PROXY header reports.
/// [`ClientAddress`] is the client behind proxies.
///
/// ```
/// use tidegate::http::{Peer, Router};
///
/// let router = Router::new().get("/address", |Peer(address)| address.to_string());
/// # drop(router);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer(pub Address);

impl<S> FromRequest<S> for Peer {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(Self(request.peer().clone()))
    }
}

impl Deref for Peer {
    type Target = Address;

    fn deref(&self) -> &Address {
        &self.0
    }
}

/// A value that middleware has added to the request: a clone of that in
/// [`Request::extensions`](crate::Request::extensions).
///
/// A request without it is answered with 500, and the log names the type: the middleware is missing. `Option<Extension>`
/// is `None` then.
///
/// ```
/// use tidegate::http::{Extension, Middleware, Request, Response, Router};
///
/// #[derive(Clone)]
/// struct User(&'static str);
///
/// struct Login;
///
/// impl Middleware for Login {
///     fn before(&self, request: &mut Request) -> Result<(), Response> {
///         request.extensions_mut().insert(User("pilot"));
///         Ok(())
///     }
/// }
///
/// let router = Router::new().get("/me", |Extension(user): Extension<User>| user.0).with(Login);
/// # drop(router);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extension<T>(pub T);

impl<S, T: Clone + Send + Sync + 'static> FromRequest<S> for Extension<T> {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        request.extensions().get::<T>().cloned().map(Self).ok_or_else(|| {
            let name = std::any::type_name::<T>();
            tracing::error!("no middleware has added the extension `{name}`, an argument of a function");
            failed(format_args!("no middleware has added the extension `{name}`, an argument of the function"))
        })
    }

    fn is_absent(request: &Request) -> bool {
        request.extensions().get::<T>().is_none()
    }
}

impl<T> Deref for Extension<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
