//! The file of `proxy --config`: which upstreams there are, and which requests they get.
//!
//! Every mistake is reported with its line and column, and a file with one changes nothing.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tidegate::http::proxy::{Balance, Edit, HashKey, UpstreamUrl, WEIGHT_MAX};
use tidegate::http::{Slashes, normal_path};
use tidegate::proxy_protocol::Networks;
use tidegate::{ConnectionRate, IpNet};
use toml::Spanned;

use crate::access_log::AccessLogFormat;
use crate::admission::parse_rate;
use crate::sites::{ConfigError, host_key, refuse_host, refuse_variable, resolve};

/// The file: upstreams and routes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Config {
    /// Log a line for each response.
    #[serde(default)]
    pub(super) access_log: AccessLogFormat,
    /// How routes match slashes that servers read in different ways.
    #[serde(default)]
    pub(super) slashes: SlashRule,
    #[serde(default)]
    pub(super) upstream: Vec<Spanned<UpstreamGroup>>,
    #[serde(default)]
    pub(super) route: Vec<Spanned<Route>>,
}

/// How `//`, `%2F` and `\\` are matched; paths are passed on as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SlashRule {
    /// As one slash, since upstreams may read them so.
    #[default]
    Merge,
    /// As they were sent.
    Keep,
    /// Answered with 400.
    Refuse,
}

impl SlashRule {
    pub(super) fn slashes(self) -> Slashes {
        match self {
            Self::Merge => Slashes::Merge,
            Self::Keep => Slashes::Keep,
            Self::Refuse => Slashes::Refuse,
        }
    }
}

/// Servers that can answer the same requests.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct UpstreamGroup {
    pub(super) name: Spanned<String>,
    pub(super) servers: Vec<Spanned<UpstreamServer>>,
    #[serde(default)]
    pub(super) balance: BalanceName,
    /// Begin connections with a PROXY header.
    #[serde(default)]
    pub(super) send_proxy: bool,
    /// Certificates that vouch for the servers.
    pub(super) ca: Option<Spanned<PathBuf>>,
    pub(super) health_check: Option<Spanned<Check>>,
    /// Seconds until names are resolved again.
    pub(super) resolve_interval: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) ejection: EjectionRules,
    #[serde(default)]
    pub(super) retries: RetryRules,
    #[serde(default)]
    pub(super) limits: GroupLimits,
}

