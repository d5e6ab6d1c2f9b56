//! JSON Web Tokens (RFC 7519), signed (RFC 7515).

mod claims;
mod key;
mod key_set;
mod middleware;
mod rules;
mod source;
mod store;
mod strict_json;
mod token;
mod verified;

pub use self::claims::{Claims, JwtClaims};
pub use self::key_set::InvalidKeys;
pub use self::middleware::{Jwt, JwtBuilder, TokenSource};
pub use self::rules::{InvalidRule, RequiredClaim};
pub use self::store::JwtKeys;
