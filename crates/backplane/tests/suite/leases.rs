//! Leases: how long a node counts the members of another one that it does not hear of any more.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_backplane::node::{Node, Output};
use tidegate_backplane::{BrokerEvent, NodeLimits};
use tidegate_engine::{NodeId, NodePresence};

const ROOM: &str = "tides";

/// The message of the node with this number that it has so many members.
fn list_of(origin: u8, number: u64, members: u64) -> BrokerEvent {
    let head = [&b"TG\x01\x04"[..], &[origin; 16], &number.to_be_bytes()].concat();
    let list = [number.to_be_bytes(), members.to_be_bytes()].concat();
    let bytes = Bytes::from([head, list].concat());
    BrokerEvent::Message { room: ROOM.into(), position: None, previous: None, bytes }
}

/// When the node reports that each other node has no members any more, from now on.
fn ends(node: &mut Node, until: Instant) -> Vec<(u8, Instant)> {
    let mut ends = Vec::new();
    while let Some(now) = node.poll_timeout().filter(|at| *at <= until) {
        node.handle_timeout(now);
        while let Some(output) = node.poll_output() {
            if let Output::NodePresence(_, id, None) = output {
                ends.push((id.0[0], now));
            }
        }
    }
    ends
}

#[test]
fn members_of_a_node_that_has_died_are_counted_for_its_lease_and_not_until_the_next_renewal() {
    let begin = Instant::now();
    let mut node = Node::new(NodeId([1; 16]), NodeLimits::default());
    node.handle_event(BrokerEvent::Up, begin);
    node.attach(&ROOM.into(), None, begin);
    node.handle_event(BrokerEvent::Subscribed(ROOM.into()), begin);
    let (lease, window) = (NodeLimits::default().lease, NodeLimits::default().presence_window);
    // Renewals are at 10, 20 and 30 seconds.
    let heard = [(2, 1), (3, 4), (4, 9)].map(|(origin, second)| (origin, begin + Duration::from_secs(second)));
    for (origin, at) in heard {
        assert_eq!(ends(&mut node, at), []);
        node.handle_event(list_of(origin, 1, 5), at);
    }
    // The same list once more, as of a broker whose clock was set back, makes no lease longer.
    let again = begin + Duration::from_secs(20);
    assert_eq!(ends(&mut node, again), []);
    node.handle_event(list_of(2, 1, 5), again);
    let ended = ends(&mut node, begin + 3 * lease);
    assert_eq!(ended.iter().map(|(origin, _)| *origin).collect::<Vec<_>>(), [2, 3, 4]);
    for ((_, at), (_, heard_at)) in ended.iter().zip(heard) {
        let counted = *at - heard_at;
        assert!((lease..=lease + 2 * window).contains(&counted), "{counted:?}");
    }
}

#[test]
fn a_node_may_have_the_longest_times() {
    let mut limits = NodeLimits::default();
    for time in [&mut limits.linger, &mut limits.presence_window, &mut limits.lease, &mut limits.kick_lease] {
        *time = Duration::MAX;
    }
    let now = Instant::now();
    let mut node = Node::new(NodeId([1; 16]), limits);
    node.handle_event(BrokerEvent::Up, now);
    node.attach(&ROOM.into(), None, now);
    node.handle_event(BrokerEvent::Subscribed(ROOM.into()), now);
    node.presence(vec![(ROOM.into(), NodePresence { count: 1, names: Vec::new() })], now);
    node.presence_changed(&ROOM.into(), now);
    node.handle_event(list_of(9, 1, 3), now);
    node.detach(&ROOM.into(), now);
    assert!(node.poll_timeout().is_some_and(|at| at > now + Duration::from_secs(1 << 29)));
}
