//! `Routes`: which upstreams get a connection, by its first bytes, by the server name of its ClientHello, or all alike.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tidegate_codec::sniff::Match;

use super::opening::Opened;
use super::upstreams::Upstreams;

/// Which upstreams get a connection.
///
/// ```
/// use tidegate::l4::{Routes, Upstreams};
///
/// let web = Upstreams::builder().server("tcp://10.0.0.1:443".parse()?, 1).build();
/// let routes = Routes::by_name().name("sea.example", &web)?.name("*.sea.example", &web)?;
/// assert!(routes.find(Some("www.sea.example")).is_some());
/// assert!(routes.find(Some("other.example")).is_none() && routes.find(None).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Routes {
    by_first_bytes: Arc<Vec<FirstBytesRule>>,
    reads_hello: bool,
    exact: HashMap<String, Upstreams>,
    /// By the domain behind `*.`.
    wildcards: HashMap<String, Upstreams>,
    others: Option<Upstreams>,
}

/// A rule for the first bytes of a connection.
type Rule = dyn Fn(&[u8]) -> Match + Send + Sync;

/// The upstreams of the connections whose first bytes match.
#[derive(Clone)]
pub(crate) struct FirstBytesRule {
    pub(crate) rule: Arc<Rule>,
    upstreams: Upstreams,
}

/// Why a text is no pattern of server names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidName {
    /// It is neither the name of a host nor `*.` and one. An IP address is no server name (RFC 6066 §3).
    Pattern,
    /// Another pattern is the same.
    Twice,
}

impl Routes {
    /// All connections have these upstreams. Nothing is read of a connection before it has one, unless there are rules
    /// for [first bytes](Self::when).
    #[must_use]
    pub fn to(upstreams: &Upstreams) -> Self {
        Self::empty(false, Some(upstreams.clone()))
    }

    fn empty(reads_hello: bool, others: Option<Upstreams>) -> Self {
        Self { by_first_bytes: Arc::default(), reads_hello, exact: HashMap::new(), wildcards: HashMap::new(), others }
    }

    /// TLS connections have the upstreams of their server name. One without a name, or with one that has no upstreams,
    /// is refused with the alert `unrecognized_name`.
    #[must_use]
    pub fn by_name() -> Self {
        Self::empty(true, None)
    }

    /// The upstreams of the connections whose first bytes match a rule of `tidegate::sniff`, and none of the rules before:
    /// before server names, behind a PROXY header. A connection that matches no rule goes on as if there were none. A rule
    /// that needs more than 256 bytes, or bytes behind the end of the stream, does not match. A client that sends nothing
    /// for [`opening_timeout`](super::TcpLimits::opening_timeout) is disconnected, so every protocol of the port has to be
    /// one in which the client speaks first.
    ///
    /// ```
    /// use tidegate::l4::{Routes, Upstreams};
    /// use tidegate::sniff;
    ///
    /// let to = |server: &str| Ok::<_, tidegate::l4::InvalidAddress>(Upstreams::builder().server(server.parse()?, 1).build());
    /// let (web, shell, sea) = (to("tcp://10.0.0.1:80")?, to("tcp://10.0.0.2:22")?, to("tcp://10.0.0.3:443")?);
    /// let routes = Routes::by_name()
    ///     .name("sea.example", &sea)?
    ///     .when(sniff::http1, &web)
    ///     .when(sniff::starts_with(b"SSH-"), &shell);
    /// # drop(routes);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn when(mut self, rule: impl Fn(&[u8]) -> Match + Send + Sync + 'static, upstreams: &Upstreams) -> Self {
        let rule = FirstBytesRule { rule: Arc::new(rule), upstreams: upstreams.clone() };
        Arc::make_mut(&mut self.by_first_bytes).push(rule);
        self
    }

    /// The upstreams of a server name, or of all names below a domain: `*.sea.example`. An exact name comes first, then
    /// the longest domain.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn name(mut self, pattern: &str, upstreams: &Upstreams) -> Result<Self, InvalidName> {
        let lower = pattern.to_ascii_lowercase();
        let (map, name) = match lower.strip_prefix("*.") {
            Some(domain) => (&mut self.wildcards, domain),
            None => (&mut self.exact, &*lower),
        };
        let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_byte);
        let is_ip = name.parse::<std::net::IpAddr>().is_ok();
        if name.len() > 253 || is_ip || !name.split('.').all(is_label) {
            return Err(InvalidName::Pattern);
        }
        if map.insert(name.to_owned(), upstreams.clone()).is_some() {
            return Err(InvalidName::Twice);
        }
        Ok(self)
    }

    /// The upstreams of all other names, and of connections without one.
    #[must_use]
    pub fn otherwise(mut self, upstreams: &Upstreams) -> Self {
        self.others = Some(upstreams.clone());
        self
    }

    /// The upstreams of a connection with a server name in lower case, or without one.
    #[must_use]
    pub fn find(&self, name: Option<&str>) -> Option<&Upstreams> {
        let of_name = |name: &str| {
            let mut domains = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
            self.exact.get(name).or_else(|| domains.find_map(|domain| self.wildcards.get(domain)))
        };
        name.and_then(of_name).or(self.others.as_ref())
    }

    /// The upstreams of a connection whose beginning is complete.
    pub(crate) fn of(&self, opened: &Opened) -> Option<&Upstreams> {
        match opened.rule {
            Some(rule) => self.by_first_bytes.get(rule).map(|rule| &rule.upstreams),
            None => self.find(opened.server_name.as_deref()),
        }
    }

    /// The rules for first bytes.
    pub(crate) fn by_first_bytes(&self) -> &Arc<Vec<FirstBytesRule>> {
        &self.by_first_bytes
    }

    /// Whether the ClientHello of a connection is read.
    pub(crate) fn reads_hello(&self) -> bool {
        self.reads_hello
    }

    /// Whether bytes of a connection are read before it has upstreams.
    pub(crate) fn reads_opening(&self) -> bool {
        self.reads_hello || !self.by_first_bytes.is_empty()
    }
}

impl fmt::Debug for FirstBytesRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstBytesRule").field("upstreams", &self.upstreams).finish_non_exhaustive()
    }
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pattern => "it is neither the name of a host nor `*.` and a domain",
            Self::Twice => "it stands twice",
        })
    }
}

impl std::error::Error for InvalidName {}
