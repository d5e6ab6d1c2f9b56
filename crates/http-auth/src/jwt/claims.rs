//! `Claims`: the claims of a verified token as a type of the application.

use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidegate_http::{FromRequest, IntoResponse, Request, Response};

/// The claims of a verified token, a JSON object: among the [`extensions`](Request::extensions) of a request that
/// [`Jwt::require`](crate::Jwt::require) has let pass.
#[derive(Debug, Clone, PartialEq)]
pub struct JwtClaims(pub Arc<Value>);

/// The claims of a verified token, as an argument of a function.
///
/// A token whose claims are not of this type is answered with 403. A request that has not passed [`Jwt`](crate::Jwt) is
/// answered with 500, and the log says so; `Option<Claims<T>>` is `None` then.
///
/// ```
/// use serde::Deserialize;
/// use tidegate::http::Router;
/// use tidegate::http::auth::{Claims, Jwt, JwtKeys};
///
/// #[derive(Deserialize)]
/// struct User {
///     sub: String,
///     #[serde(default)]
///     roles: Vec<String>,
/// }
///
/// let keys = JwtKeys::url("https://login.example.org/keys")?;
/// let jwt = Jwt::builder(keys).issuer("https://login.example.org").audience("tides").build()?;
/// let router = move || {
///     let me = |Claims(user): Claims<User>| format!("{} has {} roles\n", user.sub, user.roles.len());
///     Router::new().get("/me", me).wrap(jwt.require())
/// };
/// # drop(router);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claims<T>(pub T);

impl<S, T: DeserializeOwned + 'static> FromRequest<S> for Claims<T> {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        let Some(JwtClaims(claims)) = request.extensions().get() else {
            tracing::error!(
                subsystem = "http",
                "no `Jwt` has verified a token for a function with `Claims`: add `Jwt::require`"
            );
            return Err(StatusCode::INTERNAL_SERVER_ERROR.into_response());
        };
        T::deserialize(&**claims).map(Self).map_err(|error| {
            tracing::debug!(subsystem = "http", "the claims of a token are not those of a function: {error}");
            StatusCode::FORBIDDEN.into_response()
        })
    }

    fn is_absent(request: &Request) -> bool {
        request.extensions().get::<JwtClaims>().is_none()
    }
}

impl<T> Deref for Claims<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
