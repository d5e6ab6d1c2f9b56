//! `Url`: the server and the target of a load.

use std::fmt;
use std::io;
use std::net::{SocketAddr, SocketAddrV6};
use std::str::FromStr;

use clap::ValueEnum;
use tidegate::dns::HostResolver;
use tidegate::engine::{Resolve as _, SystemResolver};
use tidegate::sys::parse_zoned;
use tidegate::{Backend, EventLoop};

use super::results::Protocol;

/// `http://HOST[:PORT][/TARGET]` or the same with `https`, `ws` or `wss`, parsed; or
/// `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    text: String,
    /// The value of the `Host` field: with the port unless it is the default.
    authority: String,
    /// Without the brackets of an IPv6 address, and with its zone (RFC 6874), which the server does not see.
    host: String,
    port: u16,
    target: String,
    is_secure: bool,
    protocol: Protocol,
    login: Login,
    database: u32,
}

/// Resolves the name of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ResolverName {
    /// That of Tidegate.
    #[default]
    Dns,
    /// That of the system.
    System,
}

/// The user and the password in a URL of Redis.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the password.
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Url {
    /// Whether the connection is encrypted: `https` and `wss`.
    pub(crate) fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// The protocol that the scheme names.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The user and password of Redis.
    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// The database of Redis.
    pub(crate) fn database(&self) -> u32 {
        self.database
    }

    /// The scheme's security, the host and the port: requests of one load go to one server.
    pub(crate) fn server(&self) -> (bool, &str, u16) {
        (self.is_secure, &self.host, self.port)
    }

    /// The name or address of the server, without brackets and zone.
    pub(crate) fn host(&self) -> &str {
        self.host.split('%').next().unwrap_or_default()
    }

    /// The value of the `Host` field.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// The same server with this target, which begins with `/`.
    pub(crate) fn with_target(&self, target: &str) -> Self {
        let start = self.text.find("://").map_or(0, |at| at + 3);
        let end = self.text[start..].find(['/', '?', '#']).map_or(self.text.len(), |at| start + at);
        let target = target.split('#').next().unwrap_or_default().to_owned();
        Self { text: format!("{}{target}", &self.text[..end]), target, ..self.clone() }
    }

    /// Resolves the host.
    pub(crate) fn resolve(&self, resolver: ResolverName) -> Result<Vec<SocketAddr>, BadUrl> {
        if let Some((ip, zone)) = parse_zoned(&self.host) {
            return Ok(vec![SocketAddrV6::new(ip, self.port, 0, zone).into()]);
        }
        let resolving = match resolver {
            ResolverName::Dns => HostResolver::of_system().resolve(&self.host, self.port),
            ResolverName::System => SystemResolver.resolve(&self.host, self.port),
        };
        let event_loop = EventLoop::on(Backend::Epoll).map_err(io::Error::other);
        match event_loop.and_then(|mut event_loop| event_loop.block_on(resolving)).and_then(|found| found) {
            Ok(addresses) => Ok(addresses),
            Err(error) => Err(BadUrl(format!("cannot resolve '{}': {error}", self.host))),
        }
    }
}

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad = |why: &str| {
            Err(BadUrl(format!(
                "'{}' {why}; write http://HOST[:PORT]/PATH, or https, ws or wss; or redis://HOST[:PORT]/, or rediss",
                without_password(text)
            )))
        };
        let Some((scheme, rest)) = text.split_once("://") else { return bad("has no scheme") };
        let (protocol, is_secure, usual_port) = match &*scheme.to_ascii_lowercase() {
            "http" => (Protocol::Http, false, USUAL_PORT),
            "https" => (Protocol::Http, true, USUAL_TLS_PORT),
            "ws" => (Protocol::WebSocket, false, USUAL_PORT),
            "wss" => (Protocol::WebSocket, true, USUAL_TLS_PORT),
            "redis" => (Protocol::Redis, false, USUAL_REDIS_PORT),
            "rediss" => (Protocol::Redis, true, USUAL_REDIS_PORT),
            _ => return bad("has a scheme other than http, https, ws, wss, redis and rediss"),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        // A fragment is not sent (RFC 9110 §4.2.5).
        let target = target.split('#').next().unwrap_or_default();
        let (login, authority) = match authority.rsplit_once('@') {
            None => (Login::default(), authority),
            Some((login, host)) if protocol == Protocol::Redis => match login_in(login) {
                Some(login) => (login, host),
                None => return bad("has a user or password with a wrong %"),
            },
            Some(_) => return bad("names a user, which is not sent in HTTP"),
        };
        let Some(database) = database_in(protocol, target) else {
            return bad("has a path that is no number of a database");
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (authority, ""),
        };
        // Rust's integer parser accepts a sign.
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let Some(port) = (if port.is_empty() { Some(usual_port) } else { port.parse().ok().filter(|_| is_number) })
        else {
            return bad("has a bad port");
        };
        if port == 0 {
            return bad("has port 0, which is not a valid port");
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if host.is_empty() || bare.is_none() && host.contains([':', '[', ']']) {
            return bad("has no host");
        }
        let unzoned = host.split_once('%').filter(|_| bare.is_some()).map(|(ip, _)| format!("{ip}]"));
        let seen = unzoned.as_deref().unwrap_or(host);
        let authority = if port == usual_port { seen.to_owned() } else { format!("{seen}:{port}") };
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let (text, host) = (without_password(text), bare.unwrap_or(host).to_owned());
        Ok(Self { text, authority, host, port, target, is_secure, protocol, login, database })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The number of the database that the path of a URL of Redis is, if it has one.
fn database_in(protocol: Protocol, target: &str) -> Option<u32> {
    let database = target.trim_start_matches('/');
    if protocol != Protocol::Redis || database.is_empty() {
        return Some(0);
    }
    database.parse().ok()
}

/// `USER:PASSWORD` or `:PASSWORD`, with percent-encoded bytes.
fn login_in(text: &str) -> Option<Login> {
    let (user, password) = text.split_once(':').map_or((text, None), |(user, password)| (user, Some(password)));
    let password = password.map(decoded).map_or(Some(None), |password| password.map(Some))?;
    let user = decoded(user)?;
    Some(Login { user: Some(user).filter(|user| !user.is_empty()), password })
}

/// Decodes `%XX`. `None` if that is no text.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2).filter(|hex| !hex.starts_with('+'))?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// The text of a URL as reports show it.
fn without_password(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |at| start + at);
    match text[start..end].rsplit_once('@').map(|(login, _)| login.split_once(':').map_or(login, |(user, _)| user)) {
        Some(user) => {
            let host = start + text[start..end].rfind('@').unwrap_or(0);
            format!("{}{user}:***{}", &text[..start], &text[host..])
        }
        None => text.to_owned(),
    }
}

/// Why a URL is invalid, and a suggestion.
#[derive(Debug)]
pub(crate) struct BadUrl(String);

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUrl {}

const USUAL_PORT: u16 = 80;

const USUAL_TLS_PORT: u16 = 443;

const USUAL_REDIS_PORT: u16 = 6379;

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, String, u16, String) {
        let url: Url = text.parse().expect(text);
        (url.authority().to_owned(), url.host().to_owned(), url.port, url.target().to_owned())
    }

    fn expected(authority: &str, host: &str, port: u16, target: &str) -> (String, String, u16, String) {
        (authority.into(), host.into(), port, target.into())
    }

    #[test]
    fn a_url_is_parsed_into_its_parts() {
        for (text, authority, host, port, target) in [
            ("http://127.0.0.1:8080/plaintext", "127.0.0.1:8080", "127.0.0.1", 8080, "/plaintext"),
            ("http://[fe80::1%25lo]:8080/", "[fe80::1]:8080", "fe80::1", 8080, "/"),
            ("http://localhost", "localhost", "localhost", 80, "/"),
            ("HTTP://localhost:80/?a=b", "localhost", "localhost", 80, "/?a=b"),
            ("http://localhost?a=b", "localhost", "localhost", 80, "/?a=b"),
            ("http://localhost/a#b", "localhost", "localhost", 80, "/a"),
            ("http://[::1]:81/", "[::1]:81", "::1", 81, "/"),
            ("http://[::1]", "[::1]", "::1", 80, "/"),
            ("http://localhost:/", "localhost", "localhost", 80, "/"),
            ("https://localhost/a", "localhost", "localhost", 443, "/a"),
            ("https://localhost:80/", "localhost:80", "localhost", 80, "/"),
            ("ws://localhost/a", "localhost", "localhost", 80, "/a"),
            ("WSS://localhost", "localhost", "localhost", 443, "/"),
        ] {
            assert_eq!(parts(text), expected(authority, host, port, target), "{text}");
        }
    }

    #[test]
    fn a_url_has_other_targets_on_the_same_server() {
        let url: Url = "https://[::1]:81/a?b".parse().expect("a URL");
        let other = url.with_target("/c?d#e");
        assert_eq!((&*other.to_string(), other.target()), ("https://[::1]:81/c?d", "/c?d"));
        assert_eq!(other.server(), url.server());
    }

    #[test]
    fn a_url_of_redis_has_a_login_and_a_database() {
        for (text, port, user, password, database, shown) in [
            ("redis://a", 6379, None, None, 0, "redis://a"),
            ("redis://a/", 6379, None, None, 0, "redis://a/"),
            ("rediss://a:1/3", 1, None, None, 3, "rediss://a:1/3"),
            ("redis://:se%40cret@[::1]/2", 6379, None, Some("se@cret"), 2, "redis://:***@[::1]/2"),
            ("redis://me:a:b@a", 6379, Some("me"), Some("a:b"), 0, "redis://me:***@a"),
        ] {
            let url: Url = text.parse().expect(text);
            let login = url.login();
            assert_eq!((url.port, login.user.as_deref(), login.password.as_deref()), (port, user, password), "{text}");
            assert_eq!((url.database(), &*url.to_string()), (database, shown), "{text}");
        }
        for text in ["redis://a/x", "redis://a/-1", "redis://:secret%zz@a/", "redis://:secret@a:0/"] {
            let error = text.parse::<Url>().expect_err(text).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_invalid_url_is_refused_with_the_expected_form() {
        for (text, why) in [
            ("", "no scheme"),
            ("localhost:8080/", "no scheme"),
            ("ftp://localhost/", "other than http"),
            ("http://", "no host"),
            ("http://:80/", "no host"),
            ("http:///path", "no host"),
            ("http://[::1/", "no host"),
            ("http://::1/", "no host"),
            ("http://localhost:99999/", "bad port"),
            ("http://localhost:http/", "bad port"),
            ("http://localhost:+80/", "bad port"),
            ("http://localhost:0/", "port 0"),
            ("http://me@localhost/", "user"),
        ] {
            let error = text.parse::<Url>().expect_err(text).to_string();
            assert!(error.contains(why) && error.contains("http://HOST"), "{text}: {error}");
        }
    }
}
