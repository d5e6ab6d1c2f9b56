//! `Rewrite`: another path for the upstream than the one that the client has sent.
//!
//! A pattern is matched against the path as routes match it, so that a client does not pass it by with another spelling. The
//! result is checked like a path that a client has sent: two servers must not read two paths in it. The time of a match is
//! linear in the path, and the memory of a pattern is bounded.

use std::borrow::Cow;
use std::fmt;

use regex::bytes::{Captures, Regex, RegexBuilder};
use tidegate_http::gateway;

use super::dot_segments::has_dot_segment;

/// A change of the path that an upstream gets; see [`Proxy::rewrite`](super::Proxy::rewrite).
///
/// ```
/// use tidegate::http::proxy::{Proxy, Rewrite, Upstreams};
///
/// let upstreams = Upstreams::new(["http://10.0.0.1:8080"])?;
/// let proxy = Proxy::new(&upstreams)
///     .strip_prefix("/shop")
///     .rewrite(Rewrite::pattern("^/item/([0-9]+)$", "/items?id=$1")?)
///     .rewrite(Rewrite::add_prefix("/v2")?);
/// # drop(proxy);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Rewrite(RewriteRule);

#[derive(Debug, Clone)]
enum RewriteRule {
    AddPrefix(String),
    Pattern { pattern: Regex, replacement: Box<[ReplacementPart]> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ReplacementPart {
    Text(String),
    Group(usize),
}

/// Why a [`Rewrite`] cannot be made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum InvalidRewrite {
    /// A prefix begins with a slash and ends without one, and has no `?`, `#` or dot segment.
    Prefix,
    /// The pattern is malformed, or needs more than 256 KiB.
    Pattern(Box<regex::Error>),
    /// The pattern has no group of this number or name.
    Group(Box<str>),
    /// The replacement has bytes that no path has.
    Replacement,
}

impl fmt::Display for InvalidRewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix => f.write_str("a prefix begins with a slash, ends without one, and is a path"),
            Self::Pattern(error) => error.fmt(f),
            Self::Group(name) => write!(f, "the pattern has no group `{name}`; write `$$` for a dollar sign"),
            Self::Replacement => f.write_str("the replacement has bytes that no path has"),
        }
    }
}

impl std::error::Error for InvalidRewrite {}

impl Rewrite {
    /// Puts whole segments before the path, such as `/v2`.
    ///
    /// # Errors
    /// [`InvalidRewrite::Prefix`].
    pub fn add_prefix(prefix: &str) -> Result<Self, InvalidRewrite> {
        let is_path = prefix.starts_with('/') && !prefix.ends_with('/') && is_path(prefix.as_bytes());
        if !is_path || prefix.contains('?') || has_dot_segment(prefix.as_bytes()) {
            return Err(InvalidRewrite::Prefix);
        }
        Ok(Self(RewriteRule::AddPrefix(prefix.to_owned())))
    }

    /// Replaces the first part of the path that a regular expression matches; a path that it does not match stays as it was
    /// sent. The syntax is that of the `regex` crate for ASCII: no look-around and no back-references, which would need
    /// more than linear time.
    ///
    /// In the replacement `$1`, `${1}` and `${name}` are groups, and `$$` is a dollar sign. The query of the request stays; if
    /// the replacement has a `?`, the query follows behind an `&`, and `&`, `=`, `+` and `;` of a group are percent-encoded
    /// there. A path that is none then is answered with 400.
    ///
    /// # Errors
    /// [`InvalidRewrite`]: a malformed pattern, one that needs too much memory, or a group that it does not have.
    pub fn pattern(pattern: &str, replacement: &str) -> Result<Self, InvalidRewrite> {
        let regex = RegexBuilder::new(pattern)
            .unicode(false)
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_BYTES_MAX)
            .nest_limit(PATTERN_NESTING_MAX)
            .build()
            .map_err(|error| InvalidRewrite::Pattern(Box::new(error)))?;
        let replacement = parse_replacement(replacement, &regex)?;
        Ok(Self(RewriteRule::Pattern { pattern: regex, replacement }))
    }

    /// The target with another path and perhaps more in its query; `None` if that is no target.
    pub(super) fn apply<'a>(&self, path: Cow<'a, [u8]>, query: &mut Vec<u8>) -> Option<Cow<'a, [u8]>> {
        match &self.0 {
            RewriteRule::AddPrefix(prefix) => Some([prefix.as_bytes(), &path].concat().into()),
            RewriteRule::Pattern { pattern, replacement } => {
                let normal = gateway::normal_path_of(&path);
                let Some(groups) = pattern.captures(normal.as_bytes()) else { return Some(path) };
                replaced(normal.as_bytes(), &groups, replacement, query).map(Cow::Owned)
            }
        }
    }
}

