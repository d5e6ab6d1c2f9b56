//! The key of a stored response: the URL in one form, with a line end behind its host, which no host has: a host that looks like
//! a path names no other URL.

use tidegate_http::Request;

/// Writes the key of a request's target: scheme, host in lower case without the default port, path and query as they came.
/// Returns whether it is one: a request without a host, or with a target that is no path, has none.
///
/// The path is not normalized: an upstream that reads two spellings as one gets both, and one that distinguishes them is not
/// confused.
pub(crate) fn write(request: &Request, key: &mut Vec<u8>) -> bool {
    let (host, target) = (request.host(), path_and_query(request.target_bytes()));
    match target {
        Some(target) if !host.is_empty() => {
            key.clear();
            push_origin(key, request.is_secure(), host.as_bytes());
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
    &key[start..origin_length(key) - 1]
}

/// The length of scheme, host and line end.
fn origin_length(key: &[u8]) -> usize {
    key.iter().position(|&byte| byte == HOST_END).map_or(key.len(), |at| at + 1)
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
