//! What a request needs beyond its host and path, as a function that a `Choice` asks.

use tidegate::Address;
use tidegate::http1::{Method, RequestHead};

use crate::config::{Conditions, Wanted};

/// Whether a request meets the conditions.
pub(super) fn check(conditions: &Conditions) -> impl Fn(&RequestHead, &Address) -> bool + 'static {
    let conditions = conditions.clone();
    move |head, client| {
        has_method(&conditions, head)
            && conditions.headers.iter().all(|(name, wanted)| has_field(head, name, wanted))
            && (conditions.query.is_empty() || has_query(&conditions, head))
            && (conditions.client.is_empty() || is_client(&conditions, client))
    }
}

fn has_method(conditions: &Conditions, head: &RequestHead) -> bool {
    let methods = &conditions.methods;
    let has = |name: &str| methods.iter().any(|method| method == name);
    methods.is_empty() || has(head.method_text()) || head.method() == Method::Head && has("GET")
}

fn has_field(head: &RequestHead, name: &str, wanted: &Wanted) -> bool {
    let mut values = head.headers().filter(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()));
    match wanted {
        Wanted::Present => values.next().is_some(),
        Wanted::Absent => values.next().is_none(),
        Wanted::Value(value) => values.any(|(_, found)| found == value.as_bytes()),
    }
}

fn has_query(conditions: &Conditions, head: &RequestHead) -> bool {
    let query = head.query_bytes().unwrap_or_default();
    let pairs: Vec<(String, String)> = serde_html_form::from_bytes(query).unwrap_or_default();
    conditions.query.iter().all(|(name, wanted)| {
        let mut values = pairs.iter().filter(|(found, _)| found == name);
        match wanted {
            Wanted::Present => values.next().is_some(),
            Wanted::Absent => values.next().is_none(),
            Wanted::Value(value) => values.any(|(_, found)| found == value),
        }
    })
}

/// A Unix socket has no address in a network.
fn is_client(conditions: &Conditions, client: &Address) -> bool {
    let Some(address) = client.ip().map(|address| address.ip().to_canonical()) else { return false };
    conditions.client.iter().any(|network| network.contains(&address))
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
