//! `CookieStore`: cookies of servers (RFC 6265), kept for requests to them.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use cookie::Cookie;
use http::Uri;
use tidegate_http_upstream::Origin;

use super::error::ClientError;
use super::uri::{origin_form, origin_of, parse_uri};

/// Cookies of servers, in memory. Clones are the same store.
///
/// A cookie goes to the host that has set it, or, with `Domain`, to the hosts below that domain as well, and only over TLS
/// if it is `Secure`; a response without TLS replaces no such cookie. The store knows no list of public suffixes: it refuses domains of one label only. So share no store
/// between sites that do not trust each other below a suffix such as `co.uk`.
///
/// | limit | value | effect |
/// |---|---|---|
/// | bytes of a cookie | 4,096 | |
/// | cookies of a domain | 50 | a server that sets cookies without end |
/// | cookies in all | 3,000 | many such servers |
///
/// Beyond them the cookies that were set first are removed.
///
/// ```
/// use tidegate::http::Client;
/// use tidegate::http::client::CookieStore;
///
/// let cookies = CookieStore::new();
/// let client = Client::builder().cookies(cookies.clone()).build();
/// cookies.set("https://sea.example/harbour", "tide=high; Path=/; Secure")?;
/// assert_eq!(cookies.get("https://sea.example/")?.as_deref(), Some("tide=high"));
/// assert_eq!(cookies.get("http://sea.example/")?, None);
/// # drop(client);
/// # Ok::<(), tidegate::http::client::ClientError>(())
/// ```
#[derive(Clone, Default)]
pub struct CookieStore(Rc<RefCell<Vec<StoredCookie>>>);

struct StoredCookie {
    name: Box<str>,
    value: Box<str>,
    /// In lower case.
    domain: Box<str>,
    path: Box<str>,
    /// Seconds of Unix time; `None` until the store is gone.
    expires: Option<i64>,
    is_host_only: bool,
    is_secure: bool,
}