/// A server: its URL, alone or with a weight.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum UpstreamServer {
    Url(String),
    Weighted { url: String, weight: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BalanceName {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in progress.
    LeastConnections,
    /// The same one for the same client.
    ConsistentHash,
}

/// Requests that check the servers. Times are in seconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Check {
    pub(super) path: Option<String>,
    pub(super) host: Option<String>,
    pub(super) interval: Option<u32>,
    pub(super) timeout: Option<u32>,
    pub(super) failures: Option<u32>,
    pub(super) successes: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct EjectionRules {
    pub(super) failures: Option<u32>,
    pub(super) time: Option<u32>,
    pub(super) time_max: Option<u32>,
    pub(super) percent_max: Option<u32>,
    pub(super) slow_start: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RetryRules {
    pub(super) per_request: Option<u32>,
    pub(super) percent: Option<u32>,
    pub(super) reserve: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GroupLimits {
    pub(super) requests: Option<u32>,
    /// Of one client address.
    pub(super) requests_per_address: Option<u32>,
    /// That wait for room.
    pub(super) queued_requests: Option<u32>,
    pub(super) queue_timeout: Option<u32>,
    pub(super) idle_connections: Option<u32>,
    /// Of a pipeline to an upstream; 1 never pipelines.
    pub(super) pipelined_requests: Option<u8>,
    /// Of one client, which it cancels.
    pub(super) cancellations: Option<u32>,
    pub(super) cancellations_per_second: Option<u32>,
    /// Of an HTTP/2 connection's streams.
    pub(super) resets: Option<u32>,
    pub(super) resets_per_second: Option<u32>,
    pub(super) idle_timeout: Option<u32>,
    pub(super) connect_timeout: Option<u32>,
    pub(super) response_timeout: Option<u32>,
    pub(super) body_timeout: Option<u32>,
    pub(super) tunnel_idle_timeout: Option<u32>,
}

/// Which requests go to which upstream, and how.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Route {
    /// The names of the hosts; none for requests that name no host of another route.
    #[serde(default)]
    pub(super) hosts: Vec<Spanned<String>>,
    /// The prefix of paths, whole segments; all paths unless set.
    pub(super) path: Option<Spanned<String>>,
    pub(super) upstream: Spanned<String>,
    /// Remove the prefix.
    #[serde(default)]
    pub(super) strip_path: bool,
    /// The host that the upstream gets: `keep`, `upstream`, or a name.
    pub(super) host: Option<Spanned<String>>,
    /// Seconds until the head of the response.
    pub(super) response_timeout: Option<u32>,
    #[serde(default)]
    pub(super) request_headers: Spanned0<Edits>,
    #[serde(default)]
    pub(super) response_headers: Spanned0<Edits>,
    /// Requests of one client address, as `100/s:200`.
    pub(super) rate_per_address: Option<Spanned<String>>,
    /// `client`, `target` or `header:NAME`.
    pub(super) hash_key: Option<Spanned<String>>,
    /// Add `X-Forwarded-*`.
    #[serde(default = "yes")]
    pub(super) x_forwarded: bool,
    /// Add `Forwarded`.
    #[serde(default)]
    pub(super) forwarded: bool,
    /// Networks of proxies in front, whose fields about the client count.
    #[serde(default)]
    pub(super) trusted: Vec<Spanned<String>>,
    /// Protocols that requests may switch to.
    pub(super) upgrades: Option<Vec<String>>,
    /// Pass CONNECT on.
    #[serde(default)]
    pub(super) connect: bool,
    /// Keep requests whose client has ended its side of the connection; as `--half-close` says unless set.
    pub(super) half_close: Option<bool>,
}

/// Changes of fields.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Edits {
    #[serde(default)]
    pub(super) set: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(super) add: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(super) remove: Vec<Spanned<String>>,
}

/// A table with its place, which may be missing.
type Spanned0<T> = Option<Spanned<T>>;

fn yes() -> bool {
    true
}

/// A mistake: its offset, if it has one, and a text.
type Mistake = (Option<usize>, String);

impl Config {
    /// Reads and checks a file. Relative paths in it begin at its directory.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        ConfigError::reading(path, |source, directory| {
            let mut config: Self = crate::sites::parse_toml(source)?;
            config.check(directory)?;
            Ok(config)
        })
    }

    /// Checks rules beyond the types, and resolves paths.
    pub(super) fn check(&mut self, directory: &Path) -> Result<(), Mistake> {
        let mut names = HashSet::new();
        for group in &mut self.upstream {
            let group = group.get_mut();
            if !names.insert(group.name.get_ref().clone()) {
                let text = format!("a second upstream with the name `{}`", group.name.get_ref());
                return Err((Some(group.name.span().start), text));
            }
            group.check(directory)?;
        }
        if self.route.is_empty() {
            return Err((None, "there is no [[route]]".into()));
        }
        let mut places = HashSet::new();
        for route in &self.route {
            let at = Some(route.span().start);
            let route = route.get_ref();
            route.check(&names)?;
            let path = normal_path(route.prefix());
            let hosts = route.hosts.iter().map(|host| host_key(host.get_ref()));
            let hosts: Vec<_> = if route.hosts.is_empty() { vec![String::new()] } else { hosts.collect() };
            for host in hosts {
                if !places.insert((host, path.clone())) {
                    return Err((at, "a second route for the same host and path".into()));
                }
            }
        }
        Ok(())
    }
}

impl UpstreamGroup {
    pub(super) fn new(name: Spanned<String>, servers: Vec<Spanned<UpstreamServer>>) -> Self {
        Self {
            name,
            servers,
            balance: BalanceName::default(),
            send_proxy: false,
            ca: None,
            health_check: None,
            resolve_interval: None,
            ejection: EjectionRules::default(),
            retries: RetryRules::default(),
            limits: GroupLimits::default(),
        }
    }

