//! `Member`: a room of one node that keeps all that it is given, and the checker over the logs of several.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_backplane::Backplane;
use tidegate_engine::{
    Backplane as _, BackplaneRoom, MessageForm, NodeId, NodePresence, Position, RoomDelivery, RoomLimits, RoomMessage,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Opened,
    Message(Option<Position>, String),
    Gap,
    Connected(bool),
    Elsewhere(NodeId, Option<usize>),
}

/// Waits until the condition holds, with a bound against hanging.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const PATIENCE: Duration = Duration::from_secs(120);

/// The events of a room on a node.
#[derive(Default)]
pub(crate) struct Log {
    seen: Mutex<Vec<Seen>>,
    changed: Condvar,
    /// Members of this node.
    pub(crate) count: AtomicUsize,
    /// Names of these.
    pub(crate) names: Mutex<Vec<Bytes>>,
    /// The names that other nodes have sent last.
    pub(crate) elsewhere: Mutex<HashMap<NodeId, Vec<Bytes>>>,
    /// While a test has it, this node's loop delivers nothing, and so does nothing else.
    pub(crate) gate: Mutex<()>,
}

impl Log {
    fn add(&self, event: Seen) {
        self.seen.lock().expect("no panic").push(event);
        self.changed.notify_all();
    }

    fn add_delivery(&self, delivery: &RoomDelivery) {
        let text = String::from_utf8_lossy(&delivery.message.bytes).into_owned();
        self.add(Seen::Message(delivery.position, text));
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic").clone()
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        let text = |event| if let Seen::Message(_, text) = event { Some(text) } else { None };
        self.seen().into_iter().filter_map(text).collect()
    }

    /// Waits until the events are so, with a bound against hanging.
    pub(crate) fn wait(&self, are_so: impl Fn(&[Seen]) -> bool) {
        let seen = self.seen.lock().expect("no panic");
        let wait = self.changed.wait_timeout_while(seen, PATIENCE, |seen| !are_so(seen));
        let (seen, result) = wait.expect("no panic");
        let last = seen.len().saturating_sub(10);
        assert!(!result.timed_out(), "it ends with {:?}", &seen[last..]);
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.seen().iter().any(|event| matches!(event, Seen::Message(_, seen) if seen == text))
    }

    pub(crate) fn wait_for(&self, text: &str) {
        self.wait(|seen| seen.iter().any(|event| matches!(event, Seen::Message(_, seen) if seen == text)));
    }
}

impl BackplaneRoom for Log {
    fn opened(&self, _: Option<Position>, messages: Vec<RoomDelivery>) {
        messages.iter().for_each(|message| self.add_delivery(message));
        self.add(Seen::Opened);
    }

    fn deliver(&self, delivery: RoomDelivery) -> bool {
        drop(self.gate.lock());
        self.add_delivery(&delivery);
        true
    }

    fn gap(&self, _: Option<Position>) {
        self.add(Seen::Gap);
    }

    fn connected(&self, is_connected: bool) {
        self.add(Seen::Connected(is_connected));
    }

    fn presence(&self, names_max: usize) -> NodePresence {
        let names = self.names.lock().expect("no panic").iter().take(names_max).cloned().collect();
        NodePresence { count: self.count.load(Ordering::Relaxed), names }
    }

    fn node_presence(&self, node: NodeId, presence: Option<NodePresence>) {
        let names = presence.as_ref().map(|presence| presence.names.clone()).unwrap_or_default();
        self.elsewhere.lock().expect("no panic").insert(node, names);
        self.add(Seen::Elsewhere(node, presence.map(|presence| presence.count)));
    }

    fn try_close(&self) -> bool {
        true
    }
}

/// A room on a node.
pub(crate) struct Member {
    pub(crate) backplane: Backplane,
    pub(crate) log: Arc<Log>,
    name: Arc<str>,
    limits: RoomLimits,
}

pub(crate) fn limits(history_max: usize) -> RoomLimits {
    let mut limits = RoomLimits::default();
    (limits.history_max, limits.history_bytes_max) = (history_max, 1 << 20);
    limits
}

impl Member {
    /// Enters a room, and waits until it is open.
    pub(crate) fn enter(backplane: &Backplane, name: &str, history_max: usize) -> Self {
        let member = Self::enter_at_once(backplane, name, history_max);
        member.log.wait(|seen| seen.contains(&Seen::Opened));
        member
    }

    pub(crate) fn enter_at_once(backplane: &Backplane, name: &str, history_max: usize) -> Self {
        Self::enter_with_names(backplane, name, history_max, Vec::new())
    }

    /// Enters a room with one member on this node, and names of more.
    pub(crate) fn enter_with_names(backplane: &Backplane, name: &str, history_max: usize, names: Vec<Bytes>) -> Self {
        let log = Arc::new(Log { count: AtomicUsize::new(1), names: Mutex::new(names), ..Log::default() });
        let (name, limits): (Arc<str>, _) = (name.into(), limits(history_max));
        backplane.attach(&name, &limits, log.clone());
        backplane.presence_changed(&name);
        Self { backplane: backplane.clone(), log, name, limits }
    }

    pub(crate) fn publish(&self, text: &str) -> bool {
        self.publish_message(text, false)
    }

    pub(crate) fn announce(&self, text: &str) -> bool {
        self.publish_message(text, true)
    }

    fn publish_message(&self, text: &str, is_announcement: bool) -> bool {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        self.publish_room_message(RoomMessage { bytes, form: MessageForm::Plain, is_announcement })
    }

    pub(crate) fn publish_room_message(&self, message: RoomMessage) -> bool {
        self.backplane.publish(&self.name, &self.limits, message).is_ok()
    }

    /// Members have entered or left.
    pub(crate) fn changed(&self) {
        self.backplane.presence_changed(&self.name);
    }

    pub(crate) fn leave(&self) {
        self.backplane.detach(&self.name);
    }
}

/// Checks that all logs have one order, without duplicates, and with holes only where a gap is. Only a broker that has gone
/// back may give one position twice.
pub(crate) fn check(logs: &[Vec<Seen>], has_gone_back: bool) {
    let mut all = BTreeMap::new();
    for event in logs.iter().flatten() {
        if let Seen::Message(Some(Position { epoch, offset }), text) = event {
            let before = all.entry((*epoch, *offset)).or_insert(text);
            assert!(has_gone_back || *before == text, "two messages are {offset}: {before} and {text}");
        }
    }
    for (number, log) in logs.iter().enumerate() {
        let (mut last, mut texts) = (None, HashSet::new());
        for event in log {
            match event {
                Seen::Message(Some(Position { epoch, offset }), text) => {
                    assert!(texts.insert(text), "member {number} has {text} twice");
                    if let Some((last_epoch, last_offset)) = last {
                        assert_eq!(last_epoch, *epoch, "member {number}: another epoch without a gap");
                        assert!(last_offset < *offset, "member {number}: {offset} after {last_offset}");
                        let missing: Vec<_> = all.range((*epoch, last_offset + 1)..(*epoch, *offset)).collect();
                        assert!(missing.is_empty(), "member {number} misses {missing:?}");
                    }
                    last = Some((*epoch, *offset));
                }
                Seen::Gap => last = None,
                _ => {}
            }
        }
    }
}
