//! `Proxy` and `Proxies`: through which proxy a request goes.

use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

use http::Uri;
use tidegate_engine::{IpNet, contains_address};
use tidegate_http_message::percent;
use tidegate_http_upstream::{ForwardProxy, Origin, ProxyKind};

use super::error::ClientError;
use super::uri::{port, userinfo};

/// A proxy: an address, the way to speak to it, and credentials.
///
/// | scheme | how the proxy is asked |
/// |---|---|
/// | `http` | `https` and WebSockets go through a tunnel (CONNECT), requests of `http` to the proxy (RFC 9112 §3.2.2) |
/// | `https` | the same, and the connection to the proxy is encrypted |
/// | `socks5` | a tunnel by SOCKS 5 to an address, which the client resolves |
/// | `socks5h` | the same to a name, which the proxy resolves |
/// | `socks4`, `socks4a` | the same by SOCKS 4 |
///
/// A name and a password before the host are the credentials: `http://user:word@proxy.example:3128`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Proxy(ForwardProxy);

impl Proxy {
    /// The proxy that a URI names; without a scheme it is an HTTP proxy. The port is that of the scheme unless it is
    /// given: 80, 443, or 1080 for SOCKS.
    ///
    /// # Errors
    /// [`ClientError::Uri`], or [`ClientError::Scheme`].
    pub fn to(uri: &str) -> Result<Self, ClientError> {
        let with_scheme = if uri.contains("://") { uri.to_owned() } else { format!("http://{uri}") };
        let uri: Uri = with_scheme.parse().map_err(|_| ClientError::Uri)?;
        let (kind, default_port) = match uri.scheme_str() {
            Some("http") => (ProxyKind::Http, 80),
            Some("https") => (ProxyKind::Https, 443),
            Some("socks5") => (ProxyKind::Socks5, 1080),
            Some("socks5h") => (ProxyKind::Socks5h, 1080),
            Some("socks4") => (ProxyKind::Socks4, 1080),
            Some("socks4a") => (ProxyKind::Socks4a, 1080),
            _ => return Err(ClientError::Scheme),
        };
        let credentials = match userinfo(&uri) {
            Some(userinfo) => {
                let (name, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
                let decode = |text| percent::decode(text).map(Box::from).ok_or(ClientError::Uri);
                Some((decode(name)?, decode(password)?))
            }
            None => None,
        };
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(ClientError::Uri);
        }
        let port = port(uri.authority().ok_or(ClientError::Uri)?, default_port)?;
        Ok(Self(ForwardProxy { kind, host: host.to_ascii_lowercase().into(), port, credentials }))
    }

    /// The same with a name and a password.
    #[must_use]
    pub fn credentials(mut self, name: &str, password: &str) -> Self {
        self.0.credentials = Some((name.into(), password.into()));
        self
    }
}

impl fmt::Debug for Proxy {
    /// Without the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which requests go through which proxy.
///
/// ```
/// use tidegate::http::Client;
/// use tidegate::http::client::{Proxies, Proxy};
///
/// let proxies = Proxies::all(Proxy::to("http://proxy.example:3128")?).except("localhost, .example.com, 10.0.0.0/8");
/// let client = Client::builder().proxies(proxies).build();
/// # drop(client);
/// # Ok::<(), tidegate::http::client::ClientError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    http: Option<Rc<ForwardProxy>>,
    https: Option<Rc<ForwardProxy>>,
    except: Vec<Exception>,
}

/// Hosts that are reached directly.
#[derive(Debug, Clone)]
enum Exception {
    All,
    /// A name and all names below it; with a port, of that port only.
    Name(Box<str>, Option<u16>),
    Network(IpNet),
    Address(IpAddr, Option<u16>),
}

impl Proxies {
    /// No proxy.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// One proxy for all requests.
    #[must_use]
    pub fn all(proxy: Proxy) -> Self {
        let proxy = Rc::new(proxy.0);
        Self { http: Some(proxy.clone()), https: Some(proxy), except: Vec::new() }
    }