    /// Whether one of the servers speaks TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.servers.iter().any(|server| server.get_ref().parts().0.to_ascii_lowercase().starts_with("https:"))
    }

    fn check(&mut self, directory: &Path) -> Result<(), Mistake> {
        if self.servers.is_empty() {
            return Err((Some(self.name.span().start), "there are no servers".into()));
        }
        for server in &self.servers {
            let at = Some(server.span().start);
            let (url, weight) = server.get_ref().parts();
            if !(1..=WEIGHT_MAX).contains(&weight) {
                return Err((at, format!("the weight {weight} is not 1 to {WEIGHT_MAX}")));
            }
            url.parse::<UpstreamUrl>().map_err(|error| (at, format!("`{url}`: {error}")))?;
        }
        if let Some(ca) = &mut self.ca {
            resolve(ca, directory);
            let at = Some(ca.span().start);
            std::fs::metadata(ca.get_ref()).map_err(|error| (at, format!("`{}`: {error}", ca.get_ref().display())))?;
        }
        if let Some(interval) = &self.resolve_interval
            && *interval.get_ref() == 0
        {
            return Err((Some(interval.span().start), "resolve-interval is at least 1 second".into()));
        }
        if let Some(check) = &self.health_check {
            let at = Some(check.span().start);
            let check = check.get_ref();
            let path = check.path.as_deref().unwrap_or("/");
            tidegate::http1::Request::get(path).map_err(|error| (at, format!("`{path}`: {error}")))?;
            if let Some(text) = check.host.as_deref().into_iter().chain([path]).find_map(refuse_variable) {
                return Err((at, text));
            }
            let numbers = [check.interval, check.timeout, check.failures, check.successes];
            if numbers.contains(&Some(0)) {
                return Err((at, "times and counts of a check are at least 1".into()));
            }
        }
        Ok(())
    }
}

impl UpstreamServer {
    /// Its URL and its weight.
    pub(super) fn parts(&self) -> (&str, u32) {
        match self {
            Self::Url(url) => (url, 1),
            Self::Weighted { url, weight } => (url, *weight),
        }
    }
}

impl BalanceName {
    pub(super) fn balance(self) -> Balance {
        match self {
            Self::RoundRobin => Balance::RoundRobin,
            Self::LeastConnections => Balance::LeastConnections,
            Self::ConsistentHash => Balance::ConsistentHash,
        }
    }
}

impl Check {
    pub(super) fn of_path(path: String) -> Self {
        Self { path: Some(path), host: None, interval: None, timeout: None, failures: None, successes: None }
    }
}

impl Route {
    /// All requests, without changes.
    pub(super) fn to(upstream: Spanned<String>) -> Self {
        Self {
            hosts: Vec::new(),
            path: None,
            upstream,
            strip_path: false,
            host: None,
            response_timeout: None,
            request_headers: None,
            response_headers: None,
            rate_per_address: None,
            hash_key: None,
            x_forwarded: true,
            forwarded: false,
            trusted: Vec::new(),
            upgrades: None,
            connect: false,
            half_close: None,
        }
    }

    /// The prefix without the slash at its end; empty for all paths.
    pub(super) fn prefix(&self) -> &str {
        self.path.as_ref().map_or("", |path| path.get_ref().trim_end_matches('/'))
    }

    fn check(&self, upstreams: &HashSet<String>) -> Result<(), Mistake> {
        let upstream = self.upstream.get_ref();
        if !upstreams.contains(upstream) {
            let text = format!("there is no [[upstream]] with the name `{upstream}`");
            return Err((Some(self.upstream.span().start), text));
        }
        for host in &self.hosts {
            if let Some(text) = refuse_host(host.get_ref()) {
                return Err((Some(host.span().start), text));
            }
        }
        if let Some(path) = &self.path {
            let text = path.get_ref();
            if !text.starts_with('/') || text.contains(['{', '}', '?', '#', ' ', '*']) || text.contains("//") {
                let text = format!("`{text}` is not a path; it begins with a slash");
                return Err((Some(path.span().start), text));
            }
        }
        if let Some(host) = &self.host {
            let name = host.get_ref();
            let checked = tidegate::http1::Request::get("/").and_then(|request| request.host(name));
            checked.map_err(|error| (Some(host.span().start), format!("`{name}`: {error}")))?;
            if let Some(text) = refuse_variable(name) {
                return Err((Some(host.span().start), format!("host: {text}")));
            }
        }
        if self.response_timeout.is_some_and(|seconds| seconds == 0 || seconds > RESPONSE_TIMEOUT_MAX) {
            let text = format!("response-timeout is 1 to {RESPONSE_TIMEOUT_MAX} seconds");
            return Err((Some(self.upstream.span().start), text));
        }
        self.rate()?;
        self.key()?;
        self.networks()?;
        edits(self.request_headers.as_ref())?;
        edits(self.response_headers.as_ref())?;
        Ok(())
    }

