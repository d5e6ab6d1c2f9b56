//! The key of a stored response: the URL in one form, with a line end behind its host, which no host has: a host that looks like
//! a path names no other URL. Behind a trusted proxy the scheme is that of the proxy's client, and between the host and the path
//! are lines with other fields of the proxy, if they say more than the URL.

use std::borrow::Cow;

use tidegate_http::Request;

/// Writes the key of a request's target: scheme, host in lower case without the default port, path and query as they came.
/// Returns whether it is one: a request without a host, or with a target that is no path, has none.
///
/// The path is not normalized: an upstream that reads two spellings as one gets both, and one that distinguishes them is not
/// confused.
///
/// Of a trusted request, the function behind the cache passes on the scheme and the host that fields name.
pub(crate) fn write(request: &Request, is_trusted: bool, key: &mut Vec<u8>) -> bool {
    let (host, target) = (request.host(), path_and_query(request.target_bytes()));
    match target {
        Some(target) if !host.is_empty() => {
            key.clear();
            if is_trusted {
                push_forwarded_origin(key, request.is_secure(), host.as_bytes(), request.head().headers());
            } else {
                push_origin(key, request.is_secure(), host.as_bytes());
            }
            key.extend_from_slice(target);
            true
        }
        _ => false,
    }
}

/// The key of a URL, such as `https://example.org/a?b`.
pub(crate) fn of_url(url: &str) -> Option<Vec<u8>> {
    let (scheme, rest) = url.split_once("://")?;
    let is_secure = match scheme {
        _ if scheme.eq_ignore_ascii_case("https") => true,
        _ if scheme.eq_ignore_ascii_case("http") => false,
        _ => return None,
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let host_end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, target) = rest.split_at(host_end);
    if host.is_empty() || host.contains(['#', '@', ' ']) {
        return None;
    }
    let mut key = Vec::with_capacity(url.len() + 1);
    push_origin(&mut key, is_secure, host.as_bytes());
    if !target.starts_with('/') {
        key.push(b'/');
    }
    key.extend_from_slice(target.as_bytes());
    Some(key)
}

/// The key of a reference in `Location` or `Content-Location`, if it is of the same origin as `key` (RFC 9111 §4.4).
pub(crate) fn of_reference(key: &[u8], reference: &[u8]) -> Option<Vec<u8>> {
    let reference = std::str::from_utf8(reference).ok()?;
    let origin = &key[..origin_length(key)];
    if reference.contains("://") {
        let other = of_url(reference).filter(|other| &other[..origin_length(other)] == origin)?;
        return Some([origin, &without_dot_segments(&other[origin.len()..])].concat());
    }
    if reference.starts_with("//") {
        return None;
    }
    let reference = reference.split('#').next().unwrap_or_default();
    let base = &key[origin.len()..];
    let base_path = base.split(|&byte| byte == b'?').next().unwrap_or_default();
    let target = match reference.as_bytes() {
        [] => base.to_vec(),
        reference @ [b'?', ..] => [base_path, reference].concat(),
        reference @ [b'/', ..] => without_dot_segments(reference),
        reference => {
            let folder = base_path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
            without_dot_segments(&[&base_path[..folder], reference].concat())
        }
    };
    Some([origin, &target].concat())
}

/// A path that begins with `/`, and its query, without dot segments (RFC 3986 §5.2.4).
fn without_dot_segments(target: &[u8]) -> Vec<u8> {
    let (path, query) = target.split_at(target.iter().position(|&byte| byte == b'?').unwrap_or(target.len()));
    let mut resolved: Vec<u8> = Vec::with_capacity(target.len());
    let mut segments = path[1..].split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment.len() == 2 {
                    resolved.truncate(resolved.iter().rposition(|&byte| byte == b'/').unwrap_or(0));
                }
                if is_last {
                    resolved.push(b'/');
                }
            }
            _ => {
                resolved.push(b'/');
                resolved.extend_from_slice(segment);
            }
        }
    }
    resolved.extend_from_slice(query);
    resolved
}

/// The host of a key, with its port unless that is the default one.
pub(crate) fn host(key: &[u8]) -> &[u8] {
    let start = scheme_length(key);
    let end = key.iter().position(|&byte| byte == HOST_END).unwrap_or(key.len());
    &key[start..end.max(start)]
}