/// The path in which a match is replaced. A `?` in it begins the query.
fn replaced(path: &[u8], groups: &Captures<'_>, parts: &[ReplacementPart], query: &mut Vec<u8>) -> Option<Vec<u8>> {
    let whole = groups.get(0)?;
    let mut target = path[..whole.start()].to_vec();
    // A part of the path adds no parameter to the query: its `&` is data.
    let mut is_query = false;
    for part in parts {
        match part {
            ReplacementPart::Text(text) => {
                target.extend_from_slice(text.as_bytes());
                is_query |= text.contains('?');
            }
            ReplacementPart::Group(number) => {
                push_part(&mut target, groups.get(*number).map_or(&b""[..], |group| group.as_bytes()), is_query);
            }
        }
        if target.len() > TARGET_BYTES_MAX {
            return None;
        }
    }
    push_part(&mut target, &path[whole.end()..], is_query);
    if let Some(at) = target.iter().position(|byte| *byte == b'?') {
        let mut own = target.split_off(at);
        if query.len() > 1 {
            own.push(b'&');
            own.extend_from_slice(&query[1..]);
        }
        *query = own;
    }
    let is_target = target.starts_with(b"/") && is_path(&target) && is_path(query) && !has_dot_segment(&target);
    is_target.then_some(target)
}

/// Adds a part of a normal path. In a query, what separates parameters or stands for a space is escaped; an escape stays one.
fn push_part(target: &mut Vec<u8>, part: &[u8], is_query: bool) {
    for byte in part {
        match byte {
            b'&' | b'=' | b'+' | b';' if is_query => target.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            _ => target.push(*byte),
        }
    }
}

/// Whether all bytes may be sent in a path or a query.
fn is_path(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#')
}

fn parse_replacement(text: &str, pattern: &Regex) -> Result<Box<[ReplacementPart]>, InvalidRewrite> {
    if !is_path(text.as_bytes()) {
        return Err(InvalidRewrite::Replacement);
    }
    let (mut parts, mut literal, mut rest) = (Vec::new(), String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        literal.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            literal.push('$');
            rest = after;
            continue;
        }
        let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let (name, after) = match after.strip_prefix('{').and_then(|after| after.split_once('}')) {
            Some(named) => named,
            None => after.split_at(after.find(|character| !is_name(character)).unwrap_or(after.len())),
        };
        let by_number = name.parse::<usize>().ok().filter(|number| *number < pattern.captures_len());
        let by_name = || pattern.capture_names().position(|known| known == Some(name));
        let group = by_number.or_else(by_name).ok_or_else(|| InvalidRewrite::Group(name.into()))?;
        if !literal.is_empty() {
            parts.push(ReplacementPart::Text(std::mem::take(&mut literal)));
        }
        parts.push(ReplacementPart::Group(group));
        rest = after;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(ReplacementPart::Text(literal));
    }
    Ok(parts.into())
}

/// The memory of a pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// How deep the groups of a pattern may be nested.
const PATTERN_NESTING_MAX: u32 = 64;