impl CookieStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps a cookie as if a server had set it in a response to a request for `uri`. One that the server may not set, or
    /// that is malformed, is ignored.
    ///
    /// # Errors
    /// [`ClientError::Uri`], [`ClientError::Scheme`].
    pub fn set(&self, uri: &str, cookie: &str) -> Result<(), ClientError> {
        let uri = parse_uri(uri)?;
        self.keep(&origin_of(&uri, None)?, &uri, cookie.as_bytes());
        Ok(())
    }

    /// The value of `Cookie` in a request for `uri`, if there are cookies for it.
    ///
    /// # Errors
    /// [`ClientError::Uri`], [`ClientError::Scheme`].
    pub fn get(&self, uri: &str) -> Result<Option<String>, ClientError> {
        let uri = parse_uri(uri)?;
        Ok(self.of(&origin_of(&uri, None)?, &uri))
    }

    /// Removes all cookies.
    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// How many cookies there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Keeps the cookie of a `Set-Cookie` field (RFC 6265 §5.3).
    pub(super) fn keep(&self, origin: &Origin, uri: &Uri, field: &[u8]) {
        let Ok(text) = std::str::from_utf8(field) else { return };
        if text.len() > COOKIE_BYTES_MAX {
            return;
        }
        let Ok(cookie) = Cookie::parse(text) else { return };
        let is_secure = cookie.secure().unwrap_or(false);
        if is_secure && !origin.is_secure {
            return;
        }
        let domain = cookie.domain().map(|domain| domain.trim_start_matches('.').to_ascii_lowercase());
        let domain = domain.filter(|domain| !domain.is_empty() && **domain != *origin.host);
        let is_host_only = domain.is_none() && cookie.domain().is_none_or(|domain| domain.is_empty());
        let domain = domain.unwrap_or_else(|| origin.host.to_string());
        if !is_below(&origin.host, &domain) || domain != *origin.host && !domain.contains('.') {
            return;
        }
        let path = cookie.path().filter(|path| path.starts_with('/')).map_or_else(|| default_path(uri), str::to_owned);
        // Servers may compare names without regard to case (RFC 6265bis §5.6).
        let is_prefixed = |prefix: &str| {
            let start = cookie.name().get(..prefix.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        if is_prefixed("__Host-") && !(is_secure && is_host_only && path == "/") {
            return;
        }
        if is_prefixed("__Secure-") && !is_secure {
            return;
        }
        let now = unix_time();
        let expires = expiry(&cookie, now);
        let mut stored = self.0.borrow_mut();
        // An attacker in the network must not choose a site's cookies over TLS.
        let overlays = |one: &StoredCookie| {
            let is_same_site = is_below(&one.domain, &domain) || is_below(&domain, &one.domain);
            one.is_secure && one.name.as_ref() == cookie.name() && is_same_site && is_path_below(&path, &one.path)
        };
        if !origin.is_secure && stored.iter().any(|one| one.expires.is_none_or(|at| at > now) && overlays(one)) {
            return;
        }
        stored.retain(|one| {
            let is_same = one.name.as_ref() == cookie.name() && *one.domain == *domain && *one.path == *path;
            !is_same && one.expires.is_none_or(|at| at > now)
        });
        if expires.is_some_and(|at| at <= now) {
            return;
        }
        make_room(&mut stored, &domain);
        stored.push(StoredCookie {
            name: cookie.name().into(),
            value: cookie.value().into(),
            domain: domain.into(),
            path: path.into(),
            expires,
            is_host_only,
            is_secure,
        });
    }

    /// The cookies for a request, those with the longest path first (RFC 6265 §5.4).
    pub(super) fn of(&self, origin: &Origin, uri: &Uri) -> Option<String> {
        let stored = self.0.borrow();
        if stored.is_empty() {
            return None;
        }
        let (now, target) = (unix_time(), origin_form(uri));
        let path = target.split('?').next().unwrap_or_default();
        let mut matching: Vec<_> = stored.iter().filter(|one| one.is_for(origin, path, now)).collect();
        matching.sort_by_key(|one| std::cmp::Reverse(one.path.len()));
        let pairs: Vec<_> = matching.iter().map(|one| format!("{}={}", one.name, one.value)).collect();
        if pairs.is_empty() { None } else { Some(pairs.join("; ")) }
    }
}

impl StoredCookie {
    fn is_for(&self, origin: &Origin, path: &str, now: i64) -> bool {
        let is_domain =
            if self.is_host_only { self.domain == origin.host } else { is_below(&origin.host, &self.domain) };
        is_domain
            && (origin.is_secure || !self.is_secure)
            && self.expires.is_none_or(|at| at > now)
            && is_path_below(path, &self.path)
    }
}

/// When a cookie expires, in seconds of Unix time; `None` if it has no such time.
fn expiry(cookie: &Cookie<'_>, now: i64) -> Option<i64> {
    match cookie.max_age() {
        Some(age) => Some(now.saturating_add(age.whole_seconds())),
        None => cookie.expires_datetime().map(|at| at.unix_timestamp()),
    }
}

/// Whether a host is a domain, or a name below it (RFC 6265 §5.1.3). Nothing is below an IP address.
fn is_below(host: &str, domain: &str) -> bool {
    let Some(above) = host.strip_suffix(domain) else { return false };
    above.is_empty() || above.ends_with('.') && host.parse::<std::net::IpAddr>().is_err()
}

/// RFC 6265 §5.1.4.
fn is_path_below(path: &str, cookie_path: &str) -> bool {
    path.strip_prefix(cookie_path)
        .is_some_and(|rest| rest.is_empty() || cookie_path.ends_with('/') || rest.starts_with('/'))
}

/// The path of a cookie that names none: that of the request up to its last slash.
fn default_path(uri: &Uri) -> String {
    let path = uri.path();
    match path.rfind('/') {
        Some(end) if end > 0 => path[..end].to_owned(),
        _ => "/".to_owned(),
    }
}

fn make_room(stored: &mut Vec<StoredCookie>, domain: &str) {
    let of_domain = stored.iter().filter(|one| *one.domain == *domain).count();
    if of_domain >= COOKIES_PER_DOMAIN_MAX
        && let Some(first) = stored.iter().position(|one| *one.domain == *domain)
    {
        stored.remove(first);
    }
    if stored.len() >= COOKIES_MAX {
        stored.remove(0);
    }
}

fn unix_time() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64)
}

impl fmt::Debug for CookieStore {
    /// Without the cookies, which are credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CookieStore({} cookies)", self.len())
    }
}

const COOKIE_BYTES_MAX: usize = 4096;
const COOKIES_PER_DOMAIN_MAX: usize = 50;
const COOKIES_MAX: usize = 3000;

#[cfg(test)]
mod tests {
    use super::*;

    /// The cookies for `uri` after a response to a request for `from` has set some.
    fn after(from: &str, fields: &[&str], uri: &str) -> String {
        let store = CookieStore::new();
        fields.iter().for_each(|field| store.set(from, field).expect("a URI"));
        store.get(uri).expect("a URI").unwrap_or_default()
    }

