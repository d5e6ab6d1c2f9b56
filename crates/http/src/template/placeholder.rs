//! `Placeholder`: a name between braces, and the name that was meant by one that is not known.

use std::fmt;

use super::error::TemplateFault;

/// A part of a request or its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Placeholder {
    Fixed(FixedPlaceholder),
    Header(Box<str>),
    Cookie(Box<str>),
    Parameter(Box<str>),
}

/// A placeholder whose name is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FixedPlaceholder {
    ClientIp,
    ClientPort,
    PeerIp,
    PeerPort,
    Method,
    Scheme,
    Host,
    Hostname,
    Path,
    Query,
    Target,
    Id,
    TraceId,
    SpanId,
    Upstream,
    Status,
    TlsVersion,
    TlsCipher,
    TlsServerName,
    TlsClientSubject,
    TlsClientNames,
}

impl FixedPlaceholder {
    const ALL: [(&'static str, Self); 21] = [
        ("client.ip", Self::ClientIp),
        ("client.port", Self::ClientPort),
        ("peer.ip", Self::PeerIp),
        ("peer.port", Self::PeerPort),
        ("request.method", Self::Method),
        ("request.scheme", Self::Scheme),
        ("request.host", Self::Host),
        ("request.hostname", Self::Hostname),
        ("request.path", Self::Path),
        ("request.query", Self::Query),
        ("request.target", Self::Target),
        ("request.id", Self::Id),
        ("trace.id", Self::TraceId),
        ("span.id", Self::SpanId),
        ("upstream.address", Self::Upstream),
        ("response.status", Self::Status),
        ("tls.version", Self::TlsVersion),
        ("tls.cipher", Self::TlsCipher),
        ("tls.sni", Self::TlsServerName),
        ("tls.client.subject", Self::TlsClientSubject),
        ("tls.client.san", Self::TlsClientNames),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, other)| *other == self).map_or("", |(name, _)| name)
    }
}

/// The beginnings of names that end with one of the user's choice.
const HEADER: &str = "request.header.";
const COOKIE: &str = "request.cookie.";
const PARAMETER: &str = "request.param.";

impl Placeholder {
    pub(super) fn parse(name: &str) -> Result<Self, TemplateFault> {
        if let Some((_, fixed)) = FixedPlaceholder::ALL.iter().find(|(known, _)| *known == name) {
            return Ok(Self::Fixed(*fixed));
        }
        let is_token =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&byte));
        for (prefix, make) in
            [(HEADER, Self::Header as fn(Box<str>) -> Self), (COOKIE, Self::Cookie), (PARAMETER, Self::Parameter)]
        {
            match name.strip_prefix(prefix) {
                Some("") => return Err(TemplateFault::Unnamed(name.into())),
                Some(own) if prefix != PARAMETER && !is_token(own) => return Err(TemplateFault::NoToken(name.into())),
                Some(own) => return Ok(make(own.into())),
                None => {}
            }
        }
        Err(TemplateFault::Unknown { name: name.into(), nearest: nearest(name) })
    }

    pub(super) fn reads_tls(&self) -> bool {
        use FixedPlaceholder::{TlsCipher, TlsClientNames, TlsClientSubject, TlsServerName, TlsVersion};
        matches!(self, Self::Fixed(TlsVersion | TlsCipher | TlsServerName | TlsClientSubject | TlsClientNames))
    }

    /// Whether the value is decided by the URL alone.
    pub(super) fn is_of_url(&self) -> bool {
        use FixedPlaceholder::{Host, Hostname, Path, Query, Scheme, Target};
        matches!(self, Self::Parameter(_) | Self::Fixed(Scheme | Host | Hostname | Path | Query | Target))
    }

    pub(super) fn needs_response(&self) -> bool {
        matches!(self, Self::Fixed(FixedPlaceholder::Upstream | FixedPlaceholder::Status))
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(fixed) => f.write_str(fixed.name()),
            Self::Header(name) => write!(f, "{HEADER}{name}"),
            Self::Cookie(name) => write!(f, "{COOKIE}{name}"),
            Self::Parameter(name) => write!(f, "{PARAMETER}{name}"),
        }
    }
}

/// The known name that is nearest to a text, if one is near. The text is part of a file of the administrator; a long one has
/// none.
fn nearest(name: &str) -> Option<Box<str>> {
    if name.is_empty() || name.len() > NEAR_BYTES_MAX {
        return None;
    }
    let as_written = name.trim();
    let name = as_written.to_ascii_lowercase().replace(['_', '-'], ".");
    // `host` stands for `request.host`.
    let by_last_word = |known: &str| known.split('.').next_back() == Some(&name);
    if let Some((known, _)) = FixedPlaceholder::ALL.iter().find(|(known, _)| by_last_word(known)) {
        return Some((*known).into());
    }
    let fixed = FixedPlaceholder::ALL.iter().map(|(known, _)| (distance(&name, known), Box::from(*known)));
    let open = [HEADER, COOKIE, PARAMETER].into_iter().filter_map(|prefix| {
        let beginning = name.match_indices('.').nth(1).map(|(at, _)| at + 1)?;
        let own = as_written.get(beginning..)?;
        (!own.is_empty()).then(|| (distance(&name[..beginning], prefix), format!("{prefix}{own}").into()))
    });
    let (distance, known) = fixed.chain(open).min_by_key(|(distance, _)| *distance)?;
    (distance <= NEAR_MAX).then_some(known)
}

/// How many letters are to be changed, added or removed: the distance of Levenshtein.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, byte) in one.bytes().enumerate() {
        let mut before = std::mem::replace(&mut row[0], at + 1);
        for (place, known) in other.bytes().enumerate() {
            let changed = before + usize::from(byte != known);
            before = row[place + 1];
            row[place + 1] = changed.min(before + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

/// The longest text for which a known name is sought, in bytes.
const NEAR_BYTES_MAX: usize = 128;

/// The greatest distance of a name that was probably meant.
const NEAR_MAX: usize = 4;
