//! `NormalPath`: a path as routes match it, in place of the path as it was sent.
//!
//! Servers decode paths, so `/login` and `/%6cogin` lead to one resource (RFC 3986 §6.2.2.2), and a rule for one has to
//! hold for the other. Visible characters are decoded, other bytes are escapes in upper case (§6.2.2.1). A `%` that
//! begins no escape stays. A route's parameters, and the path that a proxy passes on, are parts of the path as it was
//! sent: each byte here has its place there.
//!
//! A slash is another matter: many servers merge `//`, decode `%2F`, take `\` for a slash and drop `;` parameters, others
//! do none of that. [`NormalPath::folded`] does all of it.

/// A path as routes match it. Its text is visible ASCII.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NormalPath {
    text: Vec<u8>,
    /// Where each byte of the text begins in the path, and the end of the path.
    places: Vec<u16>,
}

impl NormalPath {
    /// The path with its segments as they were sent.
    pub(crate) fn new(path: &[u8]) -> Self {
        Self::build(path, false)
    }

    /// The path as a server reads it that merges and decodes slashes, and drops the parameters of segments.
    pub(crate) fn folded(path: &[u8]) -> Self {
        Self::build(path, true)
    }

    fn build(path: &[u8], folds: bool) -> Self {
        let (text, places) = (Vec::with_capacity(path.len()), Vec::with_capacity(path.len() + 1));
        let mut normal = Self { text, places };
        let mut is_in_parameters = false;
        let mut at = 0;
        while at < path.len() {
            let (byte, length) = octet(path, at);
            let is_slash = byte == b'/' && length == 1 || folds && matches!(byte, b'/' | b'\\');
            is_in_parameters = folds && !is_slash && (is_in_parameters || byte == b';' && length == 1);
            if is_slash {
                if !(folds && normal.text.last() == Some(&b'/')) {
                    normal.push(b"/", at);
                }
            } else if !is_in_parameters {
                let is_lone_percent = byte == b'%' && length == 1;
                let is_plain = byte.is_ascii_graphic() && !is_reserved(byte);
                if is_plain || is_lone_percent {
                    normal.push(&[byte], at);
                } else {
                    normal.push(&escape(byte), at);
                }
            }
            at += length;
        }
        // A head is shorter than 64 KiB.
        normal.places.push(path.len() as u16);
        normal
    }

    fn push(&mut self, bytes: &[u8], at: usize) {
        self.text.extend_from_slice(bytes);
        self.places.extend(bytes.iter().map(|_| at as u16));
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// Where a byte of the text, or its end, is in the path.
    pub(crate) fn place(&self, at: usize) -> u16 {
        self.places.get(at).or(self.places.last()).copied().unwrap_or_default()
    }
}

/// A path as a [`Router`](crate::Router) matches it: escapes of visible characters are decoded, but for `%2F`, `%5C`,
/// `%25`, `%3F` and `%23`, and all other bytes are escapes in upper case (RFC 3986 §6.2.2).
///
/// ```
/// assert_eq!(tidegate::http::normal_path("/%6cogin/%c3%a9"), "/login/%C3%A9");
/// assert_eq!(tidegate::http::normal_path("/a%2fb"), "/a%2Fb");
/// ```
#[must_use]
pub fn normal_path(path: &str) -> String {
    NormalPath::new(path.as_bytes()).text().to_owned()
}

/// The same for a path that need not be text.
#[must_use]
pub fn normal_path_of(path: &[u8]) -> String {
    NormalPath::new(path).text().to_owned()
}

/// The part of a path behind a prefix of whole segments, without the slash between them; `None` if the path, as a route
/// matches it, does not begin with the prefix.
#[must_use]
pub fn strip_prefix<'a>(path: &'a [u8], prefix: &str) -> Option<&'a [u8]> {
    let (path_text, prefix) = (NormalPath::folded(path), NormalPath::folded(prefix.as_bytes()));
    let rest = path_text.text().strip_prefix(prefix.text().trim_end_matches('/'))?;
    let end = path_text.text.len();
    match rest.as_bytes().first() {
        None => Some(&path[path.len()..]),
        Some(b'/') => Some(&path[usize::from(path_text.place(end - rest.len() + 1))..]),
        Some(_) => None,
    }
}

/// The pattern of a route in the form that paths have here. Parameters stay as they are.
pub(crate) fn normal_pattern(pattern: &str) -> String {
    let bytes = pattern.as_bytes();
    let mut normal = String::with_capacity(pattern.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let literal_braces = rest.starts_with(b"{{") || rest.starts_with(b"}}");
        if literal_braces {
            normal.push_str(&pattern[at..at + 2]);
            at += 2;
            continue;
        }
        if rest[0] == b'{'
            && let Some(length) = rest.iter().position(|&byte| byte == b'}')
        {
            normal.push_str(&pattern[at..=at + length]);
            at += length + 1;
            continue;
        }
        let (byte, length) = octet(bytes, at);
        match byte {
            b'{' | b'}' if length > 1 => (0..2).for_each(|_| normal.push(byte.into())),
            b'/' | b'%' | b'?' | b'#' if length == 1 => normal.push(byte.into()),
            _ if byte.is_ascii_graphic() && !is_reserved(byte) => normal.push(byte.into()),
            _ => normal.extend(escape(byte).map(char::from)),
        }
        at += length;
    }
    normal
}

/// Whether a path may not be its own normal form: escapes, bytes that are not ASCII, backslashes.
pub(crate) fn is_encoded(path: &[u8]) -> bool {
    path.iter().any(|byte| matches!(byte, b'%' | b'\\') || !byte.is_ascii())
}

