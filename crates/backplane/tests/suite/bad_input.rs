//! Messages and histories that no broker of ours has made, and brokers that do not answer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_backplane::node::{Node, Output};
use tidegate_backplane::{
    Backplane, BrokerEvent, BrokerRequest, History, HistoryBounds, HistoryEntry, Lease, MemoryBroker, NodeLimits,
    RoomName,
};
use tidegate_engine::{MessageForm, NodeId, NodePresence, Position, RoomMessage};

use crate::members::{Member, Seen};
use crate::processes::{BrokerProcess, Kind};

pub(crate) const BOUNDS: HistoryBounds = HistoryBounds { messages_max: 10, bytes_max: 1 << 16 };
pub(crate) const ROOM: &str = "tides";

/// A node with an ordered room, open at this offset, and nothing under way.
pub(crate) struct OpenNode {
    pub(crate) node: Node,
    pub(crate) now: Instant,
    limits: NodeLimits,
}

impl OpenNode {
    pub(crate) fn at(offset: u64) -> Self {
        let limits = NodeLimits::default();
        let mut open = Self { node: Node::new(NodeId([1; 16]), limits.clone()), now: Instant::now(), limits };
        open.node.handle_event(BrokerEvent::Up, open.now);
        open.node.attach(&ROOM.into(), Some(BOUNDS), open.now);
        open.node.handle_event(BrokerEvent::Subscribed(ROOM.into()), open.now);
        let ticket = open.read().expect("a read");
        open.answer(ticket, offset, &[]);
        assert!(open.outputs().iter().any(|output| matches!(output, Output::Opened(..))));
        open
    }

    pub(crate) fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.node.poll_output()).collect()
    }

    /// The ticket of the read that the node requests.
    pub(crate) fn read(&mut self) -> Option<u64> {
        self.outputs().into_iter().find_map(|output| match output {
            Output::BrokerRequest(BrokerRequest::ReadHistory { ticket, .. }) => Some(ticket),
            _ => None,
        })
    }

    pub(crate) fn answer(&mut self, ticket: u64, top: u64, offsets: &[u64]) {
        let entries = offsets.iter().map(|offset| HistoryEntry { offset: *offset, bytes: envelope(*offset) }).collect();
        let position = (top > 0).then_some(Position { epoch: 7, offset: top });
        let history = Some(History { position, entries, after: None });
        self.node.handle_event(BrokerEvent::History { ticket, history }, self.now);
    }

    pub(crate) fn receive(&mut self, offset: Option<u64>, bytes: Bytes) {
        let position = offset.map(|offset| Position { epoch: 7, offset });
        let event = BrokerEvent::Message { room: ROOM.into(), position, previous: None, bytes };
        self.node.handle_event(event, self.now);
    }

    pub(crate) fn delivered(&mut self) -> Vec<Option<u64>> {
        let offset = |output| match output {
            Output::Deliver(_, delivery) => Some(delivery.position.map(|position| position.offset)),
            Output::Gap(..) => Some(None),
            _ => None,
        };
        self.outputs().into_iter().filter_map(offset).collect()
    }
}

/// A message of another node.
pub(crate) fn envelope(number: u64) -> Bytes {
    let head = [&b"TG\x01\x00"[..], &[9; 16], &number.to_be_bytes()].concat();
    Bytes::from([head, format!("message {number}").into_bytes()].concat())
}

#[test]
fn a_foreign_publisher_is_counted_and_dropped() {
    let mut open = OpenNode::at(3);
    let other_version = {
        let mut bytes = envelope(4).to_vec();
        bytes[2] = 2;
        Bytes::from(bytes)
    };
    for bytes in [Bytes::new(), Bytes::from("TG"), Bytes::from("hello, world"), Bytes::from(vec![b'T'; 100_000])] {
        open.receive(None, bytes.clone());
        open.receive(Some(4), bytes);
    }
    // A message that is kept has a position.
    open.receive(None, envelope(4));
    open.receive(Some(4), other_version);
    let counts = open.node.counts();
    assert_eq!((counts.foreign, counts.other_versions, counts.delivered), (9, 1, 0));
    assert!(open.delivered().is_empty());
    // The room goes on with the message that follows, since these have no place in it.
    open.receive(Some(4), envelope(4));
    assert_eq!(open.delivered(), [Some(4)]);
}