/// The longest target that a pattern yields, in bytes.
const TARGET_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(pattern: &str, replacement: &str, path: &str, query: &str) -> Option<String> {
        let mut query = query.as_bytes().to_vec();
        let rewrite = Rewrite::pattern(pattern, replacement).unwrap();
        let path = rewrite.apply(path.as_bytes().into(), &mut query)?.into_owned();
        Some(String::from_utf8([path, query].concat()).unwrap())
    }

    #[test]
    fn a_pattern_replaces_a_part_of_the_path() {
        for (pattern, replacement, path, query, expected) in [
            ("^/old/(.*)$", "/new/$1", "/old/a/b", "", "/new/a/b"),
            ("^/old/(.*)$", "/new/$1", "/%6fld/a%20b", "?c", "/new/a%20b?c"),
            ("^/old/(.*)$", "/new/$1", "/%6Fther", "?c", "/%6Fther?c"),
            ("^/(?<kind>[a-z]+)/([0-9]+)$", "/${kind}?id=${2}&v=$$", "/item/7", "", "/item?id=7&v=$"),
            ("^/(a)(b)?$", "/${2}x$1", "/a", "?q=1", "/xa?q=1"),
            ("/item/([0-9]+)", "/i?n=$1", "/item/7", "?q=1", "/i?n=7&q=1"),
            ("b", "c", "/abab", "", "/acab"),
            ("^/item/(.*)$", "/i?id=$1", "/item/7%26admin%3d1", "", "/i?id=7%26admin%3D1"),
            ("^/item/(.*)$", "/i?id=$1", "/item/7&a=b+c;d%2Fe%25", "?q=1", "/i?id=7%26a%3Db%2Bc%3Bd%2Fe%25&q=1"),
            ("^/item/(.*)$", "/i/$1", "/item/a&b=c+d", "", "/i/a&b=c+d"),
            ("^/item", "/i?rest=", "/item/a&b", "", "/i?rest=/a%26b"),
        ] {
            assert_eq!(rewritten(pattern, replacement, path, query).as_deref(), Some(expected), "{pattern} {path}");
        }
    }

    #[test]
    fn a_result_that_two_servers_read_in_two_ways_is_none() {
        for (pattern, replacement, path) in [
            ("^/x", "x", "/x"),
            ("^/a", "/..", "/a/b"),
            ("^/a(.)", "/.$1", "/a./b"),
            ("^/(.*)$", "$1", "/a"),
            ("%", "/%2e", "/%/x"),
        ] {
            assert_eq!(rewritten(pattern, replacement, path, ""), None, "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_that_would_backtrack_takes_linear_time() {
        // Exponential for an engine that backtracks: the test would not end.
        let path = format!("/{}!", "a".repeat(20_000));
        assert_eq!(rewritten("^/(a+)+$", "/x", &path, ""), Some(path.clone()));
        assert_eq!(rewritten("^/(a|aa)+$", "/x", &path, ""), Some(path));
    }

    #[test]
    fn a_replacement_does_not_grow_without_bound() {
        let path = format!("/{}", "a".repeat(30_000));
        assert_eq!(rewritten("^(.*)$", "$1$1$1$1", &path, ""), None);
    }

    #[test]
    fn a_mistake_is_an_error() {
        assert!(matches!(Rewrite::pattern("(", "/"), Err(InvalidRewrite::Pattern(_))));
        assert!(matches!(Rewrite::pattern("(a)\\1", "/"), Err(InvalidRewrite::Pattern(_))));
        assert!(matches!(Rewrite::pattern("(?:(?:a{100}){100}){100}", "/"), Err(InvalidRewrite::Pattern(_))));
        for (replacement, group) in [("/$2", "2"), ("/${name}", "name"), ("/$", ""), ("/$1a", "1a")] {
            match Rewrite::pattern("(a)", replacement) {
                Err(InvalidRewrite::Group(name)) => assert_eq!(&*name, group),
                other => panic!("{other:?}"),
            }
        }
        for replacement in ["/a b", "/a\r\nX: 1", "/#a", "/é"] {
            assert!(matches!(Rewrite::pattern("a", replacement), Err(InvalidRewrite::Replacement)), "{replacement}");
        }
        for prefix in ["", "v2", "/v2/", "/", "/a?b", "/a b", "/../a"] {
            assert!(matches!(Rewrite::add_prefix(prefix), Err(InvalidRewrite::Prefix)), "{prefix}");
        }
    }
}
