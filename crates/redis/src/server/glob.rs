//! Patterns of channels and keys, as Redis has them: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a byte for itself.

/// Whether `text` matches `pattern`. It takes time in proportion to the product of both lengths, whatever the pattern.
///
/// ```
/// use tidegate::redis::matches;
///
/// assert!(matches(b"tide.*.[a-c]?", b"tide.brest.b1"));
/// assert!(!matches(b"tide.?", b"tide."));
/// ```
#[must_use]
pub fn matches(mut pattern: &[u8], mut text: &[u8]) -> bool {
    // Where to go on if what follows the last star does not match: that star takes one byte more.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            pattern = rest;
            retry = Some((pattern, text));
            continue;
        }
        if text.is_empty() && pattern.is_empty() {
            return true;
        }
        if let Some((&byte, after)) = text.split_first()
            && let Some(rest) = one(pattern, byte)
        {
            (pattern, text) = (rest, after);
            continue;
        }
        let Some((star, [_, after @ ..])) = retry else { return false };
        (pattern, text) = (star, after);
        retry = Some((star, after));
    }
}

/// The pattern behind its first element, if that matches the byte.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => class(rest, byte),
        [b'\\', literal, rest @ ..] => (*literal == byte).then_some(rest),
        [literal, rest @ ..] => (*literal == byte).then_some(rest),
    }
}

/// The pattern behind a class, if the byte is of it. A class without an end ends with the pattern.
fn class(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (is_negated, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut is_found = false;
    loop {
        rest = match rest {
            [b']', rest @ ..] => return (is_found != is_negated).then_some(rest),
            [] => return (is_found != is_negated).then_some(rest),
            [b'\\', literal, rest @ ..] => {
                is_found |= *literal == byte;
                rest
            }
            [from, b'-', to, rest @ ..] => {
                is_found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                is_found |= *literal == byte;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_are_those_of_redis() {
        for (pattern, text, wanted) in [
            ("", "", true),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("*b*", "abc", true),
            ("a?c", "ac", false),
            ("h[ae]llo", "hello", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            (r"[\]]", "]", true),
            ("[a", "a", true),
            ("abc", "abcd", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        assert!(!matches(&b"a*".repeat(200), &[b"a".repeat(2_000), b"b".to_vec()].concat()[..1_000].repeat(0)));
        assert!(!matches(&[b"a*".repeat(200), b"b".to_vec()].concat(), &b"a".repeat(10_000)));
    }
}
