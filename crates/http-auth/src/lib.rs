//! Authentication of HTTP requests before a function or a proxy gets them.
//!
//! | to | use |
//! |---|---|
//! | have another service decide, as nginx `auth_request`, Traefik `ForwardAuth` and Caddy `forward_auth` do | [`ForwardAuth`] |
//! | verify JSON Web Tokens (RFC 7519), by the feature `jwt` | `Jwt`, `JwtKeys`, and the extractor `Claims` |
//!
//! Both are async middleware, for [`Router::wrap`](tidegate_http::Router::wrap) or for one function
//! ([`with_middleware`](tidegate_http::with_middleware)). Names and passwords are in `tidegate-http`: `BasicAuth` and
//! `Passwords`.
//!
//! **A request that cannot be decided is refused.** Fields that the middleware adds for an upstream, such as the name of the
//! user, are removed from the client's request first.
//!
//! Read next: `forward.rs`, the way of a request to the service; `jwt/middleware.rs`, that of a token.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `forward.rs` | `ForwardAuth`: settings, and the way of a request |
//! | `question.rs` | the request to the service |
//! | `jwt/` | `Jwt`: which tokens pass (`rules.rs`), the parts of a token (`token.rs`), JSON without duplicate names (`strict_json.rs`), keys (`key.rs`, `key_set.rs`) and where they come from (`source.rs`, `store.rs`), tokens that were verified (`verified.rs`), the way of a request (`middleware.rs`), `Claims` (`claims.rs`) |

#![forbid(unsafe_code)]

mod forward;
#[cfg(feature = "jwt")]
mod jwt;
mod question;

pub use self::forward::{ForwardAuth, InvalidService};
#[cfg(feature = "jwt")]
pub use self::jwt::{
    Claims, InvalidKeys, InvalidRule, Jwt, JwtBuilder, JwtClaims, JwtKeys, RequiredClaim, TokenSource,
};
