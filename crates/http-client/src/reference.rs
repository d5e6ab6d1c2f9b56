//! References of URIs (RFC 3986 §5): the target of a redirect against the URI of its request.

use http::Uri;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use super::error::RefusedRedirect;
use super::uri::origin_form;

/// The URI that a reference means within a response to `base`. Its fragment is dropped, since a request has none; so are
/// a name and a password, which a server has no right to choose.
pub(super) fn resolve(base: &Uri, reference: &[u8]) -> Result<Uri, RefusedRedirect> {
    // Servers send bytes that no URI has, which browsers encode.
    let reference = percent_encode(reference.trim_ascii(), NOT_IN_URIS).to_string();
    let reference = reference.split('#').next().unwrap_or_default();
    let (scheme, rest) = split_scheme(reference);
    if let Some(scheme) = scheme
        && !scheme.eq_ignore_ascii_case("http")
        && !scheme.eq_ignore_ascii_case("https")
    {
        return Err(RefusedRedirect::Scheme);
    }
    let scheme = scheme.or(base.scheme_str()).unwrap_or("http").to_ascii_lowercase();
    let (authority, target) = match rest.strip_prefix("//") {
        Some(rest) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let (authority, target) = rest.split_at(end);
            (authority.rsplit('@').next().unwrap_or_default(), with_dots_removed(target))
        }
        // A scheme without an authority, as `http:a`, is no HTTP reference.
        None if split_scheme(reference).0.is_some() => return Err(RefusedRedirect::Location),
        None => {
            let authority = base.authority().map_or("", |authority| authority.as_str());
            (authority.rsplit('@').next().unwrap_or_default(), merged(base, rest))
        }
    };
    let target = if target.starts_with('/') { target } else { format!("/{target}") };
    format!("{scheme}://{authority}{target}").parse().map_err(|_| RefusedRedirect::Location)
}

/// The scheme of a reference, if it has one, and the rest behind its colon.
fn split_scheme(reference: &str) -> (Option<&str>, &str) {
    let Some(end) = reference.find([':', '/', '?']) else { return (None, reference) };
    let (scheme, rest) = reference.split_at(end);
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    match rest.strip_prefix(':') {
        Some(rest) if is_scheme => (Some(scheme), rest),
        _ => (None, reference),
    }
}

/// A relative path, or a query alone, against the path of the base (RFC 3986 §5.2.3).
fn merged(base: &Uri, reference: &str) -> String {
    let base = origin_form(base);
    let base_path = base.split('?').next().unwrap_or_default();
    match reference.as_bytes().first() {
        None => base,
        Some(b'?') => format!("{base_path}{reference}"),
        Some(b'/') => with_dots_removed(reference),
        Some(_) => {
            let directory = base_path.rfind('/').map_or("/", |end| &base_path[..=end]);
            with_dots_removed(&format!("{directory}{reference}"))
        }
    }
}

/// Removes `.` and `..` from a path, which a query may follow (RFC 3986 §5.2.4).
fn with_dots_removed(target: &str) -> String {
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    segments.pop();
                }
                if is_last {
                    segments.push("");
                }
            }
            part => segments.push(part),
        }
    }
    format!("/{}{query}", segments.join("/"))
}

/// Bytes that are in no URI (RFC 3986 §2).
const NOT_IN_URIS: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(reference: &str) -> Result<String, RefusedRedirect> {
        let base = "http://a/b/c/d;p?q".parse().expect("a URI");
        resolve(&base, reference.as_bytes()).map(|uri| uri.to_string())
    }

    /// The examples of RFC 3986 §5.4, as far as they concern HTTP.
    #[test]
    fn references_are_resolved_as_the_standard_has_it() {
        for (reference, uri) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("g#s", "http://a/b/c/g"),
            ("g?y#s", "http://a/b/c/g?y"),
            (";x", "http://a/b/c/;x"),
            ("g;x", "http://a/b/c/g;x"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../", "http://a/"),
            ("../../g", "http://a/g"),
            ("../../../g", "http://a/g"),
            ("../../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            (".g", "http://a/b/c/.g"),
            ("g..", "http://a/b/c/g.."),
            ("..g", "http://a/b/c/..g"),
            ("./../g", "http://a/b/g"),
            ("./g/.", "http://a/b/c/g/"),
            ("g/./h", "http://a/b/c/g/h"),
            ("g/../h", "http://a/b/c/h"),
            ("g;x=1/./y", "http://a/b/c/g;x=1/y"),
            ("g;x=1/../y", "http://a/b/c/y"),
            ("g?y/./x", "http://a/b/c/g?y/./x"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            ("HTTPS://Sea.Example:81/x/../y", "https://Sea.Example:81/y"),
            ("http://sea.example?now", "http://sea.example/?now"),
            ("//user:word@sea.example/", "http://sea.example/"),
        ] {
            assert_eq!(resolved(reference).as_deref(), Ok(uri), "{reference}");
        }
    }

    #[test]
    fn bytes_that_no_uri_has_are_encoded() {
        assert_eq!(resolved("/süd west\"").as_deref(), Ok("http://a/s%C3%BCd%20west%22"));
        assert_eq!(resolved(" /g\t").as_deref(), Ok("http://a/g"));
    }

    #[test]
    fn other_schemes_and_targets_that_are_no_uris_are_refused() {
        for reference in ["file:///etc/passwd", "ftp://a/b", "javascript:alert(1)", "data:text/plain,a", "g:h"] {
            assert_eq!(resolved(reference), Err(RefusedRedirect::Scheme), "{reference}");
        }
        for reference in ["http:g", "http://", "http://[::1", "http://a b/", "http:///b"] {
            assert_eq!(resolved(reference), Err(RefusedRedirect::Location), "{reference}");
        }
    }
}