#[test]
fn an_entry_of_a_history_that_no_node_has_sent_takes_its_place_and_is_left_out() {
    let mut open = OpenNode::at(3);
    open.receive(Some(6), envelope(6));
    let ticket = open.read().expect("a read");
    let entries = [(4, envelope(4)), (5, Bytes::from("foreign")), (6, envelope(6))];
    let entries = entries.into_iter().map(|(offset, bytes)| HistoryEntry { offset, bytes }).collect();
    let position = Some(Position { epoch: 7, offset: 6 });
    let history = Some(History { position, entries, after: None });
    open.node.handle_event(BrokerEvent::History { ticket, history }, open.now);
    assert_eq!(open.delivered(), [Some(4), Some(6)]);
    assert_eq!(open.node.counts().foreign, 1);
}

#[test]
fn an_offset_that_goes_back_or_comes_twice_is_dropped() {
    let mut open = OpenNode::at(3);
    for offset in [4, 4] {
        open.receive(Some(offset), envelope(offset));
    }
    assert_eq!(open.delivered(), [Some(4)]);
    open.receive(Some(2), envelope(2));
    // The history shows that the broker has not gone back.
    let ticket = open.read().expect("a read");
    open.receive(Some(0), envelope(0));
    open.answer(ticket, 4, &[4]);
    open.receive(Some(1), envelope(1));
    open.receive(Some(5), envelope(5));
    assert_eq!(open.delivered(), [Some(5)]);
    assert_eq!((open.node.counts().duplicates, open.node.counts().gaps), (3, 0));
}

/// A broker that has lost its last messages gives their offsets again, while the connection lasts: a master that was the replica
/// of another server for a while.
#[test]
fn a_message_in_the_place_of_one_that_was_delivered_is_read_and_is_a_gap() {
    for (replaced, top) in [(4, 4), (5, 5), (6, 6), (4, 6), (4, 9)] {
        let mut open = OpenNode::at(3);
        (4..=6).for_each(|offset| open.receive(Some(offset), envelope(offset)));
        assert_eq!(open.delivered(), [Some(4), Some(5), Some(6)]);
        open.receive(Some(replaced), envelope(100 + replaced));
        let ticket = open.read().expect("a read");
        let entries = (replaced..=top).map(|offset| HistoryEntry { offset, bytes: envelope(100 + offset) }).collect();
        let history = Some(History { position: Some(Position { epoch: 7, offset: top }), entries, after: None });
        open.node.handle_event(BrokerEvent::History { ticket, history }, open.now);
        open.receive(Some(top + 1), envelope(101 + top));
        assert_eq!(open.delivered(), [None, Some(top + 1)], "{replaced} to {top}");
    }
}

#[test]
fn a_message_that_the_history_had_arrives_late_and_is_not_read_again() {
    let mut open = OpenNode::at(3);
    open.receive(Some(5), envelope(5));
    let ticket = open.read().expect("a read");
    open.answer(ticket, 7, &[4, 5, 6, 7]);
    (5..=8).for_each(|offset| open.receive(Some(offset), envelope(offset)));
    assert!(open.read().is_none());
    assert_eq!(open.node.counts().duplicates, 3);
}

#[test]
fn an_offset_that_jumps_is_read_once_and_not_believed() {
    for offset in [3 + (1 << 60), u64::MAX, 1000] {
        let mut open = OpenNode::at(3);
        open.receive(Some(offset), envelope(offset));
        let ticket = open.read().expect("the history shows that it is none");
        open.answer(ticket, 3, &[3]);
        assert!(open.delivered().is_empty());
        assert_eq!(open.node.counts().impossible, 1);
        open.receive(Some(4), envelope(4));
        assert_eq!(open.delivered(), [Some(4)]);
        assert_eq!(open.node.counts().gaps, 0);
    }
}

#[test]
fn a_history_that_is_trimmed_while_it_is_read_is_a_gap_of_known_size() {
    let mut open = OpenNode::at(3);
    open.receive(Some(9), envelope(9));
    let ticket = open.read().expect("a read");
    // Other messages arrive while it is under way.
    open.receive(Some(10), envelope(10));
    open.answer(ticket, 9, &[8, 9]);
    assert_eq!(open.delivered(), [None, Some(8), Some(9), Some(10)]);
    let counts = open.node.counts();
    assert_eq!((counts.gaps, counts.lost, counts.recovered), (1, 4, 2));
}

#[test]
fn a_history_that_begins_behind_the_last_message_is_a_gap_since_the_broker_may_have_gone_back() {
    let mut open = OpenNode::at(0);
    open.receive(Some(1), envelope(1));
    open.receive(Some(4), envelope(4));
    let ticket = open.read().expect("a read");
    // Another message may have been 1 before it was removed.
    open.answer(ticket, 4, &[2, 3, 4]);
    assert_eq!(open.delivered(), [None, Some(2), Some(3), Some(4)]);
    assert_eq!((open.node.counts().delivered, open.node.counts().lost), (4, 0));
}

