//! The conditions of a route beyond its host and path, as a router takes them.

use tidegate::http::{Condition, Method};

use super::guards::{networks, trusted};
use crate::config::{Conditions, Route, Wanted};

/// Conditions that all have to hold.
pub(super) fn of(route: &Route) -> Vec<Condition> {
    let conditions = &route.conditions;
    let mut all = Vec::new();
    if !conditions.methods.is_empty() {
        let methods = conditions.methods.iter().filter_map(|name| Method::from_bytes(name.as_bytes()).ok());
        all.push(Condition::methods(methods));
    }
    all.extend(beside_methods(route));
    all
}

/// The conditions of a browser's request for permission to use the route (CORS), if its methods would leave that out.
pub(super) fn of_preflight(route: &Route) -> Option<Vec<Condition>> {
    let conditions: &Conditions = &route.conditions;
    if conditions.methods.is_empty() || conditions.methods.iter().any(|name| name == "OPTIONS") {
        return None;
    }
    let asks = [Condition::header("Origin"), Condition::header("Access-Control-Request-Method")];
    Some([Condition::methods([Method::OPTIONS])].into_iter().chain(asks).chain(beside_methods(route)).collect())
}

fn beside_methods(route: &Route) -> Vec<Condition> {
    let conditions = &route.conditions;
    let mut all = Vec::new();
    let header = |(name, wanted): &(String, Wanted)| match wanted {
        Wanted::Present => Condition::header(name),
        Wanted::Absent => !Condition::header(name),
        Wanted::Value(value) => Condition::header_equals(name, value.as_bytes()),
    };
    all.extend(conditions.headers.iter().map(header));
    let query = |(name, wanted): &(String, Wanted)| match wanted {
        Wanted::Present => Condition::query(name.as_bytes()),
        Wanted::Absent => !Condition::query(name.as_bytes()),
        Wanted::Value(value) => Condition::query_equals(name.as_bytes(), value.as_bytes()),
    };
    all.extend(conditions.query.iter().map(query));
    if !conditions.client.is_empty() {
        all.push(Condition::client_behind(networks(&conditions.client), trusted(route)));
    }
    all
}

/// The value of `Allow` for these methods.
pub(super) fn allow<'m>(methods: impl Iterator<Item = &'m String>) -> String {
    let mut names: Vec<&str> = methods.map(String::as_str).collect();
    if names.contains(&"GET") {
        names.push("HEAD");
    }
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}
