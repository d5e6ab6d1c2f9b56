//! The model of a `[[route]]`: which requests it is for, and the action that they get. `route.rs`, `proxying.rs` and
//! `files.rs` have the keys.

use std::path::PathBuf;
use std::time::Duration;

use tidegate::http::proxy::{Edit, HashKey};
use tidegate::http::{RateKey, StatusCode, Template};
use tidegate::{ConnectionRate, IpNet};

use super::auth::{ForwardAuthRule, JwtRule};
use super::caching::CacheRule;
use super::connect_udp::{UdpProxyRule, has_all};
use super::cors::CorsRule;
use super::mirror::MirrorRule;
use super::mistakes::{Located, Place};
use super::path_rule::PathRule;
use super::rate::RateRule;
use super::rewriting::RewriteRule;
use super::sticky::StickyRule;

/// Requests, and the action that they get.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) place: Place,
    pub(crate) hosts: Vec<Located<String>>,
    pub(crate) path: Located<PathRule>,
    pub(crate) conditions: Conditions,
    pub(crate) action: Option<Action>,
    /// A mistake of its action was noted.
    pub(crate) is_action_left_out: bool,
    pub(crate) guards: GuardRules,
    pub(crate) proxying: ProxyRules,
    pub(crate) files: FileRules,
    pub(crate) error_pages: Vec<ErrorPage>,
    /// Pages replace the errors of upstreams too.
    pub(crate) intercepts_errors: bool,
    pub(crate) cors: Option<CorsRule>,
    pub(crate) basic_auth: Option<BasicAuthRule>,
    pub(crate) forward_auth: Option<ForwardAuthRule>,
    pub(crate) jwt: Option<JwtRule>,
    /// Keys that only some actions have: the name, its place, whether it is one of `upstream`.
    pub(crate) used: Vec<(&'static str, Place, Owner)>,
}

/// The action that a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Upstream,
    Folder,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Upstream(Located<String>),
    Folder(Located<PathBuf>),
    Redirect(Redirect),
    Respond(FixedResponse),
    ConnectUdp(UdpProxyRule),
}

/// Conditions of a request beyond its host and path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Conditions {
    pub(crate) methods: Vec<String>,
    pub(crate) headers: Vec<(String, Wanted)>,
    pub(crate) query: Vec<(String, Wanted)>,
    pub(crate) client: Vec<IpNet>,
}

/// The value that a field or a parameter of the query has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Wanted {
    /// Any.
    Present,
    /// It is not there.
    Absent,
    Value(String),
}

impl Conditions {
    /// Whether each request of the path gets the route.
    pub(crate) fn is_empty(&self) -> bool {
        self.methods.is_empty() && self.headers.is_empty() && self.query.is_empty() && self.client.is_empty()
    }

    /// Whether only the method decides.
    pub(crate) fn is_of_methods(&self) -> bool {
        !self.methods.is_empty() && self.headers.is_empty() && self.query.is_empty() && self.client.is_empty()
    }
}

impl Route {
    /// Whether clients need a password or a token.
    pub(crate) fn has_users(&self) -> bool {
        self.jwt.is_some() || self.forward_auth.is_some() || self.basic_auth.is_some()
    }

    /// Whether clients of some networks alone meet its conditions, or pass its guards.
    pub(super) fn is_for_some_networks(&self) -> bool {
        let is_some = |networks: &[IpNet]| !networks.is_empty() && !has_all(networks);
        is_some(&self.conditions.client) || self.guards.allow.as_ref().is_some_and(|allow| !has_all(allow))
    }

    /// Whether requests for UDP tunnels become datagrams here.
    pub(crate) fn has_udp_proxy(&self) -> bool {
        matches!(self.action, Some(Action::ConnectUdp(_)))
    }

    /// Whether an upstream gets requests for UDP tunnels.
    pub(crate) fn passes_udp_on(&self) -> bool {
        let protocols = self.proxying.upgrades.iter().flatten();
        let is_upstream = matches!(self.action, Some(Action::Upstream(_)));
        is_upstream && protocols.into_iter().any(|protocol| protocol.to_ascii_lowercase().starts_with("connect-"))
    }

    /// Its hosts and its path, for people: `sea.example /api/*`.
    pub(crate) fn name(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(|host| host.value.as_str()).collect();
        let path = match &self.path.value {
            PathRule::Exact(path) => path.clone(),
            PathRule::Prefix(prefix) => format!("{prefix}/*"),
        };
        format!("{} {path}", hosts.join(",")).trim_start().to_owned()
    }
}

impl Default for Route {
    fn default() -> Self {
        Self {
            place: Place::FLAG,
            hosts: Vec::new(),
            path: Located::of_flag(PathRule::ALL),
            conditions: Conditions::default(),
            action: None,
            guards: GuardRules::default(),
            proxying: ProxyRules::default(),
            files: FileRules::default(),
            error_pages: Vec::new(),
            is_action_left_out: false,
            intercepts_errors: false,
            cors: None,
            basic_auth: None,
            forward_auth: None,
            jwt: None,
            used: Vec::new(),
        }
    }
}

/// A place that is elsewhere now.
#[derive(Debug, Clone)]
pub(crate) struct Redirect {
    pub(crate) to: String,
    /// The same with placeholders.
    pub(crate) template: Option<Template>,
    pub(crate) status: u16,
}

impl Default for Redirect {
    fn default() -> Self {
        Self { to: String::new(), template: None, status: 308 }
    }
}

