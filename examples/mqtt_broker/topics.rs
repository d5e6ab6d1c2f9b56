//! Topic filters: a tree with a node for each level, and the comparison of one filter with one topic (MQTT 3.1.1 §4.7).

use std::collections::HashMap;
use std::sync::Arc;

/// A level of topic filters. The codec bounds the levels, and with them the depth of the recursion.
#[derive(Default)]
pub(crate) struct FilterNode {
    levels: HashMap<Box<str>, FilterNode>,
    /// The clients whose filter ends here, with its QoS.
    subscribers: HashMap<Arc<str>, u8>,
}

impl FilterNode {
    pub(crate) fn insert(&mut self, filter: &str, client: Arc<str>, qos: u8) {
        let mut node = self;
        for level in filter.split('/') {
            node = node.levels.entry(level.into()).or_default();
        }
        node.subscribers.insert(client, qos);
    }

    pub(crate) fn remove(&mut self, filter: &str, client: &str) {
        self.remove_next(&mut filter.split('/'), client);
    }

    fn remove_next(&mut self, levels: &mut std::str::Split<'_, char>, client: &str) {
        let Some(level) = levels.next() else {
            self.subscribers.remove(client);
            return;
        };
        if let Some(node) = self.levels.get_mut(level) {
            node.remove_next(levels, client);
            if node.levels.is_empty() && node.subscribers.is_empty() {
                self.levels.remove(level);
            }
        }
    }

    /// The clients whose filters match, each with the highest QoS of its filters.
    pub(crate) fn find(&self, topic: &str) -> HashMap<&str, u8> {
        let (levels, mut found) = (topic.split('/').collect::<Vec<_>>(), HashMap::new());
        self.find_levels(&levels, topic.starts_with('$'), &mut found);
        found
    }

    /// A wildcard on the first level does not match a topic that begins with `$`.
    fn find_levels<'a>(&'a self, levels: &[&str], is_internal: bool, found: &mut HashMap<&'a str, u8>) {
        if !is_internal && let Some(node) = self.levels.get("#") {
            node.add_to(found);
        }
        let [first, rest @ ..] = levels else {
            self.add_to(found);
            return;
        };
        if let Some(node) = self.levels.get(*first) {
            node.find_levels(rest, false, found);
        }
        if !is_internal && let Some(node) = self.levels.get("+") {
            node.find_levels(rest, false, found);
        }
    }

    fn add_to<'a>(&'a self, found: &mut HashMap<&'a str, u8>) {
        for (client, qos) in &self.subscribers {
            let highest = found.entry(client).or_insert(*qos);
            *highest = (*highest).max(*qos);
        }
    }
}

/// Whether a topic filter matches a topic.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['#', '+']) {
        return false;
    }
    let mut topic = topic.split('/');
    for level in filter.split('/') {
        match (level, topic.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (level, Some(other)) if level == other => {}
            _ => return false,
        }
    }
    topic.next().is_none()
}
