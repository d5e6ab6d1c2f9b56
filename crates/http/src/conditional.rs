//! `ConditionalRoutes`: routes that requests have to meet conditions for.
//!
//! The most specific path decides first, as in the Gateway API of Kubernetes: literal bytes before a parameter, and that
//! before the rest of a path. Of one path, the first route whose conditions hold is chosen, and then the routes without
//! conditions. If none is chosen and there are none without conditions, the next less specific path decides.
//!
//! A table without such routes never looks here.

use std::cmp::Ordering;
use std::rc::Rc;

use tidegate_http1::RequestHead;
use tidegate_sys::Address;

use crate::condition::Condition;
use crate::endpoint::Endpoint;
use crate::route::{Pattern, Route, Values};

/// The routes of a table that have conditions.
#[derive(Default)]
pub(crate) struct ConditionalRoutes {
    /// The most specific route that matches a path, as a place in `routes`.
    paths: matchit::Router<usize>,
    routes: Vec<ConditionalRoute>,
    /// Places in `routes`, the most specific one first.
    ranked: Vec<usize>,
    /// For the paths that no route matches.
    pub(crate) fallbacks: Vec<Choice>,
}

/// The functions of one path.
pub(crate) struct ConditionalRoute {
    pub(crate) pattern: Rc<Pattern>,
    /// The pattern in the form in which paths are matched.
    normal: Box<str>,
    /// Matches this pattern alone.
    matcher: matchit::Router<()>,
    rank: usize,
    pub(crate) choices: Vec<Choice>,
}

/// A function, and the conditions of its requests.
#[derive(Clone)]
pub(crate) struct Choice {
    pub(crate) conditions: Rc<[Condition]>,
    pub(crate) endpoint: Rc<Endpoint>,
}

impl Choice {
    fn holds(&self, head: &RequestHead, peer: &dyn Fn() -> Address) -> bool {
        self.conditions.iter().all(|condition| condition.holds(head, peer))
    }
}

impl ConditionalRoutes {
    /// Adds a function for a path. `normal` is the pattern as paths are matched.
    pub(crate) fn add(&mut self, pattern: Pattern, normal: String, choice: Choice) {
        if let Some(route) = self.routes.iter_mut().find(|route| *route.normal == *normal) {
            route.choices.push(choice);
            return;
        }
        let (at, mut matcher) = (self.routes.len(), matchit::Router::new());
        let added = self.paths.insert(&*normal, at).and_then(|()| matcher.insert(&*normal, ()));
        if let Err(error) = added {
            panic!("the path `{}` cannot be a route: {error}", pattern.text);
        }
        let (pattern, normal) = (Rc::new(pattern), normal.into());
        self.routes.push(ConditionalRoute { pattern, normal, matcher, rank: 0, choices: vec![choice] });
        let routes = &mut self.routes;
        self.ranked.push(at);
        self.ranked.sort_by(|one, other| specificity(&routes[*one].normal, &routes[*other].normal));
        for (rank, at) in self.ranked.iter().enumerate() {
            routes[*at].rank = rank;
        }
    }

    pub(crate) fn routes(&self) -> impl Iterator<Item = &ConditionalRoute> {
        self.routes.iter()
    }