#[test]
fn histories_of_any_shape_do_no_harm() {
    for (top, offsets) in
        [(0, &[][..]), (u64::MAX, &[u64::MAX]), (5, &[9, 10]), (9, &[9, 4, 9]), (2, &[0, 1, 2]), (u64::MAX, &[0])]
    {
        let mut open = OpenNode::at(3);
        open.receive(Some(8), envelope(8));
        let ticket = open.read().expect("a read");
        open.answer(ticket, top, offsets);
        open.receive(Some(u64::MAX), envelope(1));
        open.outputs();
        open.node.handle_event(BrokerEvent::Overflow, open.now);
        open.outputs();
    }
}

#[test]
fn events_for_tickets_that_are_none_do_no_harm() {
    let mut open = OpenNode::at(3);
    for ticket in [0, 1, 7, u64::MAX] {
        open.node.handle_event(BrokerEvent::Published { ticket, is_confirmed: true }, open.now);
        open.answer(ticket, 9, &[9]);
        open.node.handle_event(BrokerEvent::Presence { ticket, leases: Some(vec![Vec::new(); 3]) }, open.now);
    }
    assert!(open.delivered().is_empty());
}

#[test]
fn a_name_with_every_character_is_a_room_and_a_longer_one_is_refused() {
    let every: String = (0..=0x7f_u8).map(char::from).chain("½€🌊".chars()).collect();
    let long = every.repeat(600).chars().take(60_000).collect::<String>();
    let longest = "x".repeat(64 << 10);
    let redis = BrokerProcess::start(Kind::Redis, &[]);
    let builders = redis.iter().map(|redis| Backplane::at(&redis.url()).expect("an address"));
    for builder in [Backplane::memory(&MemoryBroker::new())].into_iter().chain(builders) {
        let node = builder.spawn().expect("a thread");
        for name in [&every, &long, &longest] {
            let member = Member::enter(&node, name, 5);
            assert!(member.publish("ebb"));
            member.log.wait_for("ebb");
        }
        refuses_a_longer_name(&node);
    }
}

#[test]
fn a_name_on_nats_has_a_thousand_bytes_at_most() {
    let Some(nats) = BrokerProcess::start(Kind::Nats, &[]) else { return };
    let node = Backplane::at(&nats.url()).expect("an address").spawn().expect("a thread");
    let every: String = (0..=0x7f_u8).map(char::from).chain("½€🌊".chars()).collect();
    // Each of its bytes takes three of the subject.
    let longest = "*".repeat(1000);
    for name in [&every, &longest, &String::new()] {
        for history in [0, 5] {
            let member = Member::enter(&node, name, history);
            assert!(member.publish("ebb"));
            member.log.wait_for("ebb");
            member.leave();
            crate::members::until("the room is gone", || node.counts().rooms == 0);
        }
    }
    let too_long = Member::enter_at_once(&node, &"x".repeat(1001), 5);
    assert!(!too_long.publish("ebb"));
    assert_eq!((node.counts().refused, node.counts().rooms), (1, 0));
}

fn refuses_a_longer_name(node: &Backplane) {
    let too_long = Member::enter_at_once(node, &"x".repeat((64 << 10) + 1), 5);
    assert!(!too_long.publish("ebb"));
    assert_eq!(node.counts().refused, 1);
    assert_eq!(node.counts().rooms, 3);
    assert!(!too_long.log.seen().contains(&Seen::Opened));
}

#[test]
fn messages_to_a_million_rooms_without_members_are_bounded_and_leave_nothing_behind() {
    const ROOMS: u64 = 1_000_000;
    let now = Instant::now();
    let mut node = Node::new(NodeId([1; 16]), NodeLimits::default());
    let mut refused = 0;
    for number in 0..ROOMS {
        let message = RoomMessage { bytes: Bytes::from("ebb"), form: MessageForm::Plain, is_announcement: false };
        let name: RoomName = format!("invented {number}").into();
        refused += u64::from(node.publish(&name, None, message, now).is_err());
    }
    // A broker that never answers gets so many requests, and not more.
    assert_eq!(refused, ROOMS - NodeLimits::default().queued_messages_max as u64);
    while let Some(output) = node.poll_output() {
        let Output::BrokerRequest(BrokerRequest::Publish { ticket, .. }) = output else { panic!("{output:?}") };
        node.handle_event(BrokerEvent::Published { ticket, is_confirmed: true }, now);
    }
    assert_eq!(node.counts().queued_messages, 0);
    assert_eq!(node.poll_timeout(), None);
    assert!(format!("{node:?}").contains("rooms: {}"), "no room is left");
}

