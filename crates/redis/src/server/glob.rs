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
    matches_within(pattern, text, steps_max).unwrap_or_else(|| Glob::new(pattern).matches(text))
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

/// A compiled pattern. Bit `n` of the state is set while the first `n` elements of the pattern match the text so far: a byte of
/// the text takes one step for each 64 elements, whatever the pattern is.
pub(super) struct Glob {
    /// The number of elements, each of which matches one byte.
    elements: usize,
    /// The words of a state.
    words: usize,
    /// For each byte the bits behind the elements that it matches.
    masks: Box<[u64]>,
    /// The bits at which a star keeps the state.
    stars: Box<[u64]>,
}

impl Glob {
    pub(super) fn new(pattern: &[u8]) -> Self {
        let (mut sets, mut stars, mut rest) = (Vec::new(), Vec::new(), pattern);
        while !rest.is_empty() {
            if let [b'*', after @ ..] = rest {
                stars.push(sets.len());
                rest = after;
                continue;
            }
            let (set, after) = first_set(rest);
            sets.push(set);
            rest = after;
        }
        let words = Self::words_of(sets.len());
        let mut glob =
            Self { elements: sets.len(), words, masks: vec![0; 256 * words].into(), stars: vec![0; words].into() };
        for place in stars {
            glob.stars[place / 64] |= 1 << (place % 64);
        }
        for (place, set) in (1..).zip(sets) {
            for byte in set.bytes() {
                glob.masks[usize::from(byte) * words + place / 64] |= 1 << (place % 64);
            }
        }
        glob
    }

    /// The words of a state, at most, of a pattern of so many bytes.
    pub(super) const fn words_of(pattern_bytes: usize) -> usize {
        pattern_bytes / 64 + 1
    }

    pub(super) fn matches(&self, text: &[u8]) -> bool {
        if let [stars] = *self.stars {
            return self.matches_in_word(stars, text);
        }
        let mut state = vec![0_u64; self.words];
        state[0] = 1;
        for byte in text {
            let (mut carry, mut any) = (0, 0);
            let masks = &self.masks[usize::from(*byte) * self.words..][..self.words];
            for ((word, mask), stars) in state.iter_mut().zip(masks).zip(&self.stars) {
                let next = *word >> 63;
                *word = (*word << 1 | carry) & mask | *word & stars;
                any |= *word;
                carry = next;
            }
            if any == 0 {
                return false;
            }
        }
        state[self.elements / 64] >> (self.elements % 64) & 1 > 0
    }

    /// As [`matches`](Self::matches), with a state of one word, as most patterns have.
    fn matches_in_word(&self, stars: u64, text: &[u8]) -> bool {
        let mut state = 1_u64;
        for byte in text {
            state = state << 1 & self.masks[usize::from(*byte)] | state & stars;
            if state == 0 {
                return false;
            }
        }
        state >> self.elements & 1 > 0
    }
}

/// The bytes that an element matches.
#[derive(Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn add(&mut self, from: u8, to: u8) {
        for (first, word) in (0_u16..).step_by(64).zip(&mut self.0) {
            let (from, to) = (u16::from(from).max(first), u16::from(to).min(first + 63));
            if from <= to {
                *word |= u64::MAX >> (63 - (to - from)) << (from - first);
            }
        }
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(|byte| self.0[usize::from(byte / 64)] >> (byte % 64) & 1 > 0)
    }
}

/// The bytes that the first element of a pattern matches, which is no star; and the pattern behind that element.
fn first_set(pattern: &[u8]) -> (ByteSet, &[u8]) {
    let mut set = ByteSet::default();
    let rest = match pattern {
        [] => pattern,
        [b'?', rest @ ..] => {
            set.add(0, u8::MAX);
            rest
        }
        [b'[', rest @ ..] => {
            let (is_negated, rest) = read_class(rest, |from, to| set.add(from, to));
            if is_negated {
                set.0 = set.0.map(|word| !word);
            }
            rest
        }
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
            set.add(*literal, *literal);
            rest
        }
    };
    (set, rest)
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

/// Whether a byte is of a class, and the pattern behind it.
fn class_matches(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let mut is_found = false;
    let (is_negated, rest) = read_class(pattern, |from, to| is_found |= (from..=to).contains(&byte));
    (is_found != is_negated, rest)
}

/// Reads the ranges of a class. Returns whether the class is negated, and the pattern behind it. A class without an end ends
/// with the pattern.
fn read_class(pattern: &[u8], mut range: impl FnMut(u8, u8)) -> (bool, &[u8]) {
    let (is_negated, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    loop {
        rest = match rest {
            [b']', rest @ ..] => return (is_negated, rest),
            [] => return (is_negated, rest),
            [from, b'-', to, rest @ ..] if *from != b'\\' => {
                range(*from.min(to), *from.max(to));
                rest
            }
            [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
                range(*literal, *literal);
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

    use super::{Glob, matches, matches_within};

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
            assert_eq!(Glob::new(pattern.as_bytes()).matches(text.as_bytes()), wanted, "{pattern} {text}");
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
            for number in 0..500 {
                let mut random_text = |elements: &[&str], count: usize| -> String {
                    (0..random.below(count)).map(|_| elements[random.below(elements.len())]).collect()
                };
                let (pattern, text) = (random_text(&elements, 12), random_text(&["a", "b", "*"], 12));
                // Long patterns have states of several words. They take most of the time, so one pair in five is filled.
                let filled = |text: &str| format!("{text}*{}{text}", "ab".repeat(70));
                let long = (number % 5 == 0).then(|| (filled(&pattern), filled(&text)));
                for (pattern, text) in [(pattern, text)].into_iter().chain(long) {
                    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
                    let expected = matches_within(pattern, text, usize::MAX);
                    let found = Some(Glob::new(pattern).matches(text));
                    assert_eq!(found, expected, "{} {}, {}", pattern.escape_ascii(), text.escape_ascii(), replay(seed));
                }
            }
        }
    }

    /// The product of both lengths is 2^30 and more.
    #[test]
    fn a_pattern_of_many_mismatches_takes_few_steps() {
        let pattern = [b"*".to_vec(), b"a".repeat(1 << 12), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &b"a".repeat(1 << 18)));
        let class = [b"*[".to_vec(), b"b".repeat(1 << 12), b"]".to_vec()].concat();
        assert!(!matches(&class, &b"a".repeat(1 << 18)));
    }
}