/// The length of scheme, host, further fields and line ends. A path has no line end.
fn origin_length(key: &[u8]) -> usize {
    key.iter().rposition(|&byte| byte == HOST_END).map_or(key.len(), |at| at + 1)
}

/// The key of the URL alone, without fields of a proxy in front.
pub(crate) fn url_of(key: &[u8]) -> Cow<'_, [u8]> {
    let host_end = key.iter().position(|&byte| byte == HOST_END).map_or(key.len(), |at| at + 1);
    match origin_length(key) {
        end if end == host_end => key.into(),
        end => [&key[..host_end], &key[end..]].concat().into(),
    }
}

/// Whether a key is another one of a URL's key, with fields of a proxy in front.
pub(crate) fn is_of_url(key: &[u8], url: &[u8]) -> bool {
    key.len() > url.len() && *url_of(key) == *url
}

/// Adds the scheme and the host of a request that a trusted proxy in front has passed on, and its fields by which an upstream may
/// choose a response: those about the URL, and not those about the client's address.
pub(crate) fn push_forwarded_origin<'a>(
    key: &mut Vec<u8>,
    is_secure: bool,
    host: &[u8],
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
) {
    let all = fields.filter(|(name, _)| is_about_url(name));
    let schemes = || all.clone().filter(|(name, _)| name.eq_ignore_ascii_case(PROTO)).map(|(_, value)| value);
    let scheme = schemes().next().filter(|_| schemes().count() == 1);
    let named = scheme.and_then(|scheme| match scheme {
        _ if scheme.eq_ignore_ascii_case(b"https") => Some(true),
        _ if scheme.eq_ignore_ascii_case(b"http") => Some(false),
        _ => None,
    });
    let is_secure_there = named.unwrap_or(is_secure);
    push_origin(key, is_secure_there, host);
    let port: &[u8] = if is_secure_there { b"443" } else { b"80" };
    for (name, value) in all {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        let is_known = (is(PROTO) && named.is_some())
            || (is(b"x-forwarded-host") && value.eq_ignore_ascii_case(host))
            || (is(b"x-forwarded-port") && value == port);
        if !is_known {
            let start = key.len();
            key.extend_from_slice(name);
            key[start..].make_ascii_lowercase();
            key.push(b':');
            if is(b"forwarded") {
                push_url_of_forwarded(key, value);
            } else {
                key.extend_from_slice(value);
            }
            key.push(HOST_END);
        }
    }
}

/// Adds the parts of `Forwarded` (RFC 7239) that name a scheme or a host.
fn push_url_of_forwarded(key: &mut Vec<u8>, value: &[u8]) {
    for pair in value.split(|byte| matches!(byte, b';' | b',')).map(<[u8]>::trim_ascii) {
        let starts_with = |name: &[u8]| pair.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        if starts_with(b"proto=") || starts_with(b"host=") {
            key.extend_from_slice(pair);
            key.push(b';');
        }
    }
}

/// Whether a field of a trusted proxy may be about the URL of its client's request.
fn is_about_url(name: &[u8]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    let is_of_proxies = name.get(..12).is_some_and(|start| start.eq_ignore_ascii_case(b"x-forwarded-"));
    let is_about_client = || is(b"x-forwarded-for") || is(b"x-forwarded-by") || is(b"x-forwarded-server");
    is(b"forwarded") || (is_of_proxies && !is_about_client())
}

fn scheme_length(key: &[u8]) -> usize {
    if key.starts_with(HTTPS) { HTTPS.len() } else { HTTP.len().min(key.len()) }
}

/// Adds the scheme and the host.
pub(crate) fn push_origin(key: &mut Vec<u8>, is_secure: bool, host: &[u8]) {
    let (scheme, port) = if is_secure { (HTTPS, &b":443"[..]) } else { (HTTP, &b":80"[..]) };
    let host = host.strip_suffix(port).unwrap_or(host);
    key.extend_from_slice(scheme);
    let start = key.len();
    key.extend_from_slice(host);
    key[start..].make_ascii_lowercase();
    key.push(HOST_END);
}

