//! `Cookies` of a request, and cookies of a response.

use std::fmt::Write;
use std::rc::Rc;

use cookie::Cookie;
use tidegate_http1::InvalidField;

use super::FromRequest;
use crate::request::Request;
use crate::response::Response;

/// The cookies of a request. Their size and number are bounded by
/// [`head_bytes_max`](crate::Limits::head_bytes_max).
///
/// Values are as the peer sent them, without percent-decoding. Malformed cookies are skipped. The peer chooses names
/// and values: an application does not trust them.
///
/// ```
/// use tidegate::http::{Cookie, Cookies, Response, Router};
///
/// let router = Router::new().get("/visit", |cookies: Cookies| {
///     let visits = cookies.get("visits").and_then(|value| value.parse().ok()).unwrap_or(0_u32).saturating_add(1);
///     let cookie = Cookie::build(("visits", visits.to_string())).path("/").http_only(true);
///     Response::text(format!("visit {visits}\n")).cookie(&cookie.into())
/// });
/// # drop(router);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cookies(Vec<Cookie<'static>>);

impl Cookies {
    /// The value of the first cookie of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// All cookies in their order, as pairs of name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(Cookie::name_value_trimmed)
    }

    fn parse<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Self {
        // A cookie that is not UTF-8, which another site of the same domain may have set, does not hide the others.
        let pairs = fields.flat_map(|field| field.split(|&byte| byte == b';'));
        let texts = pairs.filter_map(|pair| std::str::from_utf8(pair).ok());
        Self(texts.flat_map(Cookie::split_parse).flatten().map(Cookie::into_owned).collect())
    }
}

impl<S> FromRequest<S> for Cookies {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(Self::parse(request.headers().filter(|(name, _)| is_cookie(name)).map(|(_, value)| value)))
    }

    fn is_absent(request: &Request) -> bool {
        !request.headers().any(|(name, _)| is_cookie(name))
    }
}

fn is_cookie(name: &str) -> bool {
    name.eq_ignore_ascii_case("cookie")
}

impl Response {
    /// Adds a `Set-Cookie` field.
    ///
    /// # Errors
    /// [`InvalidField::Name`] if the name is not a token. [`InvalidField::Value`] if the value has control characters,
    /// white space, quotes, commas, semicolons, backslashes, or is not ASCII (RFC 6265 §4.1.1), so that it would end early
    /// or set attributes: encode such a value first. The same if the path or the domain has control characters or
    /// semicolons. Nothing is added then.
    ///
    /// ```
    /// use tidegate::http::{Cookie, InvalidField, Response};
    ///
    /// let response = Response::text("Hello!").cookie(&Cookie::build(("session", "7")).http_only(true).into())?;
    /// assert_eq!(response.field("Set-Cookie"), Some(&b"session=7; HttpOnly"[..]));
    /// let injected = Cookie::new("session", "7; Domain=example.org");
    /// assert_eq!(Response::new().cookie(&injected).unwrap_err(), InvalidField::Value);
    /// # Ok::<(), InvalidField>(())
    /// ```
    pub fn cookie(mut self, cookie: &Cookie<'_>) -> Result<Self, InvalidField> {
        check(cookie)?;
        let mut text = String::new();
        // A time that has no text fails.
        write!(text, "{cookie}").map_err(|_| InvalidField::Value)?;
        self.add_header("Set-Cookie", text)?;
        Ok(self)
    }

    /// Adds a `Set-Cookie` field that makes the client delete a cookie. Its path and domain have to be those of the cookie
    /// that the client has.
    ///
    /// # Errors
    /// As [`cookie`](Self::cookie).
    ///
    /// ```
    /// use tidegate::http::{Cookie, Response};
    ///
    /// let response = Response::text("Bye!").remove_cookie(Cookie::build("session").path("/").into())?;
    /// assert!(response.field("Set-Cookie").unwrap().starts_with(b"session=; Path=/; Max-Age=0; "));
    /// # Ok::<(), tidegate::http::InvalidField>(())
    /// ```
    pub fn remove_cookie(self, mut cookie: Cookie<'_>) -> Result<Self, InvalidField> {
        cookie.make_removal();
        self.cookie(&cookie)
    }
}

fn check(cookie: &Cookie<'_>) -> Result<(), InvalidField> {
    // The codec knows tokens.
    tidegate_http1::Fields::new()
        .push(cookie.name(), "")
        .map_err(|error| match error {
            // A name such as `Host` is a fine one for a cookie.
            InvalidField::Reserved => Ok(()),
            other => Err(other),
        })
        .or_else(|error| error)?;
    let is_attribute = |text: &str| text.bytes().all(|byte| (b' '..0x7f).contains(&byte) && byte != b';');
    let are_attributes = [cookie.path(), cookie.domain()].into_iter().flatten().all(is_attribute);
    if is_value(cookie.value()) && are_attributes { Ok(()) } else { Err(InvalidField::Value) }
}

/// Whether a text is a `cookie-value` of RFC 6265 §4.1.1.
fn is_value(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    inner.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';' | b'\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_of_several_fields_are_parsed() {
        let cookies =
            Cookies::parse([&b"a=1; b=\"2 3\";c=%20; bad; =x"[..], b"a=4; e=\xe9; \xff=1; d=", b"\xff=1"].into_iter());
        let all: Vec<_> = cookies.iter().collect();
        assert_eq!(all, [("a", "1"), ("b", "2 3"), ("c", "%20"), ("a", "4"), ("d", "")]);
        assert_eq!(cookies.get("a"), Some("1"));
        assert_eq!(cookies.get("A"), None);
    }

    #[test]
    fn a_character_that_would_end_a_cookie_early_is_an_error() {
        let refused = |cookie: Cookie<'static>| Response::new().cookie(&cookie).unwrap_err();
        for value in ["a\r\nSet-Cookie: b=c", "a\nb", "a\0", "a;b", "a b", "a,b", "a\"b", "\"", "a\\b", "ü", "\u{7f}"]
        {
            assert_eq!(refused(Cookie::new("name", value)), InvalidField::Value, "{value:?}");
            if !matches!(value, "a b" | "a,b" | "a\"b" | "\"" | "a\\b") {
                assert_eq!(refused(Cookie::build("name").path(value).into()), InvalidField::Value, "{value:?}");
                assert_eq!(refused(Cookie::build("name").domain(value).into()), InvalidField::Value, "{value:?}");
            }
        }
        for name in ["", "a b", "a=b", "a;b", "a\r\nb", "ü"] {
            assert_eq!(refused(Cookie::new(name, "value")), InvalidField::Name, "{name:?}");
        }
    }

    #[test]
    fn several_cookies_are_several_fields() {
        let response =
            Response::new().cookie(&Cookie::new("Host", "\"1\"")).unwrap().cookie(&Cookie::new("b", "2")).unwrap();
        assert_eq!(response.fields.bytes(), b"Set-Cookie: Host=\"1\"\r\nSet-Cookie: b=2\r\n");
    }
}
