//! `ConditionalRoutes`: routes that requests have to meet conditions for.
//!
//! The most specific path decides first, as in the Gateway API of Kubernetes: literal bytes before a parameter, and that
//! before the rest of a path. Of one path, the first route whose conditions hold is chosen, and then the routes without
//! conditions. If none is chosen and there are none without conditions, the next less specific path decides.
//!
//! A table without such routes never looks here.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;
use tidegate_http1::RequestHead;
use tidegate_sys::Address;

use super::segments::{Segments, work};
use crate::condition::Condition;
use crate::endpoint::Endpoint;
use crate::route::{Pattern, Route, Values};

/// The routes of a table that have conditions.
#[derive(Default)]
pub(crate) struct ConditionalRoutes {
    /// The most specific route that matches a path, as a place in `routes`.
    paths: matchit::Router<usize>,
    /// All routes that match a path.
    segments: Segments,
    /// The route of each pattern, in the form in which paths are matched.
    places: HashMap<Rc<str>, usize, RandomState>,
    routes: Vec<ConditionalRoute>,
    /// For the paths that no route matches.
    pub(crate) fallbacks: Vec<Choice>,
}

/// The functions of one path.
pub(crate) struct ConditionalRoute {
    pub(crate) pattern: Rc<Pattern>,
    /// The pattern in the form in which paths are matched.
    normal: Rc<str>,
    /// Matches this pattern alone.
    matcher: matchit::Router<()>,
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
        if let Some(at) = self.places.get(&*normal) {
            self.routes[*at].choices.push(choice);
            return;
        }
        let (at, mut matcher) = (self.routes.len(), matchit::Router::new());
        let added = self.paths.insert(&*normal, at).and_then(|()| matcher.insert(&*normal, ()));
        if let Err(error) = added {
            panic!("the path `{}` cannot be a route: {error}", pattern.text);
        }
        let (pattern, normal): (_, Rc<str>) = (Rc::new(pattern), normal.into());
        self.segments.add(&normal, at);
        self.places.insert(normal.clone(), at);
        self.routes.push(ConditionalRoute { pattern, normal, matcher, choices: vec![choice] });
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
        request: (&RequestHead, &dyn Fn() -> Address),
        place: impl Fn(usize) -> u16,
    ) -> Option<(&Rc<Endpoint>, Option<Route>)> {
        let comes_after =
            |route: &ConditionalRoute| unconditional.is_some_and(|other| specificity(other, &route.normal).is_lt());
        if let Ok(found) = self.paths.at(text) {
            let first = &self.routes[*found.value];
            if comes_after(first) {
                return None;
            }
            // Most requests stop here. The others get a route whose path is less specific.
            if let Some(choice) = first.choice(request) {
                return Some(first.found(choice, text, &found.params, place));
            }
            let others = self.less_specific(text, first).into_iter().take_while(|route| !comes_after(route));
            for route in others {
                let (Ok(found), Some(choice)) = (route.matcher.at(text), route.choice(request)) else { continue };
                return Some(route.found(choice, text, &found.params, place));
            }
        }
        if unconditional.is_some() {
            return None;
        }
        let (head, peer) = request;
        self.fallbacks.iter().find(|choice| choice.holds(head, peer)).map(|choice| (&choice.endpoint, None))
    }

    /// The routes that match a path and are less specific than another one, the most specific one first.
    #[inline(never)]
    fn less_specific(&self, text: &str, first: &ConditionalRoute) -> Vec<&ConditionalRoute> {
        let matching = self.segments.matching(text).into_iter().map(|at| &self.routes[at]);
        let mut others: Vec<_> = matching.filter(|route| specificity(&first.normal, &route.normal).is_lt()).collect();
        others.sort_by(|one, other| specificity(&one.normal, &other.normal));
        others
    }
}

impl ConditionalRoute {
    /// The first function whose conditions a request meets.
    fn choice(&self, (head, peer): (&RequestHead, &dyn Fn() -> Address)) -> Option<&Choice> {
        self.choices.iter().find(|choice| choice.holds(head, peer))
    }

    fn found<'t>(
        &'t self,
        choice: &'t Choice,
        text: &str,
        params: &matchit::Params<'_, '_>,
        place: impl Fn(usize) -> u16,
    ) -> (&'t Rc<Endpoint>, Option<Route>) {
        let values = Values::of(params, text, place);
        (&choice.endpoint, Some(Route { pattern: self.pattern.clone(), values }))
    }
}

/// Which of two patterns is more specific, where both match one path: `Less` if it is the first.
fn specificity(one: &str, other: &str) -> Ordering {
    work::count();
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
    use crate::endpoint::Call;
    use crate::extract::BodyUse;
    use crate::request::tests::request;
    use crate::response::Response;
    use crate::table::pattern_of;

    /// Routes whose conditions do not hold, and a less specific one whose condition does.
    fn routes(count: usize) -> ConditionalRoutes {
        let endpoint = || Rc::new(Endpoint::new(Call::Sync(Box::new(|_| Response::new())), BodyUse::Unused));
        let mut routes = ConditionalRoutes::default();
        let mut add = |path: &str, condition: Condition| {
            let (pattern, normal) = pattern_of(path);
            routes.add(pattern, normal, Choice { conditions: [condition].into(), endpoint: endpoint() });
        };
        add("/{*rest}", !Condition::header("X-Canary"));
        (0..count).for_each(|number| add(&format!("/service-{number:05}/items/{{id}}"), Condition::header("X-Canary")));
        routes
    }

    #[test]
    fn a_route_takes_the_same_steps_to_add_and_to_find_beside_10_000_others() {
        let [(few_steps, few), (many_steps, many)] = [10, 10_000].map(|count| work::of(|| routes(count)));
        assert_eq!(many_steps - few_steps, 9_990 * 3, "a step for each segment of a route");
        let request = request("GET", "/service-00007/items/42", "");
        let find = |routes: &ConditionalRoutes| {
            let peer = || request.peer().clone();
            work::of(|| {
                let found = routes.find(request.path(), None, (request.head(), &peer), |at| at as u16);
                found.and_then(|(_, route)| route).map(|route| route.pattern.text().to_owned())
            })
        };
        assert_eq!(find(&few).1.as_deref(), Some("/{*rest}"));
        assert_eq!(find(&few), find(&many));
    }

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