/// Whether a path without escapes and backslashes has another folded form: it has `//` or `;`.
pub(crate) fn has_folds(path: &[u8]) -> bool {
    // No exit before the end, so that the compiler compares many bytes at a time.
    let pairs = path.iter().zip(path.get(1..).unwrap_or_default());
    let has_double = pairs.fold(false, |found, (one, other)| found | ((*one == b'/') & (*other == b'/')));
    has_double || path.contains(&b';')
}

/// Whether a path has an empty segment, or a slash in an encoded form or as a backslash.
pub(crate) fn has_ambiguous_slash(path: &[u8]) -> bool {
    (0..path.len()).any(|at| match octet(path, at) {
        (b'/', 1) => path.get(at + 1) == Some(&b'/'),
        (b'/' | b'\\', _) => true,
        _ => false,
    })
}

/// The byte that begins at `at`, decoded, and how many bytes of the path it takes.
fn octet(path: &[u8], at: usize) -> (u8, usize) {
    let digit = |at: usize| Some(char::from(*path.get(at)?).to_digit(16)? as u8);
    match path[at] {
        b'%' => match (digit(at + 1), digit(at + 2)) {
            (Some(high), Some(low)) => (high << 4 | low, 3),
            _ => (b'%', 1),
        },
        byte => (byte, 1),
    }
}

/// Whether a decoded byte would change the meaning of its surroundings, so that it stays an escape.
const fn is_reserved(byte: u8) -> bool {
    matches!(byte, b'/' | b'%' | b'\\' | b'?' | b'#')
}

fn escape(byte: u8) -> [u8; 3] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_characters_are_decoded_and_the_rest_is_escaped_in_upper_case() {
        for (path, normal, folded) in [
            ("/login", "/login", "/login"),
            ("/%6cogin", "/login", "/login"),
            ("/a%3ab%7c", "/a:b|", "/a:b|"),
            ("/a%2fb", "/a%2Fb", "/a/b"),
            ("//a///b/", "//a///b/", "/a/b/"),
            ("/%2F/a", "/%2F/a", "/a"),
            ("/a\\b%5cc", "/a%5Cb%5Cc", "/a/b/c"),
            ("/a;x=1/b;y", "/a;x=1/b;y", "/a/b"),
            ("/;x/a", "/;x/a", "/a"),
            ("/a%3bx", "/a;x", "/a;x"),
            ("/é", "/%C3%A9", "/%C3%A9"),
            ("/%c3%a9", "/%C3%A9", "/%C3%A9"),
            ("/100%", "/100%", "/100%"),
            ("/%zz%2", "/%zz%2", "/%zz%2"),
            ("/%25%36%63", "/%256c", "/%256c"),
            ("/a%20b%3F%23", "/a%20b%3F%23", "/a%20b%3F%23"),
            ("*", "*", "*"),
            ("", "", ""),
        ] {
            assert_eq!(NormalPath::new(path.as_bytes()).text(), normal, "{path}");
            assert_eq!(NormalPath::folded(path.as_bytes()).text(), folded, "{path}");
            assert_eq!(NormalPath::new(normal.as_bytes()).text(), normal, "the normal form of {normal} is itself");
        }
        assert_eq!(NormalPath::new(b"/\xff").text(), "/%FF");
    }

    #[test]
    fn each_byte_has_its_place() {
        let path = NormalPath::new(b"/%61/\xe9%2f");
        assert_eq!(path.text(), "/a/%E9%2F");
        let places: Vec<u16> = (0..=path.text().len()).map(|at| path.place(at)).collect();
        assert_eq!(places, [0, 1, 4, 5, 5, 5, 6, 6, 6, 9]);
    }

    #[test]
    fn a_prefix_is_removed_however_it_was_sent() {
        for (path, prefix, rest) in [
            ("/api/a", "/api", Some("a")),
            ("/%61pi/%61", "/api", Some("%61")),
            ("//api//a//b", "/api", Some("a//b")),
            ("/api%2fa", "/api", Some("a")),
            ("/api", "/api", Some("")),
            ("/api/", "/api/", Some("")),
            ("/api;x/a", "/api", Some("a")),
            ("/apia", "/api", None),
            ("/other", "/api", None),
            ("/caf%c3%a9/a", "/café", Some("a")),
        ] {
            assert_eq!(strip_prefix(path.as_bytes(), prefix), rest.map(str::as_bytes), "{path}");
        }
    }

    #[test]
    fn patterns_are_in_the_same_form_as_paths() {
        for (pattern, normal) in [
            ("/a/{name}/{*rest}", "/a/{name}/{*rest}"),
            ("/café/{é}", "/caf%C3%A9/{é}"),
            ("/%61%2f%7b{x}", "/a%2F{{{x}"),
            ("/a b", "/a%20b"),
            ("/{{a}}", "/{{a}}"),
            ("/100%", "/100%"),
        ] {
            assert_eq!(normal_pattern(pattern), normal, "{pattern}");
        }
    }

    #[test]
    fn forms_that_differ_are_recognized() {
        for path in ["//", "/a//b", "/a;b"] {
            assert!(has_folds(path.as_bytes()), "{path}");
        }
        for path in ["/", "", "/a/b/", "*"] {
            assert!(!has_folds(path.as_bytes()), "{path}");
            assert!(!has_ambiguous_slash(path.as_bytes()), "{path}");
        }
        for path in ["//", "/a%2Fb", "/a%2fb", "/a\\b", "/a%5cb"] {
            assert!(has_ambiguous_slash(path.as_bytes()), "{path}");
        }
        assert!(!has_ambiguous_slash(b"/a%2"));
    }
}