    #[test]
    fn a_cookie_goes_to_its_host_its_domain_and_below_its_path() {
        let cases: [(&str, &str, &str, &str); 21] = [
            ("http://a.sea.example/", "k=v", "http://a.sea.example/x", "k=v"),
            ("http://a.sea.example/", "k=v", "http://b.a.sea.example/", ""),
            ("http://a.sea.example/", "k=v", "http://sea.example/", ""),
            ("http://a.sea.example/", "k=v; Domain=sea.example", "http://sea.example/", "k=v"),
            ("http://a.sea.example/", "k=v; Domain=.SEA.example", "http://b.sea.example/", "k=v"),
            ("http://a.sea.example/", "k=v; Domain=a.sea.example", "http://b.a.sea.example/", "k=v"),
            ("http://a.sea.example/", "k=v; Domain=sea.example", "http://notsea.example/", ""),
            ("http://a.sea.example/", "k=v; Domain=other.example", "http://a.sea.example/", ""),
            ("http://a.sea.example/", "k=v; Domain=b.a.sea.example", "http://a.sea.example/", ""),
            ("http://a.example/", "k=v; Domain=example", "http://b.example/", ""),
            ("http://1.2.3.4/", "k=v; Domain=3.4", "http://1.2.3.4/", ""),
            ("http://a/x/y", "k=v", "http://a/x/z", "k=v"),
            ("http://a/x/y", "k=v", "http://a/xy", ""),
            ("http://a/x/y", "k=v; Path=/", "http://a/z", "k=v"),
            ("http://a/", "k=v; Path=/x", "http://a/x", "k=v"),
            ("http://a/", "k=v; Path=/x", "http://a/x/y?q", "k=v"),
            ("http://a/", "k=v; Path=/x", "http://a/xy", ""),
            ("https://a/", "k=v; Secure", "http://a/", ""),
            ("https://a/", "k=v; Secure", "https://a/", "k=v"),
            ("http://a/", "k=v; Secure", "https://a/", ""),
            ("http://a/", "=v", "http://a/", ""),
        ];
        for (from, field, uri, cookies) in cases {
            assert_eq!(after(from, &[field], uri), cookies, "{from} {field} {uri}");
        }
    }

    #[test]
    fn a_cookie_is_replaced_and_expires() {
        assert_eq!(after("http://a/", &["k=1", "k=2"], "http://a/"), "k=2");
        assert_eq!(after("http://a/", &["k=1", "k=2; Max-Age=0"], "http://a/"), "");
        assert_eq!(after("http://a/", &["k=1; Expires=Thu, 01 Jan 1970 00:00:01 GMT"], "http://a/"), "");
        assert_eq!(after("http://a/", &["k=1; Max-Age=1000"], "http://a/"), "k=1");
        assert_eq!(after("http://a/x/", &["k=1; Path=/", "k=2; Path=/x"], "http://a/x"), "k=2; k=1");
    }

    #[test]
    fn a_response_without_tls_replaces_no_secure_cookie() {
        for (field, expected) in [
            ("k=2", "k=1"),
            ("k=; Max-Age=0", "k=1"),
            ("k=2; Path=/x/y", "k=1"),
            ("k=2; Domain=sea.example", "k=1"),
            ("m=2", "k=1; m=2"),
        ] {
            let store = CookieStore::new();
            store.set("https://a.sea.example/x/", "k=1; Secure").expect("a URI");
            store.set("http://a.sea.example/x/", field).expect("a URI");
            assert_eq!(store.get("https://a.sea.example/x/y").expect("a URI").as_deref(), Some(expected), "{field}");
        }
    }

    #[test]
    fn prefixes_are_enforced() {
        assert_eq!(after("https://a/", &["__Host-k=v; Secure; Path=/"], "https://a/"), "__Host-k=v");
        assert_eq!(after("https://a/", &["__Host-k=v; Secure; Path=/x"], "https://a/x"), "");
        assert_eq!(after("https://b.a.c/", &["__Host-k=v; Secure; Path=/; Domain=a.c"], "https://b.a.c/"), "");
        assert_eq!(after("https://a/", &["__Secure-k=v"], "https://a/"), "");
        for name in ["__host-k", "__HOST-k", "__hOsT-", "__secure-k", "__SECURE-k"] {
            assert_eq!(after("https://a/x", &[&format!("{name}=v; Path=/x")], "https://a/x"), "", "{name}");
            let kept = format!("{name}=v");
            assert_eq!(after("https://a/", &[&format!("{kept}; Secure; Path=/")], "https://a/"), kept);
        }
        assert_eq!(after("https://b.a.c/", &["__host-k=v; Secure; Path=/; Domain=a.c"], "https://b.a.c/"), "");
    }

    #[test]
    fn a_server_cannot_fill_the_store() {
        let store = CookieStore::new();
        for number in 0..60 {
            store.set("http://a/", &format!("k{number}=v")).expect("a URI");
        }
        assert_eq!(store.len(), COOKIES_PER_DOMAIN_MAX);
        for number in 0..COOKIES_MAX {
            store.set(&format!("http://a{number}/"), "k=v").expect("a URI");
        }
        assert_eq!(store.len(), COOKIES_MAX);
        store.set("http://b/", &format!("k={}", "a".repeat(COOKIE_BYTES_MAX))).expect("a URI");
        assert_eq!(store.get("http://b/").expect("a URI"), None);
    }
}
