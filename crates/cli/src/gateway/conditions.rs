//! The conditions of a route beyond its host and path, as a router takes them.

use tidegate::http::{Condition, Method};
use tidegate::proxy_protocol::Networks;

use crate::config::{Conditions, Wanted};

/// Conditions that all have to hold.
pub(super) fn of(conditions: &Conditions) -> Vec<Condition> {
    let mut all = Vec::new();
    if !conditions.methods.is_empty() {
        let methods = conditions.methods.iter().filter_map(|name| Method::from_bytes(name.as_bytes()).ok());
        all.push(Condition::methods(methods));
    }
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
        let networks = conditions.client.iter();
        let networks = networks.fold(Networks::default(), |all, one| all.and(one.addr(), one.prefix_len()));
        all.push(Condition::client_in(networks));
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