    /// The proxy for requests of `http`.
    #[must_use]
    pub fn http(mut self, proxy: Proxy) -> Self {
        self.http = Some(Rc::new(proxy.0));
        self
    }

    /// The proxy for requests of `https`.
    #[must_use]
    pub fn https(mut self, proxy: Proxy) -> Self {
        self.https = Some(Rc::new(proxy.0));
        self
    }

    /// The proxies that the environment names: `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, each in small or in
    /// capital letters. `HTTP_PROXY` in capitals is ignored where `REQUEST_METHOD` is set: a CGI program would take it
    /// from a field of a request. Hosts of this machine are reached directly.
    ///
    /// # Errors
    /// As [`Proxy::to`].
    pub fn from_environment() -> Result<Self, ClientError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ClientError> {
        let any = |names: &[&str]| names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()));
        let proxy = |text: Option<String>| text.map(|text| Proxy::to(&text).map(|proxy| Rc::new(proxy.0))).transpose();
        let all = any(&["all_proxy", "ALL_PROXY"]);
        let is_cgi = variable("REQUEST_METHOD").is_some();
        let http = any(if is_cgi { &["http_proxy"] } else { &["http_proxy", "HTTP_PROXY"] });
        let https = any(&["https_proxy", "HTTPS_PROXY"]);
        let proxies = Self { http: proxy(http.or(all.clone()))?, https: proxy(https.or(all))?, except: Vec::new() };
        let except = any(&["no_proxy", "NO_PROXY"]).unwrap_or_default();
        Ok(proxies.except(&except).except("localhost, 127.0.0.0/8, ::1"))
    }

    /// Hosts that are reached directly, with commas between them: names, which mean all names below them as well,
    /// addresses, networks, `*` for all hosts. A name or an address may have a port. Other entries are ignored.
    #[must_use]
    pub fn except(mut self, hosts: &str) -> Self {
        self.except.extend(hosts.split(',').filter_map(|host| Exception::parse(host.trim())));
        self
    }

    /// The proxy for an origin.
    pub(super) fn of(&self, origin: &Origin) -> Option<&Rc<ForwardProxy>> {
        let proxy = if origin.is_secure { self.https.as_ref() } else { self.http.as_ref() };
        proxy.filter(|_| !self.except.iter().any(|exception| exception.includes(origin)))
    }
}

