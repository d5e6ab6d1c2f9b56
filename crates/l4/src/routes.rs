//! `Routes`: which upstreams get a connection, by the server name of its ClientHello or all alike.

use std::collections::HashMap;
use std::fmt;

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
    reads_hello: bool,
    exact: HashMap<String, Upstreams>,
    /// By the domain behind `*.`.
    wildcards: HashMap<String, Upstreams>,
    others: Option<Upstreams>,
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
    /// All connections have these upstreams. Nothing is read of a connection before it has one.
    #[must_use]
    pub fn to(upstreams: &Upstreams) -> Self {
        Self { reads_hello: false, exact: HashMap::new(), wildcards: HashMap::new(), others: Some(upstreams.clone()) }
    }

    /// TLS connections have the upstreams of their server name. One without a name, or with one that has no upstreams,
    /// is refused with the alert `unrecognized_name`.
    #[must_use]
    pub fn by_name() -> Self {
        Self { reads_hello: true, exact: HashMap::new(), wildcards: HashMap::new(), others: None }
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

    /// Whether the ClientHello of a connection is read.
    pub(crate) fn reads_hello(&self) -> bool {
        self.reads_hello
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
