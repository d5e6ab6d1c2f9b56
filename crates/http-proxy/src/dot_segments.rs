//! `has_dot_segment`: paths in which two servers read two paths.

/// Whether a path has a segment `.` or `..`, plain or encoded, also between encoded slashes: two servers would read two
/// paths in it.
pub(super) fn has_dot_segment(path: &[u8]) -> bool {
    if !path.iter().any(|byte| matches!(byte, b'.' | b'%')) {
        return false;
    }
    // How many dots the segment has so far; `None` if it has other bytes.
    let mut dots = Some(0);
    let mut rest = path;
    // Every round takes a byte.
    while let [first, after @ ..] = rest {
        rest = after;
        let byte = match (first, after) {
            (b'%', [b'2', b'e' | b'E', after @ ..]) => {
                rest = after;
                b'.'
            }
            (b'%', [b'2', b'f' | b'F', after @ ..] | [b'5', b'c' | b'C', after @ ..]) => {
                rest = after;
                b'/'
            }
            (b'\\', _) => b'/',
            (byte, _) => *byte,
        };
        match byte {
            // A parameter of the segment ends it as well: some servers drop it.
            b'/' | b';' if matches!(dots, Some(1 | 2)) => return true,
            b'/' => dots = Some(0),
            b'.' => dots = dots.map(|dots| dots + 1),
            _ => dots = None,
        }
    }
    matches!(dots, Some(1 | 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_dot_segment_has_two_meanings() {
        for path in [
            "/..",
            "/a/../b",
            "/a/.",
            "/a/%2e%2E/b",
            "/.%2e",
            "/./",
            "/a/..;x=1/b",
            "/a\\..\\b",
            "/a/..%2fb",
            "/a%2F..",
            "/a%5c.%5Cb",
        ] {
            assert!(has_dot_segment(path.as_bytes()), "{path}");
        }
        for path in
            ["/", "/a.b", "/...", "/a..", "/..a", "/.well-known", "/%2f", "/a%2fb.c", "/%2", "/a/;x", "/a;.", "*"]
        {
            assert!(!has_dot_segment(path.as_bytes()), "{path}");
        }
    }
}
