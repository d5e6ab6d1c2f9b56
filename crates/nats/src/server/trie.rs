//! `SubjectTrie`: which subscriptions a subject reaches.
//!
//! A level has a branch for each token, one for `*`, and the subscriptions of `>`. A subject follows the branch of its token and
//! that of `*`, so the work is bounded by the branches that match and not by the subscriptions.
//!
//! Invariant: no level is empty but the root.

use std::collections::{BTreeMap, HashMap};

use crate::subject::tokens;

/// The subscriptions by their filters. `K` tells them apart.
#[derive(Debug)]
pub(crate) struct SubjectTrie<K, T> {
    root: Level<K, T>,
    len: usize,
}

#[derive(Debug)]
struct Level<K, T> {
    tokens: HashMap<Box<[u8]>, Level<K, T>>,
    any: Option<Box<Level<K, T>>>,
    /// Subscriptions whose filters end here.
    here: BTreeMap<K, T>,
    /// Subscriptions whose filters end here with `>`.
    rest: BTreeMap<K, T>,
}

impl<K: Ord, T> SubjectTrie<K, T> {
    /// Adds a subscription. The filter is valid.
    pub(crate) fn insert(&mut self, filter: &[u8], key: K, subscription: T) {
        let mut level = &mut self.root;
        let mut is_rest = false;
        for token in tokens(filter) {
            level = match token {
                b">" => {
                    is_rest = true;
                    break;
                }
                b"*" => level.any.get_or_insert_default(),
                token if level.tokens.contains_key(token) => match level.tokens.get_mut(token) {
                    Some(next) => next,
                    None => return,
                },
                token => level.tokens.entry(token.into()).or_default(),
            };
        }
        let all = if is_rest { &mut level.rest } else { &mut level.here };
        self.len += usize::from(all.insert(key, subscription).is_none());
    }

    /// Removes a subscription.
    pub(crate) fn remove(&mut self, filter: &[u8], key: &K) -> Option<T> {
        let tokens: Vec<_> = tokens(filter).collect();
        let removed = self.root.remove(&tokens, key);
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// Calls `found` with each subscription that a subject reaches.
    pub(crate) fn matches<'a>(&'a self, subject: &[u8], found: &mut dyn FnMut(&'a K, &'a T)) {
        let tokens: Vec<_> = tokens(subject).collect();
        self.root.matches(&tokens, found);
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.root.is_empty()
    }
}

impl<K: Ord, T> Level<K, T> {
    fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.any.is_none() && self.here.is_empty() && self.rest.is_empty()
    }

    fn remove(&mut self, tokens: &[&[u8]], key: &K) -> Option<T> {
        let Some((token, left)) = tokens.split_first() else { return self.here.remove(key) };
        match *token {
            b">" => self.rest.remove(key),
            b"*" => {
                let next = self.any.as_mut()?;
                let removed = next.remove(left, key);
                if next.is_empty() {
                    self.any = None;
                }
                removed
            }
            token => {
                let next = self.tokens.get_mut(token)?;
                let removed = next.remove(left, key);
                if next.is_empty() {
                    self.tokens.remove(token);
                }
                removed
            }
        }
    }

    fn matches<'a>(&'a self, tokens: &[&[u8]], found: &mut dyn FnMut(&'a K, &'a T)) {
        let Some((token, left)) = tokens.split_first() else {
            return self.here.iter().for_each(|(key, one)| found(key, one));
        };
        self.rest.iter().for_each(|(key, one)| found(key, one));
        if let Some(next) = self.tokens.get(*token) {
            next.matches(left, found);
        }
        if let Some(next) = &self.any {
            next.matches(left, found);
        }
    }
}

impl<K, T> Default for SubjectTrie<K, T> {
    fn default() -> Self {
        Self { root: Level::default(), len: 0 }
    }
}

impl<K, T> Default for Level<K, T> {
    fn default() -> Self {
        Self { tokens: HashMap::new(), any: None, here: BTreeMap::new(), rest: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_testkit::{Random, replay, seeds};

    use super::*;
    use crate::subject::{is_filter, matches_subject};

    fn random_name(random: &mut Random, tokens: &[&str]) -> String {
        let names: Vec<_> = (0..=random.below(4)).map(|_| tokens[random.below(tokens.len())]).collect();
        names.join(".")
    }

    #[test]
    fn a_trie_finds_the_filters_that_match_one_by_one_and_is_empty_in_the_end() {
        for seed in seeds(20) {
            let mut random = Random::new(seed);
            let mut trie = SubjectTrie::default();
            let mut filters = Vec::new();
            for key in 0..200 {
                let filter = random_name(&mut random, &["a", "b", "c", "*", ">"]);
                if is_filter(filter.as_bytes()) {
                    trie.insert(filter.as_bytes(), key, ());
                    filters.push((key, filter));
                }
            }
            for _ in 0..200 {
                let subject = random_name(&mut random, &["a", "b", "c", "d"]);
                let mut found = Vec::new();
                trie.matches(subject.as_bytes(), &mut |key, ()| found.push(*key));
                found.sort_unstable();
                let is_match = |(_, filter): &&(i32, String)| matches_subject(filter.as_bytes(), subject.as_bytes());
                let expected: Vec<_> = filters.iter().filter(is_match).map(|(key, _)| *key).collect();
                assert_eq!(found, expected, "{subject}, {}", replay(seed));
            }
            assert_eq!(trie.len(), filters.len());
            for (key, filter) in filters {
                assert!(trie.remove(filter.as_bytes(), &key).is_some());
            }
            assert!(trie.is_empty(), "{}", replay(seed));
        }
    }
}
