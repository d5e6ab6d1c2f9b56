//! Patterns of channels and keys, as Redis has them: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a byte for itself.

/// Whether `text` matches `pattern`.
///
/// The time is in proportion to both lengths for a pattern of up to 64 bytes, and to their product divided by 64 for a longer
/// one, whatever the bytes are.
///
/// ```
/// use tidegate::redis::matches;
///
/// assert!(matches(b"tide.*.[a-c]?", b"tide.brest.b1"));
/// assert!(!matches(b"tide.?", b"tide."));
/// ```
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let steps_max = STEPS_MIN + STEPS_EACH * (pattern.len() + text.len());
    matches_within(pattern, text, steps_max).unwrap_or_else(|| matches_by_segments(pattern, text))
}

/// Compares byte by byte, and goes back after a mismatch behind a star: the fastest way for most patterns. `None` after so many
/// steps.
fn matches_within(mut pattern: &[u8], mut text: &[u8], steps_max: usize) -> Option<bool> {
    // Where to go on if what follows the last star does not match: that star takes one byte more.
    let mut retry: Option<(&[u8], &[u8])> = None;
    let mut steps = 0;
    while steps < steps_max {
        steps += 1;
        if let [b'*', rest @ ..] = pattern {
            pattern = rest;
            retry = Some((pattern, text));
            continue;
        }
        if text.is_empty() && pattern.is_empty() {
            return Some(true);
        }
        if let Some((&byte, after)) = text.split_first() {
            let (is_match, rest) = first_matches(pattern, byte);
            steps += pattern.len() - rest.len();
            if is_match {
                (pattern, text) = (rest, after);
                continue;
            }
        }
        let Some((star, [_, after @ ..])) = retry else { return Some(false) };
        (pattern, text) = (star, after);
        retry = Some((star, after));
    }
    None
}

/// Looks for the segments between the stars one after the other, in a time that mismatches do not extend.
fn matches_by_segments(pattern: &[u8], mut text: &[u8]) -> bool {
    let mut segments = segments_of(pattern);
    let last = segments.pop().unwrap_or_default();
    for (number, segment) in segments.iter().enumerate() {
        let end = if number == 0 { segment.matches_start(text) } else { segment.find(text) };
        let Some(end) = end else { return false };
        text = &text[end..];
    }
    let Some(start) = text.len().checked_sub(last.elements.len()) else { return false };
    (start == 0 || !segments.is_empty()) && last.matches_start(&text[start..]).is_some()
}

/// Elements without a star between them. Each matches one byte.
#[derive(Default)]
struct PatternSegment<'a> {
    elements: Vec<&'a [u8]>,
}

fn segments_of(mut pattern: &[u8]) -> Vec<PatternSegment<'_>> {
    let mut segments = Vec::new();
    let mut segment = PatternSegment::default();
    while !pattern.is_empty() {
        if let [b'*', rest @ ..] = pattern {
            segments.push(std::mem::take(&mut segment));
            pattern = rest;
            continue;
        }
        let (_, rest) = first_matches(pattern, 0);
        segment.elements.push(&pattern[..pattern.len() - rest.len()]);
        pattern = rest;
    }
    segments.push(segment);
    segments
}

impl PatternSegment<'_> {
    /// Where the segment ends, if the text begins with it.
    fn matches_start(&self, text: &[u8]) -> Option<usize> {
        let count = self.elements.len();
        let is_match = |(element, byte): (&&[u8], &u8)| first_matches(element, *byte).0;
        (text.len() >= count && self.elements.iter().zip(text).all(is_match)).then_some(count)
    }

    /// Where the segment ends first, by the Shift-And algorithm: bit `n` of the state is set while the last `n + 1` bytes match
    /// the first elements. A byte takes one step for each 64 elements.
    fn find(&self, text: &[u8]) -> Option<usize> {
        let Some(last) = self.elements.len().checked_sub(1) else { return Some(0) };
        let words = last / 64 + 1;
        let mut masks = vec![0_u64; 256 * words];
        for (place, element) in self.elements.iter().enumerate() {
            for byte in 0..=u8::MAX {
                let is_match = first_matches(element, byte).0;
                masks[usize::from(byte) * words + place / 64] |= u64::from(is_match) << (place % 64);
            }
        }
        let mut state = vec![0_u64; words];
        let end = text.iter().position(|byte| {
            let mut carry = 1;
            for (word, mask) in state.iter_mut().zip(&masks[usize::from(*byte) * words..]) {
                let next = *word >> 63;
                *word = (*word << 1 | carry) & mask;
                carry = next;
            }
            state[words - 1] >> (last % 64) & 1 > 0
        });
        end.map(|end| end + 1)
    }
}

/// Whether a byte matches the first element of a pattern, which is no star; and the pattern behind that element.
fn first_matches(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    match pattern {
        [] => (false, pattern),
        [b'?', rest @ ..] => (true, rest),
        [b'[', rest @ ..] => class_matches(rest, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte, rest),
    }
}

/// Whether a byte is of a class, and the pattern behind it. A class without an end ends with the pattern.
fn class_matches(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (is_negated, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut is_found = false;
    loop {
        rest = match rest {
            [b']', rest @ ..] => return (is_found != is_negated, rest),
            [] => return (is_found != is_negated, rest),
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

/// So many steps, and as many more for each byte, show that a pattern has many mismatches.
const STEPS_MIN: usize = 1024;
const STEPS_EACH: usize = 4;

#[cfg(test)]
mod tests {
    use tidegate_testkit::{Random, replay, seeds};

    use super::{matches, matches_by_segments, matches_within};

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
            assert_eq!(matches_by_segments(pattern.as_bytes(), text.as_bytes()), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        assert!(!matches(&b"a*".repeat(200), &[b"a".repeat(2_000), b"b".to_vec()].concat()[..1_000].repeat(0)));
        assert!(!matches(&[b"a*".repeat(200), b"b".to_vec()].concat(), &b"a".repeat(10_000)));
    }

    #[test]
    fn both_ways_find_the_same() {
        let elements = ["a", "b", "?", "*", "[ab]", "[^a]", "[a", "\\*", "\\"];
        for seed in seeds(20) {
            let mut random = Random::new(seed);
            for _ in 0..500 {
                let mut random_text = |elements: &[&str], count: usize| -> String {
                    (0..random.below(count)).map(|_| elements[random.below(elements.len())]).collect()
                };
                let (pattern, text) = (random_text(&elements, 12), random_text(&["a", "b", "*"], 12));
                // Long segments have states of several words.
                let filled = |text: &str| format!("{text}*{}{text}", "ab".repeat(70));
                for (pattern, text) in [(pattern.clone(), text.clone()), (filled(&pattern), filled(&text))] {
                    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
                    let expected = matches_within(pattern, text, usize::MAX);
                    let found = Some(matches_by_segments(pattern, text));
                    assert_eq!(found, expected, "{} {}, {}", pattern.escape_ascii(), text.escape_ascii(), replay(seed));
                }
            }
        }
    }

    /// The product of both lengths is 2^32 and more.
    #[test]
    fn a_pattern_of_many_mismatches_takes_few_steps() {
        let pattern = [b"*".to_vec(), b"a".repeat(1 << 12), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &b"a".repeat(1 << 20)));
        let class = [b"*[".to_vec(), b"b".repeat(1 << 12), b"]".to_vec()].concat();
        assert!(!matches(&class, &b"a".repeat(1 << 20)));
    }
}
