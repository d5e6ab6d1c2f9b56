//! `Segments`: all patterns that match a path, however many patterns there are.
//!
//! The patterns are a tree of their segments. A segment with a parameter is found by the bytes around the parameter, so that a
//! search looks up one name for each pair of lengths that these bytes have, not for each pattern.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// Patterns, each with a number.
pub(super) struct Segments {
    /// The first one is the root.
    nodes: Vec<SegmentNode>,
}

/// The segments that follow others.
#[derive(Default)]
struct SegmentNode {
    /// By [`SegmentKey`].
    children: HashMap<Box<[u8]>, usize, RandomState>,
    /// How many bytes are before and behind the parameters of these children.
    around_parameters: Vec<(usize, usize)>,
    /// How many bytes are before the rests of these children.
    before_rests: Vec<usize>,
    /// The pattern that ends here.
    pattern: Option<usize>,
}

/// Stands for a parameter in the key of a segment. The normal form of a path has neither byte.
const PARAMETER: u8 = 0;
/// Stands for the rest of the path.
const REST: u8 = 1;

impl Default for Segments {
    fn default() -> Self {
        Self { nodes: vec![SegmentNode::default()] }
    }
}

impl Segments {
    /// Adds a pattern in the form in which paths are matched. It begins with a slash.
    pub(super) fn add(&mut self, pattern: &str, number: usize) {
        let mut at = 0;
        for segment in segments_of(pattern) {
            work::count();
            let key = key_of(segment);
            let node = &mut self.nodes[at];
            if let Some(found) = node.children.get(&*key) {
                at = *found;
                continue;
            }
            if let Some(before) = key.iter().position(|byte| *byte == PARAMETER) {
                add_once(&mut node.around_parameters, (before, key.len() - before - 1));
            }
            if let Some(before) = key.iter().position(|byte| *byte == REST) {
                add_once(&mut node.before_rests, before);
            }
            let next = self.nodes.len();
            self.nodes[at].children.insert(key, next);
            self.nodes.push(SegmentNode::default());
            at = next;
        }
        self.nodes[at].pattern = Some(number);
    }

    /// The numbers of the patterns that match a path, in no order.
    pub(super) fn matching(&self, path: &str) -> Vec<usize> {
        let Some(path) = path.strip_prefix('/') else { return Vec::new() };
        let (mut found, mut key) = (Vec::new(), Vec::new());
        // Places in the tree, each with the part of the path behind it; `None` behind the last segment. They are bounded by the
        // patterns that match the path so far.
        let mut open = vec![(&self.nodes[0], Some(path.as_bytes()))];
        while let Some((node, rest)) = open.pop() {
            work::count();
            let Some(rest) = rest else {
                found.extend(node.pattern);
                continue;
            };
            let end = rest.iter().position(|byte| *byte == b'/');
            let (segment, behind) = (&rest[..end.unwrap_or(rest.len())], end.map(|end| &rest[end + 1..]));
            let child = |key: &[u8]| node.children.get(key).map(|child| &self.nodes[*child]);
            open.extend(child(segment).map(|child| (child, behind)));
            for &(before, after) in node.around_parameters.iter().filter(|(b, a)| b + a < segment.len()) {
                fill(&mut key, &segment[..before], PARAMETER, &segment[segment.len() - after..]);
                open.extend(child(&key).map(|child| (child, behind)));
            }
            for &before in node.before_rests.iter().filter(|before| **before <= segment.len() && **before < rest.len())
            {
                fill(&mut key, &rest[..before], REST, &[]);
                found.extend(child(&key).and_then(|child| child.pattern));
            }
        }
        found
    }
}

/// The parts of a pattern between slashes. The name of a parameter may have a slash nowhere, so each slash is one.
fn segments_of(pattern: &str) -> impl Iterator<Item = &str> {
    pattern.split('/').skip(1)
}

/// The key of a segment: its bytes, with one byte in the place of a parameter. A doubled brace is a byte.
fn key_of(segment: &str) -> Box<[u8]> {
    let (mut key, mut rest) = (Vec::with_capacity(segment.len()), segment.as_bytes());
    while let [first, behind @ ..] = rest {
        (key, rest) = match (first, behind) {
            (b'{', [b'{', behind @ ..]) | (b'}', [b'}', behind @ ..]) => (with(key, *first), behind),
            (b'{', behind) => {
                let end = behind.iter().position(|byte| *byte == b'}').map_or(behind.len(), |end| end + 1);
                (with(key, if behind.first() == Some(&b'*') { REST } else { PARAMETER }), &behind[end..])
            }
            (byte, behind) => (with(key, *byte), behind),
        };
    }
    key.into()
}

fn with(mut key: Vec<u8>, byte: u8) -> Vec<u8> {
    key.push(byte);
    key
}

fn fill(key: &mut Vec<u8>, before: &[u8], byte: u8, after: &[u8]) {
    key.clear();
    key.extend_from_slice(before);
    key.push(byte);
    key.extend_from_slice(after);
}

fn add_once<T: PartialEq>(list: &mut Vec<T>, value: T) {
    if !list.contains(&value) {
        list.push(value);
    }
}

/// Counts the steps of adding and of searching, for tests.
#[cfg(test)]
pub(super) mod work {
    use std::cell::Cell;

    thread_local!(static STEPS: Cell<usize> = const { Cell::new(0) });

    pub(in crate::table) fn count() {
        STEPS.set(STEPS.get() + 1);
    }

    /// The steps of a function.
    pub(in crate::table) fn of<T>(function: impl FnOnce() -> T) -> (usize, T) {
        STEPS.set(0);
        let result = function();
        (STEPS.get(), result)
    }
}

#[cfg(not(test))]
pub(super) mod work {
    #[inline(always)]
    pub(in crate::table) fn count() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_patterns_that_match_a_path_are_found_and_no_other() {
        let patterns = [
            "/",
            "/a",
            "/a/",
            "/{x}",
            "/a{x}",
            "/{x}.json",
            "/a-{x}.json",
            "/{*rest}",
            "/a/{*rest}",
            "/a{*rest}",
            "/{x}/b",
            "/a/{x}/c",
            "/{x}/{y}/c",
            "/{{a}}",
            "/{{{x}",
        ];
        let mut segments = Segments::default();
        for (number, pattern) in patterns.iter().enumerate() {
            segments.add(pattern, number);
        }
        for path in [
            "/",
            "/a",
            "/a/",
            "/b",
            "/ab",
            "/a.json",
            "/a-1.json",
            "/a-.json",
            "/a/b",
            "/c/b",
            "/a/b/c",
            "/a//c",
            "/{a}",
            "/{",
            "*",
            "",
            "/a/b/c/d",
        ] {
            let mut found: Vec<&str> = segments.matching(path).into_iter().map(|number| patterns[number]).collect();
            let matches = |pattern: &str| {
                let mut alone = matchit::Router::new();
                alone.insert(pattern, ()).unwrap();
                alone.at(path).is_ok()
            };
            let mut expected: Vec<&str> = patterns.iter().copied().filter(|pattern| matches(pattern)).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{path}");
        }
    }
}
