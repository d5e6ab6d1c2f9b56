//! `ResolvConf`: the servers, the search list and the options of `/etc/resolv.conf`.
//!
//! A file of any content has a meaning, as in the C library: unknown lines and malformed values are ignored, and counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::name::Name;

/// A configuration of the system's resolver.
///
/// ```
/// use tidegate::dns::ResolvConf;
///
/// let conf = ResolvConf::parse(b"nameserver 192.0.2.53\nsearch tides.example gate.example\noptions ndots:2\n");
/// assert_eq!((conf.servers.len(), conf.search.len(), conf.ndots), (1, 2, 2));
/// let tried: Vec<String> = conf.candidates("www").iter().map(ToString::to_string).collect();
/// assert_eq!(tried, ["www.tides.example.", "www.gate.example.", "www."]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvConf {
    /// The servers, three at most; without any, that of this host, `127.0.0.1`.
    pub servers: Vec<ServerAddress>,
    /// The domains that complete a relative name, six at most.
    pub search: Vec<Name>,
    /// A name with fewer dots is tried with the search list first; 1, at most 15.
    pub ndots: u8,
    /// The time that a server has to answer; 5 s, at most 30 s.
    pub timeout: Duration,
    /// Rounds over the servers; 2, at most 5.
    pub attempts: u8,
    /// Whether each lookup begins with another server.
    pub rotate: bool,
    /// Whether only TCP is used.
    pub use_tcp: bool,
    /// Whether queries have an OPT record; the option `edns0` is on here by default.
    pub edns: bool,
    /// Whether no IPv6 address is looked up; those of the hosts file hold.
    pub no_aaaa: bool,
    /// Lines and options that were ignored because they are malformed or beyond a limit.
    pub ignored: usize,
}

/// The address of a server, and the interface of a link-local one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    /// The address.
    pub address: IpAddr,
    /// The name or the index of the interface, behind `%`.
    pub scope: Option<Box<str>>,
}

impl From<IpAddr> for ServerAddress {
    fn from(address: IpAddr) -> Self {
        Self { address, scope: None }
    }
}

impl Default for ResolvConf {
    /// The configuration of an empty file.
    fn default() -> Self {
        Self {
            servers: vec![IpAddr::V4(Ipv4Addr::LOCALHOST).into()],
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
            rotate: false,
            use_tcp: false,
            edns: true,
            no_aaaa: false,
            ignored: 0,
        }
    }
}

impl ResolvConf {
    /// Reads the content of a file. The last of several `search` and `domain` lines counts.
    #[must_use]
    pub fn parse(content: &[u8]) -> Self {
        let mut conf = Self { servers: Vec::new(), ..Self::default() };
        let content = &content[..content.len().min(FILE_BYTES_MAX)];
        for line in content.split(|byte| *byte == b'\n') {
            let Ok(line) = std::str::from_utf8(line) else {
                conf.ignored += 1;
                continue;
            };
            // A comment begins a line or follows a space; a `#` within a word is part of it.
            let mut words = line.split_ascii_whitespace().take_while(|word| !word.starts_with(['#', ';']));
            let Some(keyword) = words.next() else { continue };
            match keyword {
                "nameserver" => conf.server(words.next()),
                "search" => conf.search_list(words),
                "domain" => conf.search_list(words.take(1)),
                "options" => words.for_each(|option| conf.option(option)),
                _ => conf.ignored += 1,
            }
        }
        if conf.servers.is_empty() {
            conf.servers = Self::default().servers;
        }
        conf
    }

    fn server(&mut self, word: Option<&str>) {
        match word.and_then(parse_address) {
            Some(server) if self.servers.len() < SERVERS_MAX => self.servers.push(server),
            _ => self.ignored += 1,
        }
    }

    fn search_list<'a>(&mut self, words: impl Iterator<Item = &'a str>) {
        self.search.clear();
        for word in words {
            match word.parse::<Name>() {
                Ok(name) if self.search.len() < SEARCH_MAX => self.search.push(name),
                _ => self.ignored += 1,
            }
        }
    }

    fn option(&mut self, option: &str) {
        let number = |text: &str, max: u32| text.parse::<u32>().ok().map(|number| number.min(max));
        let (key, value) = option.split_once(':').unwrap_or((option, ""));
        match (key, value) {
            ("ndots", value) => match number(value, 15) {
                Some(ndots) => self.ndots = ndots as u8,
                None => self.ignored += 1,
            },
            ("timeout", value) => match number(value, 30) {
                Some(seconds) => self.timeout = Duration::from_secs(u64::from(seconds.max(1))),
                None => self.ignored += 1,
            },
            ("attempts", value) => match number(value, 5) {
                Some(attempts) => self.attempts = attempts.max(1) as u8,
                None => self.ignored += 1,
            },
            ("rotate", "") => self.rotate = true,
            ("use-vc", "") => self.use_tcp = true,
            ("no-aaaa", "") => self.no_aaaa = true,
            ("edns0", "") => self.edns = true,
            // Options of other systems, whose effects a resolver of this kind does not have.
            ("single-request" | "single-request-reopen" | "trust-ad" | "no-reload" | "inet6" | "debug", "") => {}
            _ => self.ignored += 1,
        }
    }

    /// The names to try for a name that an application uses, in this order. A name that ends with a dot is tried alone;
    /// a text that is no name has no candidate, and a domain that makes a name too long is left out.
    #[must_use]
    pub fn candidates(&self, text: &str) -> Vec<Name> {
        let Ok(name) = text.parse::<Name>() else { return Vec::new() };
        let is_absolute = text.ends_with('.') && !text.ends_with("\\.");
        if is_absolute || name.is_root() {
            return vec![name];
        }
        let mut names: Vec<Name> = self.search.iter().filter_map(|domain| name.join(domain).ok()).collect();
        let has_dots = name.label_count() > usize::from(self.ndots);
        names.insert(if has_dots { 0 } else { names.len() }, name);
        names
    }
}

fn parse_address(word: &str) -> Option<ServerAddress> {
    let (address, scope) = word.split_once('%').map_or((word, None), |(address, scope)| (address, Some(scope)));
    let address: IpAddr = address.parse().ok()?;
    let is_link_local = matches!(address, IpAddr::V6(v6) if is_link_local(v6));
    match scope {
        None => Some(address.into()),
        Some(scope) if !scope.is_empty() && scope.len() <= 15 && is_link_local => {
            Some(ServerAddress { address, scope: Some(scope.into()) })
        }
        Some(_) => None,
    }
}

const fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

/// `MAXNS` of the C library.
const SERVERS_MAX: usize = 3;
/// `MAXDNSRCH` of the C library.
const SEARCH_MAX: usize = 6;
/// The rest of a longer file is ignored.
const FILE_BYTES_MAX: usize = 64 * 1024;
