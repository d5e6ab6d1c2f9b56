//! `StickyCookie`: a client stays with the upstream that has answered it first.
//!
//! The cookie has a keyed hash of the address: it names no address, and a client that invents one gets an upstream like any
//! other.

use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tidegate_http::{Request, gateway};
use tidegate_http1::{Fields, InvalidField};

use tidegate_l4::hash_of;

/// A cookie that keeps a client at one upstream; see [`Proxy::sticky`](super::Proxy::sticky).
///
/// It is set with `Path=/`, `HttpOnly`, `SameSite=Lax`, and over TLS `Secure`, until the browser ends.
///
/// ```
/// use std::time::Duration;
/// use tidegate::http::proxy::{Proxy, StickyCookie, Upstreams};
///
/// let upstreams = Upstreams::new(["http://10.0.0.1:8080", "http://10.0.0.2:8080"])?;
/// let cookie = StickyCookie::new("upstream")?.secret("a long secret").max_age(Duration::from_secs(3600));
/// let proxy = Proxy::new(&upstreams).sticky(cookie);
/// # drop(proxy);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct StickyCookie {
    name: String,
    secret: u64,
    path: String,
    domain: Option<String>,
    max_age: Option<Duration>,
    same_site: &'static str,
    is_always_secure: bool,
}

impl StickyCookie {
    /// A cookie of this name.
    ///
    /// # Errors
    /// [`InvalidField::Name`] if the name is no token.
    pub fn new(name: &str) -> Result<Self, InvalidField> {
        // Fields have the same tokens for names; one such as `Host` is a fine one for a cookie.
        match Fields::new().push(name, "") {
            Ok(()) | Err(InvalidField::Reserved) => {}
            Err(error) => return Err(error),
        }
        Ok(Self {
            name: name.to_owned(),
            secret: RandomState::new().hash_one(()),
            path: "/".to_owned(),
            domain: None,
            max_age: None,
            same_site: "Lax",
            is_always_secure: false,
        })
    }

    /// The key of the hash, in place of a random one: cookies outlive the process then, and several processes agree on them.
    #[must_use]
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = hash_of(secret.as_ref());
        self
    }

    /// The paths for which browsers send it, in place of `/`.
    ///
    /// # Errors
    /// [`InvalidField::Value`] if it would end the attribute.
    pub fn path(mut self, path: &str) -> Result<Self, InvalidField> {
        self.path = attribute(path)?;
        Ok(self)
    }

    /// The domain whose hosts get it; unless set, it is the host of the request alone.
    ///
    /// # Errors
    /// [`InvalidField::Value`] if it would end the attribute.
    pub fn domain(mut self, domain: &str) -> Result<Self, InvalidField> {
        self.domain = Some(attribute(domain)?);
        Ok(self)
    }

    /// How long a browser keeps it.
    #[must_use]
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = Some(max_age);
        self
    }

    /// Browsers send it with requests of other sites as well (`SameSite=None`), which needs TLS.
    #[must_use]
    pub fn cross_site(mut self) -> Self {
        (self.same_site, self.is_always_secure) = ("None", true);
        self
    }

    /// Sets `Secure` in any case: for a gateway behind a proxy that ends TLS.
    #[must_use]
    pub fn secure(mut self) -> Self {
        self.is_always_secure = true;
        self
    }

    /// The id that a request names.
    pub(super) fn id_in(&self, request: &Request) -> Option<u64> {
        let value = gateway::cookie(request, &self.name)?;
        let is_id = value.len() == ID_DIGITS && value.iter().all(u8::is_ascii_hexdigit);
        u64::from_str_radix(std::str::from_utf8(value).ok().filter(|_| is_id)?, 16).ok()
    }

    /// The id of an upstream, from the hash of its address.
    pub(super) fn id_of(&self, upstream: u64) -> u64 {
        hash_of((self.secret, upstream))
    }

    /// Adds the cookie for an upstream, if the request does not name it. Returns whether it was added.
    pub(super) fn add_to(&self, fields: &mut Fields, request: &Request, upstream: u64) -> bool {
        let id = self.id_of(upstream);
        if self.id_in(request) == Some(id) {
            return false;
        }
        let Self { name, path, same_site, .. } = self;
        let mut text = format!("{name}={id:016x}; Path={path}; HttpOnly; SameSite={same_site}");
        if self.is_always_secure || request.is_secure() {
            text.push_str("; Secure");
        }
        if let Some(domain) = &self.domain {
            let _ = write!(text, "; Domain={domain}");
        }
        if let Some(max_age) = self.max_age {
            let _ = write!(text, "; Max-Age={}", max_age.as_secs());
        }
        fields.push("Set-Cookie", text).is_ok()
    }
}

fn attribute(text: &str) -> Result<String, InvalidField> {
    let is_attribute = text.bytes().all(|byte| (b' '..0x7f).contains(&byte) && byte != b';');
    if is_attribute { Ok(text.to_owned()) } else { Err(InvalidField::Value) }
}

const ID_DIGITS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_request;

    fn set(cookie: &StickyCookie, lines: &str) -> String {
        let mut fields = Fields::new();
        cookie.add_to(&mut fields, &test_request("GET", "/", lines), 7);
        String::from_utf8(fields.bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_cookie_is_set_unless_the_request_has_it() {
        let cookie = StickyCookie::new("to").unwrap().secret("s");
        let id = format!("{:016x}", cookie.id_of(7));
        assert_eq!(set(&cookie, ""), format!("Set-Cookie: to={id}; Path=/; HttpOnly; SameSite=Lax\r\n"));
        assert_eq!(set(&cookie, &format!("Cookie: a=b; to={id}\r\n")), "");
        for other in ["to=", "to=+00000000000000f", "to=zz", "To=1", &format!("to={:016x}", cookie.id_of(8))] {
            assert!(set(&cookie, &format!("Cookie: {other}\r\n")).starts_with("Set-Cookie: to="), "{other}");
        }
        let all = cookie.path("/a").unwrap().domain("b.example").unwrap().cross_site().max_age(Duration::from_secs(9));
        let attributes = "Path=/a; HttpOnly; SameSite=None; Secure; Domain=b.example; Max-Age=9";
        assert_eq!(set(&all, ""), format!("Set-Cookie: to={id}; {attributes}\r\n"));
    }

    #[test]
    fn an_id_depends_on_the_secret() {
        let one = StickyCookie::new("to").unwrap();
        assert_ne!(one.id_of(7), one.clone().secret("a").id_of(7));
        assert_ne!(one.clone().secret("b").id_of(7), one.clone().secret("a").id_of(7));
        assert_ne!(one.id_of(7), StickyCookie::new("to").unwrap().id_of(7));
    }

    #[test]
    fn an_attribute_cannot_set_others() {
        let cookie = StickyCookie::new("to").unwrap();
        assert!(cookie.clone().path("/; Domain=evil").is_err() && cookie.domain("a\r\nX: 1").is_err());
        assert!(StickyCookie::new("a b").is_err() && StickyCookie::new("").is_err());
    }
}