/// A response that each request gets.
#[derive(Debug, Clone)]
pub(crate) struct FixedResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Default for FixedResponse {
    fn default() -> Self {
        Self { status: StatusCode::OK, body: String::new(), headers: Vec::new() }
    }
}

/// Which clients may ask, how often, and fields of the responses.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuardRules {
    /// Networks of clients that may ask; all, unless set.
    pub(crate) allow: Option<Vec<IpNet>>,
    pub(crate) deny: Vec<IpNet>,
    pub(crate) rate: Option<RateRule>,
    pub(crate) rate_by: RateKey,
    pub(crate) concurrency: Option<u32>,
    pub(crate) security_headers: bool,
    /// From the whole request to the head of the response.
    pub(crate) timeout: Option<Duration>,
    /// Bytes of a request's body.
    pub(crate) body_bytes: Option<u64>,
    pub(crate) cache: Option<CacheRule>,
    pub(crate) compress: bool,
    pub(crate) sticky: Option<StickyRule>,
}

/// Changes of a proxy on the way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProxyRules {
    pub(crate) strip_path: bool,
    pub(crate) rewrites: Vec<RewriteRule>,
    pub(crate) host: HostRule,
    pub(crate) response_timeout: Option<Duration>,
    pub(crate) request_edits: Vec<Edit>,
    pub(crate) response_edits: Vec<Edit>,
    pub(crate) rate_per_address: Option<ConnectionRate>,
    pub(crate) hash_key: HashKey,
    pub(crate) x_forwarded: bool,
    pub(crate) forwarded: bool,
    /// Proxies in front; those of the file, unless set.
    pub(crate) trusted: Option<Vec<IpNet>>,
    pub(crate) upgrades: Option<Vec<String>>,
    pub(crate) connect: bool,
    pub(crate) half_close: Option<bool>,
    pub(crate) mirror: Option<MirrorRule>,
}

/// The host that the upstream gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostRule {
    Keep,
    OfUpstream,
    Name(String),
}

impl Default for ProxyRules {
    fn default() -> Self {
        Self {
            strip_path: false,
            rewrites: Vec::new(),
            host: HostRule::Keep,
            response_timeout: None,
            request_edits: Vec::new(),
            response_edits: Vec::new(),
            rate_per_address: None,
            hash_key: HashKey::Client,
            x_forwarded: true,
            forwarded: false,
            trusted: None,
            upgrades: None,
            connect: false,
            half_close: None,
            mirror: None,
        }
    }
}

/// How a folder is served.
#[derive(Debug, Clone)]
pub(crate) struct FileRules {
    pub(crate) index: bool,
    pub(crate) listing: bool,
    pub(crate) precompressed: bool,
    pub(crate) compression: bool,
    pub(crate) symlinks: bool,
    pub(crate) dot_files: bool,
    pub(crate) cache_control: Option<String>,
}

impl Default for FileRules {
    fn default() -> Self {
        Self {
            index: true,
            listing: false,
            precompressed: false,
            compression: true,
            symlinks: false,
            dot_files: false,
            cache_control: None,
        }
    }
}

/// The body of the responses with a status, or with those of a class.
#[derive(Debug, Clone)]
pub(crate) struct ErrorPage {
    pub(crate) statuses: ErrorStatuses,
    pub(crate) path: Located<PathBuf>,
}

/// The errors that a page is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorStatuses {
    One(StatusCode),
    /// 400 to 499.
    OfClients,
    /// 500 to 599.
    OfServers,
}

impl ErrorPage {
    /// A page for a status. A mistake has its text, and whether the status has it.
    pub(crate) fn new(status: &str, path: Located<PathBuf>) -> Result<Self, (String, bool)> {
        let code = || status.parse::<u16>().ok().filter(|code| (400..600).contains(code));
        let statuses = match status {
            "4xx" => Some(ErrorStatuses::OfClients),
            "5xx" => Some(ErrorStatuses::OfServers),
            _ => code().and_then(|code| StatusCode::from_u16(code).ok()).map(ErrorStatuses::One),
        };
        let Some(statuses) = statuses else {
            let text = format!("`{}` is not the status of an error: 400 to 599, 4xx, 5xx", status.escape_debug());
            return Err((text, true));
        };
        let shown = path.value.display();
        match std::fs::metadata(&path.value).map(|metadata| metadata.len()) {
            Ok(length) if length > ERROR_PAGE_BYTES_MAX => Err((format!("`{shown}` is larger than 1 MiB"), false)),
            Ok(_) => Ok(Self { statuses, path }),
            Err(error) => Err((format!("`{shown}`: {error}"), false)),
        }
    }
}

/// Names and passwords.
#[derive(Debug, Clone, Default)]
pub(crate) struct BasicAuthRule {
    pub(super) place: Place,
    pub(crate) realm: String,
    /// With passwords in the clear.
    pub(crate) users: Vec<(String, String)>,
    /// Lines with hashes, `NAME:HASH`; empty if there are none.
    pub(crate) hashes: String,
    /// Wrong pairs of one client.
    pub(crate) guesses: Option<ConnectionRate>,
}

impl BasicAuthRule {
    /// With users of flags.
    pub(crate) fn of_users(users: Vec<(String, String)>) -> Self {
        Self { place: Place::FLAG, realm: REALM.into(), users, ..Self::default() }
    }
}

pub(super) const REALM: &str = "restricted";
const ERROR_PAGE_BYTES_MAX: u64 = 1024 * 1024;