    pub(super) fn rate(&self) -> Result<Option<ConnectionRate>, Mistake> {
        let Some(rate) = &self.rate_per_address else { return Ok(None) };
        let parsed = parse_rate(rate.get_ref());
        parsed.map(Some).map_err(|text| (Some(rate.span().start), format!("`{}` is {text}", rate.get_ref())))
    }

    pub(super) fn key(&self) -> Result<HashKey, Mistake> {
        let Some(key) = &self.hash_key else { return Ok(HashKey::Client) };
        match key.get_ref().as_str() {
            "client" => Ok(HashKey::Client),
            "target" => Ok(HashKey::Target),
            other => match other.strip_prefix("header:") {
                Some(name) if is_field_name(name) => Ok(HashKey::Header(name.to_owned())),
                _ => Err((Some(key.span().start), format!("`{other}` is not client, target or header:NAME"))),
            },
        }
    }

    pub(super) fn networks(&self) -> Result<Networks, Mistake> {
        let mut networks = Networks::default();
        for text in &self.trusted {
            let network = text.get_ref();
            let parsed =
                network.parse::<IpNet>().ok().or_else(|| Some(network.parse::<std::net::IpAddr>().ok()?.into()));
            let Some(parsed) = parsed else {
                return Err((Some(text.span().start), format!("`{network}` is not a network, such as 10.0.0.0/8")));
            };
            networks = networks.and(parsed.addr(), parsed.prefix_len());
        }
        Ok(networks)
    }
}

/// The changes of a table.
pub(super) fn edits(table: Option<&Spanned<Edits>>) -> Result<Vec<Edit>, Mistake> {
    let Some(table) = table else { return Ok(Vec::new()) };
    let at = Some(table.span().start);
    let edits = table.get_ref();
    let mut all = Vec::new();
    for name in &edits.remove {
        if !is_field_name(name.get_ref()) {
            let text = format!("`{}` is not the name of a field; there are no patterns", name.get_ref());
            return Err((Some(name.span().start), text));
        }
        all.push(Edit::remove(name.get_ref()));
    }
    let literal = |name: &str, value: &Spanned<String>| match refuse_variable(value.get_ref()) {
        Some(text) => Err((Some(value.span().start), format!("`{name}`: {text}; {KNOWN_OF_CLIENT}"))),
        None => Ok(()),
    };
    for (name, value) in &edits.set {
        literal(name, value)?;
        all.push(Edit::set(name, value.get_ref()).map_err(|error| (at, format!("`{name}`: {error}")))?);
    }
    for (name, value) in &edits.add {
        literal(name, value)?;
        all.push(Edit::add(name, value.get_ref()).map_err(|error| (at, format!("`{name}`: {error}")))?);
    }
    Ok(all)
}

/// Whether requests and responses can have a field of this name. A pattern has none, although `*` may stand in a name.
fn is_field_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&byte))
}

/// The replacement for the variables of another server, for messages.
const KNOWN_OF_CLIENT: &str = "X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host and Forwarded name the client";