#[test]
fn rooms_that_come_and_go_leave_nothing_behind() {
    let mut now = Instant::now();
    let mut node = Node::new(NodeId([1; 16]), NodeLimits::default());
    for number in 0..10_000 {
        let name: RoomName = format!("invented {number}").into();
        node.attach(&name, Some(BOUNDS), now);
        node.detach(&name, now);
    }
    now += Duration::from_secs(2);
    node.handle_timeout(now);
    let mut subscribed = 0_i32;
    while let Some(output) = node.poll_output() {
        match output {
            Output::Closing(name) => node.close(&name),
            Output::BrokerRequest(BrokerRequest::Subscribe(_)) => subscribed += 1,
            Output::BrokerRequest(BrokerRequest::Unsubscribe(_)) => subscribed -= 1,
            _ => {}
        }
    }
    assert_eq!((subscribed, node.counts().rooms), (0, 0));
    assert!(format!("{node:?}").contains("rooms: {}"), "no room is left");
}

#[test]
fn members_of_invented_nodes_are_bounded() {
    let mut open = OpenNode::at(0);
    let nodes_max = open.limits.nodes_max;
    for number in 0..(nodes_max as u128 + 500) {
        let list = [&1_u64.to_be_bytes()[..], &u64::MAX.to_be_bytes()].concat();
        let head = [&b"TG\x01\x04"[..], &(number + 1000).to_be_bytes(), &[0; 8]].concat();
        open.receive(None, Bytes::from([head, list].concat()));
    }
    let known = |output: &Output| matches!(output, Output::NodePresence(_, _, Some(_)));
    assert_eq!(open.outputs().iter().filter(|output| known(output)).count(), nodes_max);
}

#[test]
fn a_lease_that_lasts_for_ever_ends_with_the_next_read_that_does_not_name_it() {
    let mut open = OpenNode::at(0);
    let describe = |open: &mut OpenNode| {
        let members = NodePresence { count: 1, names: Vec::new() };
        open.node.presence(vec![(ROOM.into(), members)], open.now);
        open.outputs().into_iter().find_map(|output| match output {
            Output::BrokerRequest(BrokerRequest::Presence { ticket, .. }) => Some(ticket),
            _ => None,
        })
    };
    let ticket = describe(&mut open).expect("a request");
    // The clock of its broker, or of its node, is a day ahead.
    let day = Duration::from_secs(24 * 3600);
    let list = Bytes::from([&1_u64.to_be_bytes()[..], &3_u64.to_be_bytes()].concat());
    let lease = Lease { node: NodeId([5; 16]), left: day, list };
    open.node.handle_event(BrokerEvent::Presence { ticket, leases: Some(vec![vec![lease]]) }, open.now);
    assert!(matches!(open.outputs()[..], [Output::NodePresence(_, _, Some(_))]));
    open.now += open.limits.lease / 3;
    open.node.handle_timeout(open.now);
    open.outputs();
    let ticket = describe(&mut open).expect("a request");
    open.now += Duration::from_millis(1);
    open.node.handle_event(BrokerEvent::Presence { ticket, leases: Some(vec![Vec::new()]) }, open.now);
    assert!(matches!(open.outputs()[..], [Output::NodePresence(_, _, None)]));
}

#[test]
fn two_nodes_with_the_same_number_deliver_each_message_once() {
    let broker = MemoryBroker::new();
    let node = || Backplane::memory(&broker).id(NodeId([7; 16])).spawn().expect("a thread");
    let members = [(); 2].map(|()| Member::enter(&node(), ROOM, 100));
    for number in 0..20 {
        members.iter().enumerate().for_each(|(place, member)| assert!(member.publish(&format!("{place} {number}"))));
    }
    for member in &members {
        member.log.wait_for("0 19");
        member.log.wait_for("1 19");
        assert_eq!(member.log.texts().len(), 40);
    }
    assert_eq!(members[0].log.texts(), members[1].log.texts());
}

#[test]
fn a_broker_that_accepts_and_never_answers_is_not_up_and_bounds_what_waits() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    for scheme in ["redis", "nats"] {
        let mut limits = NodeLimits::default();
        limits.queued_messages_max = 10;
        let builder = Backplane::at(&format!("{scheme}://127.0.0.1:{port}")).expect("an address");
        let node = builder.limits(limits).spawn().expect("a thread");
        let member = Member::enter_at_once(&node, ROOM, 5);
        let taken = (0..100).filter(|number| member.publish(&number.to_string())).count();
        assert!(taken <= 10, "{taken}");
        let (stream, _) = listener.accept().expect("it connects");
        assert!(!node.is_up());
        assert!(member.log.seen().is_empty());
        drop(stream);
    }
}
