//! `SecurityFields`: response fields that have a browser protect the user.

use std::time::Duration;

use super::{Middleware, RequestInfo};
use crate::response::Response;

/// Adds fields to each response that have browsers protect their users. A response that has one of them keeps its own.
///
/// | field | value | against |
/// |---|---|---|
/// | `X-Content-Type-Options` | `nosniff` | an upload that a browser takes for a script |
/// | `X-Frame-Options` | `SAMEORIGIN` | clicks into a hidden frame |
/// | `Referrer-Policy` | `strict-origin-when-cross-origin` | paths that other sites see |
/// | `Cross-Origin-Opener-Policy` | `same-origin` | windows that other sites have opened |
///
/// `Strict-Transport-Security` and `Content-Security-Policy` are added if they are set, since both can break a site.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::http::{Router, SecurityFields};
///
/// let fields = SecurityFields::new()
///     .strict_transport(Duration::from_secs(365 * 24 * 60 * 60))
///     .set("Content-Security-Policy", "default-src 'self'")
///     .without("X-Frame-Options");
/// let router = Router::new().get("/", || "hello").with(fields);
/// # drop(router);
/// ```
#[derive(Debug, Clone)]
pub struct SecurityFields {
    fields: Vec<(Box<str>, Box<str>)>,
    /// The value of `Strict-Transport-Security`, which only encrypted responses have (RFC 6797 §7.2).
    strict_transport: Option<Box<str>>,
}

impl SecurityFields {
    /// The fields of the table above.
    #[must_use]
    pub fn new() -> Self {
        let fields = [
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "SAMEORIGIN"),
            ("Referrer-Policy", "strict-origin-when-cross-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
        ];
        Self { fields: fields.map(|(name, value)| (name.into(), value.into())).into(), strict_transport: None }
    }

    /// Adds a field, or replaces its value.
    ///
    /// # Panics
    /// If the field cannot be sent: the name is no token, or the value has control characters.
    #[must_use]
    pub fn set(self, name: &str, value: &str) -> Self {
        if let Err(error) = Response::new().header(name, value) {
            panic!("the field `{name}: {value}` cannot be sent: {error}");
        }
        let mut others = self.without(name);
        others.fields.push((name.into(), value.into()));
        others
    }

    /// Leaves out a field.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self
    }

    /// Has browsers use HTTPS alone for this host, for so long after each response, in whole seconds (RFC 6797). Browsers
    /// cannot be made to forget it otherwise, so begin with a short time. Responses without encryption do not carry it.
    #[must_use]
    pub fn strict_transport(self, time: Duration) -> Self {
        Self { strict_transport: Some(format!("max-age={}", time.as_secs()).into()), ..self }
    }

    /// The same for all hosts below this one as well.
    #[must_use]
    pub fn strict_transport_with_subdomains(self, time: Duration) -> Self {
        Self { strict_transport: Some(format!("max-age={}; includeSubDomains", time.as_secs()).into()), ..self }
    }
}

impl Default for SecurityFields {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for SecurityFields {
    fn after(&self, info: &RequestInfo, response: &mut Response) {
        let strict = self.strict_transport.iter().filter(|_| info.request().is_secure());
        let strict = strict.map(|value| ("Strict-Transport-Security", &**value));
        for (name, value) in self.fields.iter().map(|(name, value)| (&**name, &**value)).chain(strict) {
            if response.field(name).is_none() {
                // They were checked when they were set.
                let _ = response.add_header(name, value);
            }
        }
    }
}