impl Exception {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        if let Ok(network) = text.parse() {
            return Some(Self::Network(network));
        }
        if let Ok(address) = text.trim_matches(['[', ']']).parse() {
            return Some(Self::Address(address, None));
        }
        if let Ok(address) = text.parse::<std::net::SocketAddr>() {
            return Some(Self::Address(address.ip(), Some(address.port())));
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, Some(port.parse().ok()?)),
            None => (text, None),
        };
        let name = name.trim_start_matches('*').trim_start_matches('.');
        if name.is_empty() { None } else { Some(Self::Name(name.to_ascii_lowercase().into(), port)) }
    }

    fn includes(&self, origin: &Origin) -> bool {
        let is_port = |port: &Option<u16>| port.is_none_or(|port| port == origin.port);
        match self {
            Self::All => true,
            Self::Name(name, port) => {
                let above = origin.host.strip_suffix(&**name);
                is_port(port) && above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
            }
            Self::Network(network) => origin.name().parse::<IpAddr>().is_ok_and(|ip| contains_address(&[*network], ip)),
            Self::Address(address, port) => {
                is_port(port)
                    && origin.name().parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical() == address.to_canonical())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::uri::origin_of;
    use super::*;

    fn origin(uri: &str) -> Origin {
        origin_of(&uri.parse().expect("a URI"), None).expect("an origin")
    }

    #[test]
    fn a_proxy_has_a_scheme_a_host_a_port_and_credentials() {
        for (text, kind, host, port, credentials) in [
            ("http://Proxy.example:3128", ProxyKind::Http, "proxy.example", 3128, None),
            ("proxy.example:3128", ProxyKind::Http, "proxy.example", 3128, None),
            ("https://proxy.example", ProxyKind::Https, "proxy.example", 443, None),
            ("socks5h://[::1]", ProxyKind::Socks5h, "::1", 1080, None),
            ("socks5://u%40a:w%3Ard@p", ProxyKind::Socks5, "p", 1080, Some(("u@a", "w:rd"))),
            ("http://user@p", ProxyKind::Http, "p", 80, Some(("user", ""))),
        ] {
            let Proxy(proxy) = Proxy::to(text).expect(text);
            assert_eq!((proxy.kind, &*proxy.host, proxy.port), (kind, host, port), "{text}");
            let found = proxy.credentials.as_ref().map(|(name, password)| (&**name, &**password));
            assert_eq!(found, credentials, "{text}");
            assert!(!format!("{proxy:?}").contains("w:rd"));
        }
        for text in ["", "ftp://p", "http://", "socks6://p", "http://p:0", "http://p:99999"] {
            assert!(Proxy::to(text).is_err(), "{text}");
        }
    }

    #[test]
    fn exceptions_are_names_with_those_below_them_addresses_networks_and_ports() {
        for (except, uri, is_direct) in [
            ("example.com", "http://example.com/", true),
            ("example.com", "https://a.example.com/", true),
            (".example.com", "http://example.com/", true),
            ("*.example.com", "http://a.example.com/", true),
            ("example.com", "http://notexample.com/", false),
            ("EXAMPLE.com", "http://Example.COM/", true),
            ("example.com:8080", "http://example.com:8080/", true),
            ("example.com:8080", "http://example.com/", false),
            ("10.0.0.0/8", "http://10.1.2.3/", true),
            ("10.0.0.0/8", "http://11.1.2.3/", false),
            ("192.0.2.1", "http://192.0.2.1:81/", true),
            ("::1", "http://[::1]/", true),
            ("[::1]", "http://[::1]/", true),
            ("10.0.0.0/8", "http://[::ffff:10.1.2.3]/", true),
            ("192.0.2.1", "http://[::ffff:192.0.2.1]/", true),
            ("[::1]:81", "http://[::1]/", false),
            ("*", "http://a/", true),
            ("a,b , c", "http://c/", true),
            ("", "http://a/", false),
            (",. ,:", "http://a/", false),
        ] {
            let proxies = Proxies::all(Proxy::to("p").expect("a proxy")).except(except);
            assert_eq!(proxies.of(&origin(uri)).is_none(), is_direct, "{except} {uri}");
        }
    }

    #[test]
    fn the_environment_names_a_proxy_for_each_scheme() {
        let proxies = |variables: &'static [(&str, &str)]| {
            let variable = |name: &str| Some(variables.iter().find(|(found, _)| *found == name)?.1.to_owned());
            Proxies::from_variables(variable).expect("the proxies are URIs")
        };
        let found = |proxies: &Proxies, uri| proxies.of(&origin(uri)).map(|proxy| proxy.host.to_string());
        let all = proxies(&[("ALL_PROXY", "socks5://a"), ("https_proxy", "b:1"), ("NO_PROXY", "c")]);
        assert_eq!(found(&all, "http://x/").as_deref(), Some("a"));
        assert_eq!(found(&all, "https://x/").as_deref(), Some("b"));
        for uri in ["https://c/", "http://localhost/", "http://127.0.0.2/", "http://[::1]/"] {
            assert_eq!(found(&all, uri), None, "{uri}");
        }
        let cgi = proxies(&[("HTTP_PROXY", "evil"), ("REQUEST_METHOD", "GET")]);
        assert_eq!(found(&cgi, "http://x/"), None);
        assert_eq!(found(&proxies(&[("HTTP_PROXY", "a")]), "http://x/").as_deref(), Some("a"));
        assert!(Proxies::from_variables(|name| (name == "http_proxy").then(|| "ftp://a".to_owned())).is_err());
    }
}