    /// All functions.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Rc<Endpoint>> {
        let choices = self.routes.iter().flat_map(|route| &route.choices).chain(&self.fallbacks);
        choices.map(|choice| &choice.endpoint)
    }

    /// The same, to be replaced.
    pub(crate) fn endpoints_mut(&mut self) -> impl Iterator<Item = &mut Rc<Endpoint>> {
        let choices = self.routes.iter_mut().flat_map(|route| &mut route.choices).chain(&mut self.fallbacks);
        choices.map(|choice| &mut choice.endpoint)
    }

    /// The function for a path in the form that routes match. `unconditional` is the most specific path without conditions
    /// that matches; `place` finds a part of the text in the path as it was sent.
    pub(crate) fn find(
        &self,
        text: &str,
        unconditional: Option<&str>,
        (head, peer): (&RequestHead, &dyn Fn() -> Address),
        place: impl Fn(usize) -> u16,
    ) -> Option<(&Rc<Endpoint>, Option<Route>)> {
        let first = self.paths.at(text).map_or(self.ranked.len(), |found| self.routes[*found.value].rank);
        // Most requests stop at the first one. The others are those whose path is less specific.
        for route in self.ranked[first..].iter().map(|at| &self.routes[*at]) {
            if unconditional.is_some_and(|other| specificity(other, &route.normal).is_lt()) {
                return None;
            }
            let Ok(found) = route.matcher.at(text) else { continue };
            if let Some(choice) = route.choices.iter().find(|choice| choice.holds(head, peer)) {
                let values = Values::new(found.params.iter().map(|(_, value)| {
                    let start = value.as_ptr() as usize - text.as_ptr() as usize;
                    (place(start), place(start + value.len()))
                }));
                return Some((&choice.endpoint, Some(Route { pattern: route.pattern.clone(), values })));
            }
        }
        if unconditional.is_some() {
            return None;
        }
        self.fallbacks.iter().find(|choice| choice.holds(head, peer)).map(|choice| (&choice.endpoint, None))
    }
}

/// Which of two patterns is more specific, where both match one path: `Less` if it is the first.
fn specificity(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    let mut is_after_parameter = false;
    loop {
        let (first, first_rest) = next(one);
        let (second, second_rest) = next(other);
        if first != second || first == Token::End {
            let rank = |token| match token {
                // Bytes behind a parameter of a segment bind it more closely than its end.
                Token::Byte(byte) if byte != b'/' || !is_after_parameter => (0, byte),
                Token::Byte(_) | Token::End => (1, 0),
                Token::Parameter => (2, 0),
                Token::Rest => (3, 0),
            };
            return rank(first).cmp(&rank(second));
        }
        is_after_parameter = first == Token::Parameter;
        (one, other) = (first_rest, second_rest);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Byte(u8),
    Parameter,
    Rest,
    End,
}

/// The first token of a pattern, and the rest of it. A doubled brace is a byte.
fn next(pattern: &str) -> (Token, &str) {
    let bytes = pattern.as_bytes();
    match bytes {
        [] => (Token::End, ""),
        [b'{', b'{', ..] | [b'}', b'}', ..] => (Token::Byte(bytes[0]), &pattern[2..]),
        [b'{', rest @ ..] => {
            let token = if rest.starts_with(b"*") { Token::Rest } else { Token::Parameter };
            (token, pattern.split_once('}').map_or("", |(_, rest)| rest))
        }
        // The normal form of a pattern is ASCII.
        [byte, ..] => (Token::Byte(*byte), pattern.get(1..).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_bytes_come_before_parameters_and_these_before_the_rest() {
        let sorted = [
            "/api/users/me",
            "/api/users/{id}.json",
            "/api/users/{id}/posts",
            "/api/users/{id}",
            "/api/users/{*rest}",
            "/api/{*rest}",
            "/{name}/x",
            "/{name}",
            "/{*rest}",
        ];
        for (place, one) in sorted.iter().enumerate() {
            for (other_place, other) in sorted.iter().enumerate() {
                // Only where both can match one path does the order matter.
                let both = |a: &str, b: &str| a.contains("{*") || b.contains("{*");
                if place < other_place && both(one, other) {
                    assert_eq!(specificity(one, other), Ordering::Less, "{one} {other}");
                    assert_eq!(specificity(other, one), Ordering::Greater, "{one} {other}");
                }
            }
        }
        assert_eq!(specificity("/{a}", "/{b}"), Ordering::Equal);
        assert_eq!(specificity("/{a}.png", "/{b}"), Ordering::Less);
        assert_eq!(specificity("/{{a}}", "/{a}"), Ordering::Less);
        assert_eq!(specificity("/", "/{*rest}"), Ordering::Less);
    }
}