/// The path and query of a target, which may have an authority before it.
fn path_and_query(target: &[u8]) -> Option<&[u8]> {
    if target.first() == Some(&b'/') {
        return Some(target);
    }
    let authority = target.windows(3).position(|three| three == b"://")? + 3;
    match target[authority..].iter().position(|&byte| matches!(byte, b'/' | b'?')) {
        Some(at) if target[authority + at] == b'/' => Some(&target[authority + at..]),
        Some(_) => None,
        None => Some(b"/"),
    }
}

const HOST_END: u8 = b'\n';
const PROTO: &[u8] = b"x-forwarded-proto";
const HTTP: &[u8] = b"http://";
const HTTPS: &[u8] = b"https://";

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Option<String> {
        of_url(url).map(|key| String::from_utf8(key).unwrap().replace('\n', ""))
    }

    #[test]
    fn a_url_has_one_form() {
        for (url, expected) in [
            ("http://Sea.Example/A?b", Some("http://sea.example/A?b")),
            ("HTTP://sea:80", Some("http://sea/")),
            ("https://sea:443/", Some("https://sea/")),
            ("https://sea:80/", Some("https://sea:80/")),
            ("http://sea?b#c", Some("http://sea/?b")),
            ("ftp://sea/", None),
            ("sea/", None),
            ("http:///a", None),
        ] {
            assert_eq!(of(url).as_deref(), expected, "{url}");
        }
        assert_eq!(host(&of_url("https://sea:80/a/b").unwrap()), b"sea:80");
    }

    #[test]
    fn a_trusted_proxy_names_the_scheme_and_more() {
        for (fields, expected) in [
            (&[][..], "http://sea\n"),
            (&[("X-Forwarded-Proto", "HTTPS"), ("X-Forwarded-For", "a")], "https://sea\n"),
            (
                &[("x-forwarded-proto", "https"), ("X-Forwarded-Port", "443"), ("X-Forwarded-Host", "Sea")],
                "https://sea\n",
            ),
            (&[("X-Forwarded-Port", "443")], "http://sea\nx-forwarded-port:443\n"),
            (&[("X-Forwarded-Proto", "wss")], "http://sea\nx-forwarded-proto:wss\n"),
            (
                &[("X-Forwarded-Proto", "https"), ("X-Forwarded-Proto", "http")],
                "http://sea\nx-forwarded-proto:https\nx-forwarded-proto:http\n",
            ),
            (&[("X-Forwarded-Host", "ocean")], "http://sea\nx-forwarded-host:ocean\n"),
            (
                &[("Forwarded", "for=a;Proto=https, host=\"b\"; by=c")],
                "http://sea\nforwarded:Proto=https;host=\"b\";\n",
            ),
        ] {
            let mut key = Vec::new();
            let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            push_forwarded_origin(&mut key, false, b"sea", fields);
            assert_eq!(String::from_utf8_lossy(&key), expected);
            key.extend_from_slice(b"/a/b");
            assert_eq!(host(&key), b"sea");
            assert!(matches!(&*url_of(&key), b"http://sea\n/a/b" | b"https://sea\n/a/b"));
            let other = of_reference(&key, b"c").unwrap();
            assert_eq!(String::from_utf8_lossy(&other), format!("{expected}/a/c"));
        }
    }

    #[test]
    fn a_reference_of_another_origin_has_no_key() {
        let key = of_url("http://sea/a/b?c").unwrap();
        for (reference, expected) in [
            ("/x?y#z", Some("http://sea/x?y")),
            ("x", Some("http://sea/a/x")),
            ("../x/./y", Some("http://sea/x/y")),
            ("../../../x", Some("http://sea/x")),
            ("/x/../y/..?a/../b", Some("http://sea/?a/../b")),
            (".", Some("http://sea/a/")),
            ("/x/.", Some("http://sea/x/")),
            ("/..", Some("http://sea/")),
            ("?z", Some("http://sea/a/b?z")),
            ("", Some("http://sea/a/b?c")),
            ("#z", Some("http://sea/a/b?c")),
            ("http://sea/x/../y", Some("http://sea/y")),
            ("http://SEA:80/x", Some("http://sea/x")),
            ("http://ocean/x", None),
            ("https://sea/x", None),
            ("//ocean/x", None),
        ] {
            let found = of_reference(&key, reference.as_bytes());
            let found = found.map(|key| String::from_utf8(key).unwrap().replace('\n', ""));
            assert_eq!(found.as_deref(), expected, "{reference}");
        }
    }
}
