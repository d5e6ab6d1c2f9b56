//! `Options`: how the requests of one route are passed on.

use std::time::Duration;

use tidegate_http::{Edit, RateLimit};

use super::fields::is_same;
use super::forwarded::{Forwarding, Pseudonym};
use super::mirror::Mirror;
use super::request_head::REQUEST_ID;
use super::rewrite::Rewrite;
use super::sticky::StickyCookie;

/// The key that decides which upstream gets a request, with
/// [`Balance::ConsistentHash`](super::Balance::ConsistentHash).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HashKey {
    /// The address of the client.
    #[default]
    Client,
    /// The path and query.
    Target,
    /// The value of a field; the address of the client where it is missing.
    Header(String),
    /// The value of a cookie; the address of the client where it is missing.
    Cookie(String),
}

/// The host of the requests that an upstream gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum HostRule {
    #[default]
    Keep,
    OfUpstream,
    Fixed(String),
}

#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) forwarding: Forwarding,
    pub(super) pseudonym: Pseudonym,
    pub(super) host: HostRule,
    pub(super) strip_prefix: Option<String>,
    /// After the prefix is removed, in their order.
    pub(super) rewrites: Vec<Rewrite>,
    pub(super) request_edits: Vec<Edit>,
    pub(super) response_edits: Vec<Edit>,
    pub(super) hash_key: HashKey,
    pub(super) sticky: Option<StickyCookie>,
    pub(super) mirror: Option<Mirror>,
    /// The longest body of a request, in bytes.
    pub(super) request_body_bytes_max: u64,
    pub(super) end_wait: Duration,
    /// The protocols that requests may switch to.
    pub(super) upgrades: Vec<String>,
    /// Whether CONNECT is passed on.
    pub(super) connect: bool,
    /// Requests of one client address.
    pub(super) rate: Option<RateLimit>,
    /// Until the head of the response, in the place of the upstreams' limit.
    pub(super) response_timeout: Option<Duration>,
}

impl Options {
    /// Whether a request field of this name has a value for an upstream that neither the request nor its URL decides.
    pub(super) fn chooses_field(&self, name: &[u8]) -> bool {
        let is_edited = || self.request_edits.iter().any(|edit| !edit.is_constant() && edit.is_about(name));
        self.forwarding.chooses(name) || is_same(REQUEST_ID, name) || is_edited()
    }

    /// The settings for copies of the requests: those about the client are left out.
    pub(super) fn of_copies(&self) -> Self {
        Self {
            rate: None,
            sticky: None,
            mirror: None,
            response_edits: Vec::new(),
            upgrades: Vec::new(),
            connect: false,
            ..self.clone()
        }
    }

    /// Whether requests may switch to this protocol.
    pub(super) fn passes_on(&self, protocol: &str) -> bool {
        self.upgrades.iter().any(|one| one.eq_ignore_ascii_case(protocol))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            forwarding: Forwarding::default(),
            pseudonym: Pseudonym::of_process(),
            host: HostRule::default(),
            strip_prefix: None,
            rewrites: Vec::new(),
            request_edits: Vec::new(),
            response_edits: Vec::new(),
            hash_key: HashKey::default(),
            sticky: None,
            mirror: None,
            request_body_bytes_max: u64::MAX,
            end_wait: END_WAIT,
            upgrades: vec!["websocket".into()],
            connect: false,
            rate: None,
            response_timeout: None,
        }
    }
}

/// The end of a stream comes with the head, in the next packet, or when a lost packet is sent again.
const END_WAIT: Duration = Duration::from_millis(250);
