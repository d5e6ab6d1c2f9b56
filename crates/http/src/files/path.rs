//! `FilePath`: from the path of a request to the name of a file below a root.
//!
//! The path is percent-decoded once, segment by segment. The rest is plain names: no segment is empty, is `.` or `..`,
//! or has a slash, a backslash or a control character. So the name cannot leave the root, whatever opens it, and a
//! redirection to it leads to no other host.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The name of a file or of a folder below a root.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FilePath<'a> {
    /// Segments with slashes between them; empty for the root.
    pub(super) name: Cow<'a, str>,
    /// The path ends with a slash, or is empty: it can only name a folder.
    pub(super) is_folder: bool,
}

impl<'a> FilePath<'a> {
    /// The decoded path, without the slash at its beginning; `None` if it names no file that may be served.
    pub(super) fn decode(whole: &'a str, has_dot_files: bool) -> Option<Self> {
        let (path, is_folder) = match whole.strip_suffix('/') {
            Some(path) => (path, true),
            None => (whole, whole.is_empty()),
        };
        if path.is_empty() {
            // A slash alone is one too many.
            return whole.is_empty().then_some(Self { name: Cow::Borrowed(""), is_folder });
        }
        let name = if path.contains('%') {
            let mut name = String::with_capacity(path.len());
            for (index, segment) in path.split('/').enumerate() {
                if index > 0 {
                    name.push('/');
                }
                let segment = decode(segment)?;
                if !is_served(&segment, has_dot_files) {
                    return None;
                }
                name.push_str(&segment);
            }
            Cow::Owned(name)
        } else {
            if !path.split('/').all(|segment| is_served(segment, has_dot_files)) {
                return None;
            }
            Cow::Borrowed(path)
        };
        (name.len() <= NAME_BYTES_MAX).then_some(Self { name, is_folder })
    }
}

/// The decoded segment, if it is UTF-8. A `%` without two digits after it stands for itself.
fn decode(segment: &str) -> Option<Cow<'_, str>> {
    // Overlong sequences are not UTF-8.
    percent_decode_str(segment).decode_utf8().ok()
}

/// Whether a name may be part of a path: the names that a listing shows are the same.
pub(super) fn is_served(segment: &str, has_dot_files: bool) -> bool {
    if matches!(segment, "" | "." | "..") || segment.len() > SEGMENT_BYTES_MAX {
        return false;
    }
    if segment.starts_with('.') && !has_dot_files {
        return false;
    }
    !segment.bytes().any(|byte| matches!(byte, b'/' | b'\\') || byte.is_ascii_control())
}

/// The longest name of a file that Linux knows.
const SEGMENT_BYTES_MAX: usize = 255;

/// The longest name below a root, with room for `index.html` within the limit of Linux.
const NAME_BYTES_MAX: usize = 3584;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(path: &str) -> Option<String> {
        FilePath::decode(path, false).map(|path| path.name.into_owned())
    }

    #[test]
    fn names_are_decoded_once() {
        for (path, expected) in [
            ("", ""),
            ("a.css", "a.css"),
            ("a/b/c", "a/b/c"),
            ("a/b/", "a/b"),
            ("%61%2ehtml", "a.html"),
            ("a%20b", "a b"),
            ("a%2525", "a%25"),
            ("%C3%A9", "é"),
            ("é", "é"),
            ("a+b", "a+b"),
            ("...a", ""),
            ("a..b", "a..b"),
            ("a...", "a..."),
            ("%e2%80%ae", "\u{202e}"),
            ("%252e%252e", "%2e%2e"),
            ("%", "%"),
            ("100%", "100%"),
            ("a%2", "a%2"),
            ("%zz%41", "%zzA"),
            ("%u002e", "%u002e"),
            ("%%2e%", "%.%"),
            ("a|b{c}^`\"<>", "a|b{c}^`\"<>"),
        ] {
            let expected = (path != "...a").then(|| expected.to_owned());
            assert_eq!(name(path), expected, "{path}");
        }
        assert_eq!(FilePath::decode("", false).map(|path| path.is_folder), Some(true));
        assert_eq!(FilePath::decode("a/", false).map(|path| path.is_folder), Some(true));
        assert_eq!(FilePath::decode("a", false).map(|path| path.is_folder), Some(false));
    }

    #[test]
    fn no_encoding_leaves_the_root() {
        for path in [
            "..",
            "../a",
            "a/..",
            "a/../b",
            "./a",
            "a/.",
            "a/./b",
            "/",
            "//",
            "//a",
            "a//b",
            "/a",
            "a//",
            "%2e%2e/a",
            "%2E%2E",
            ".%2e/a",
            "%2e./a",
            "%2e",
            "..%2f..%2fa",
            "%2fa",
            "a%2fb",
            "a%2Fb",
            "%2f",
            "..%5c",
            "a\\b",
            "a%5Cb",
            "\\",
            "a%00",
            "%00",
            "a%00.html",
            "a%0a",
            "a%0d%0aX: y",
            "a%7f",
            "%c0%ae%c0%ae/a",
            "%c0%af",
            "%e0%80%af",
            "%f0%80%80%af",
            "%c1%9c",
            "%ff",
            "%c3",
            "%ed%a0%80",
            "%\\",
            "..;/a/",
            "..%00/",
        ] {
            for has_dot_files in [false, true] {
                if has_dot_files && path.starts_with("..;") {
                    // It is a plain name.
                    continue;
                }
                assert_eq!(FilePath::decode(path, has_dot_files), None, "{path}");
            }
        }
    }

    #[test]
    fn dot_files_are_served_by_choice() {
        for path in [".git/config", ".htpasswd", "a/.env", "%2egit", "%2Eenv", "..a"] {
            assert_eq!(name(path), None, "{path}");
            assert!(FilePath::decode(path, true).is_some(), "{path}");
        }
    }

    #[test]
    fn long_names_are_refused() {
        assert!(name(&"a".repeat(255)).is_some());
        assert!(name(&"a".repeat(256)).is_none());
        assert!(name(&"%61".repeat(256)).is_none());
        assert!(name(&"a/".repeat(1792)).is_some());
        assert!(name(&"a/".repeat(4000)).is_none());
    }
}