/// The longest `response-timeout`, in seconds.
pub(super) const RESPONSE_TIMEOUT_MAX: u32 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sites::place;

    fn parse(source: &str) -> Result<Config, Mistake> {
        let mut config: Config = crate::sites::parse_toml(source)?;
        config.check(Path::new("/"))?;
        Ok(config)
    }

    const UPSTREAM: &str = "[[upstream]]\nname = \"a\"\nservers = [\"http://a\"]\n";

    #[test]
    fn a_full_file_is_read() {
        let config = parse(
            r#"
            access-log = "json"
            slashes = "refuse"

            [[upstream]]
            name = "app"
            servers = ["http://10.0.0.1:8080", { url = "http://10.0.0.2:8080", weight = 2 }]
            balance = "least-connections"
            health-check = { path = "/health", interval = 2 }
            ejection = { failures = 3 }
            retries = { per-request = 1 }
            resolve-interval = 5
            limits = { requests = 100, response-timeout = 10, requests-per-address = 20, queued-requests = 0 }

            [[route]]
            upstream = "app"

            [[route]]
            hosts = ["sea.example"]
            path = "/api/"
            upstream = "app"
            strip-path = true
            host = "inner.example"
            response-timeout = 5
            rate-per-address = "100/s:200"
            trusted = ["10.0.0.0/8", "::1"]
            request-headers = { set = { X-A = "1" }, remove = ["Cookie"] }
            "#,
        );
        let config = config.expect("there is no mistake");
        let route = config.route[1].get_ref();
        assert_eq!((route.prefix(), config.route[0].get_ref().prefix()), ("/api", ""));
        assert_eq!(edits(route.request_headers.as_ref()).unwrap().len(), 2);
        assert!(route.networks().unwrap().contains(Some([10, 1, 2, 3].into())));
    }

    #[test]
    fn a_mistake_has_its_line_and_column() {
        let route = |rest: &str| format!("{UPSTREAM}[[route]]\nupstream = \"a\"\n{rest}\n");
        for (source, expected, text) in [
            ("[[upstream]]\nname = \"a\"\nservers = []\n".to_owned(), Some((2, 8)), "no servers"),
            ("[[upstream]]\nname = \"a\"\nservers = [\"http://a/b\"]\n".into(), Some((3, 12)), "no path"),
            (
                "[[upstream]]\nname = \"a\"\nservers = [{ url = \"http://a\", weight = 0 }]\n".into(),
                Some((3, 12)),
                "weight",
            ),
            (format!("{UPSTREAM}resolve-interval = 0\n"), Some((4, 20)), "resolve-interval"),
            (format!("{UPSTREAM}{UPSTREAM}"), Some((5, 8)), "second upstream"),
            (UPSTREAM.into(), None, "no [[route]]"),
            (format!("{UPSTREAM}[[route]]\nupstream = \"b\"\n"), Some((5, 12)), "`b`"),
            (route("path = \"api\""), Some((6, 8)), "not a path"),
            (route("hosts = [\"a:1\"]"), Some((6, 10)), "name of a host"),
            (route("hosts = [\"*.example.org\"]"), Some((6, 10)), "no wildcards"),
            (route("host = \"$host\""), Some((6, 8)), "`$host` would be sent as it is"),
            (route("request-headers = { set = { X-IP = \"{client.ip}\" } }"), Some((6, 36)), "`X-IP`: `{client.ip}`"),
            (route("[route.request-headers.add]\nX-A = \"1\"\nX-IP = \"$remote_addr\""), Some((8, 8)), "$remote_addr"),
            (route("response-headers = { remove = [\"X-*\"] }"), Some((6, 32)), "no patterns"),
            (route("rate-per-address = \"fast\""), Some((6, 20)), "rate"),
            (route("hash-key = \"moon\""), Some((6, 12)), "header:NAME"),
            (route("trusted = [\"here\"]"), Some((6, 12)), "network"),
            (route("host = \"a b\""), Some((6, 8)), "host"),
            (route("request-headers = { set = { Connection = \"x\" } }"), Some((6, 19)), "Connection"),
            (route("response-headers = { set = { A = \"x\\ny\" } }"), Some((6, 20)), "control"),
            (route("[[route]]\nupstream = \"a\"\n"), Some((6, 1)), "second route"),
            (route("path = \"/ab\"\n[[route]]\nupstream = \"a\"\npath = \"/%61b\"\n"), Some((7, 1)), "second route"),
            (route("sail = 1"), Some((6, 1)), "sail"),
        ] {
            let (at, message) = parse(&source).map(drop).expect_err(&source);
            assert_eq!(at.map(|at| place(&source, at)), expected, "{source}{message}");
            assert!(message.contains(text) && !message.contains('\n'), "{source}{message}");
        }
    }
}
