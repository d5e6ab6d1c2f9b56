//! Kicks that a node has missed: the broker remembers them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_backplane::node::{Node, Output};
use tidegate_backplane::{Backplane, BrokerEvent, BrokerRequest, NodeLimits};
use tidegate_engine::{Kick, MessageForm, NodeId, NodePresence, RoomMessage};
use tidegate_redis::slot_of;

use crate::brokers::with_each_broker;
use crate::members::{Member, until};
use crate::processes::{BrokerProcess, Kind};

const ROOM: &str = "tides";
/// A code whose two bytes are text.
const KICK: Kick<'static> = Kick { code: 4096, reason: "late" };
/// The bytes of the kick, as a member's log has them.
pub(crate) const LOGGED: &str = "\u{10}\0late";

/// A kick of the node with this number.
pub(crate) fn kick_of(origin: u8, number: u64) -> Bytes {
    let head = [&b"TG\x01\x08"[..], &[origin; 16], &number.to_be_bytes()].concat();
    Bytes::from([&head[..], &KICK.to_bytes()].concat())
}

/// A node with members in a room, which entered 5 seconds ago, and a presence request under way.
struct Kicked {
    node: Node,
    now: Instant,
    ticket: u64,
}

impl Kicked {
    fn new() -> Self {
        let mut now = Instant::now();
        let mut node = Node::new(NodeId([1; 16]), NodeLimits::default());
        node.handle_event(BrokerEvent::Up, now);
        node.attach(&ROOM.into(), None, now);
        node.handle_event(BrokerEvent::Subscribed(ROOM.into()), now);
        now += Duration::from_secs(5);
        let mut kicked = Self { node, now, ticket: 0 };
        kicked.request();
        kicked
    }

    /// Requests presence once more.
    fn request(&mut self) {
        self.node.presence(vec![(ROOM.into(), NodePresence { count: 1, names: Vec::new() })], self.now);
        while let Some(output) = self.node.poll_output() {
            if let Output::BrokerRequest(BrokerRequest::Presence { ticket, .. }) = output {
                self.ticket = ticket;
            }
        }
    }

    /// The broker reports this kick. Returns how often members are closed.
    fn remembered(&mut self, age: Duration, bytes: Bytes) -> usize {
        self.remembered_at(self.now, age, bytes)
    }

    /// It had this age at another time.
    fn remembered_at(&mut self, read_at: Instant, age: Duration, bytes: Bytes) -> usize {
        let event = BrokerEvent::Kick { ticket: self.ticket, room: ROOM.into(), age, read_at, bytes };
        self.node.handle_event(event, self.now);
        self.closed()
    }

    fn received(&mut self, bytes: Bytes) -> usize {
        let event = BrokerEvent::Message { room: ROOM.into(), position: None, previous: None, bytes };
        self.node.handle_event(event, self.now);
        self.closed()
    }

    fn closed(&mut self) -> usize {
        let outputs = std::iter::from_fn(|| self.node.poll_output());
        outputs.filter(|output| matches!(output, Output::Deliver(..))).count()
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// A reply of the broker that takes longer is late.
const KICK_DELAY_MAX: Duration = Duration::from_millis(100);

#[test]
fn a_missed_kick_closes_members_once() {
    let mut kicked = Kicked::new();
    assert_eq!(kicked.remembered(SECOND, kick_of(9, 7)), 1);
    assert_eq!(kicked.node.counts().late_kicks, 1);
    assert_eq!(kicked.received(kick_of(9, 7)), 0, "the reply has overtaken the message");
    // The next renewal reports it again.
    kicked.now += 10 * SECOND;
    kicked.request();
    assert_eq!(kicked.remembered(11 * SECOND, kick_of(9, 7)), 0);
    // Another one follows it.
    kicked.now += 10 * SECOND;
    kicked.request();
    assert_eq!(kicked.remembered(3 * SECOND, kick_of(8, 1)), 1);
}

#[test]
fn a_kick_that_has_arrived_or_is_older_than_the_members_closes_nobody() {
    let mut kicked = Kicked::new();
    assert_eq!(kicked.remembered(6 * SECOND, kick_of(9, 7)), 0, "the members entered later");
    assert_eq!(kicked.remembered(SECOND, kick_of(1, 7)), 0, "its own members were closed then");
    assert_eq!(kicked.received(kick_of(9, 8)), 1);
    assert_eq!(kicked.remembered(Duration::ZERO, kick_of(9, 8)), 0, "it has arrived");
    assert_eq!(kicked.remembered(2 * SECOND, kick_of(8, 1)), 0, "a newer one has arrived");
    assert_eq!(kicked.node.counts().late_kicks, 0);
}

#[test]
fn a_kick_in_a_room_whose_members_have_left_closes_nobody_that_enters_later() {
    let mut kicked = Kicked::new();
    kicked.node.detach(&ROOM.into(), kicked.now);
    kicked.node.attach(&ROOM.into(), None, kicked.now);
    kicked.now += SECOND;
    kicked.request();
    assert_eq!(kicked.remembered(2 * SECOND, kick_of(9, 7)), 0);
    assert_eq!(kicked.remembered(SECOND / 2, kick_of(9, 8)), 1);
}

#[test]
fn a_kick_of_this_node_that_returns_late_hides_none_that_it_has_missed() {
    let mut kicked = Kicked::new();
    let kick = RoomMessage { bytes: KICK.to_bytes(), form: MessageForm::Kick, is_announcement: true };
    kicked.node.publish(&ROOM.into(), None, kick, kicked.now).expect("there is room");
    kicked.now += 5 * SECOND;
    assert_eq!(kicked.received(kick_of(1, 2)), 0, "its own members were closed then");
    kicked.request();
    assert_eq!(kicked.remembered(6 * SECOND, kick_of(9, 7)), 0, "the node's own kick is newer");
    assert_eq!(kicked.remembered(2 * SECOND, kick_of(9, 8)), 1, "the node's own kick is older");
}

#[test]
fn a_late_reply_closes_nobody_that_entered_after_the_kick() {
    let mut kicked = Kicked::new();
    let read_at = kicked.now;
    kicked.now += 10 * SECOND;
    assert_eq!(kicked.remembered_at(read_at, 6 * SECOND, kick_of(9, 7)), 0, "they entered five seconds before");
    assert_eq!(kicked.remembered_at(read_at, 4 * SECOND, kick_of(9, 8)), 1);
}

#[test]
fn a_clock_that_is_set_back_between_two_replies_makes_no_old_kick_a_missed_one() {
    let mut kicked = Kicked::new();
    assert_eq!(kicked.remembered(6 * SECOND, kick_of(9, 7)), 0, "the members entered later");
    kicked.now += 10 * SECOND;
    kicked.request();
    assert_eq!(kicked.remembered(SECOND, kick_of(9, 7)), 0, "it is the same one");
    assert_eq!(kicked.remembered(2 * SECOND, kick_of(9, 8)), 1, "another one is judged by its own age");
}

#[test]
fn a_second_kick_is_judged_once_as_well() {
    let mut kicked = Kicked::new();
    assert_eq!(kicked.received(kick_of(9, 7)), 1);
    kicked.now += 5 * SECOND;
    assert_eq!(kicked.remembered(6 * SECOND, kick_of(8, 1)), 0, "it is older than the one that has arrived");
    // The broker's clock is set back.
    kicked.now += 10 * SECOND;
    kicked.request();
    assert_eq!(kicked.remembered(SECOND, kick_of(8, 1)), 0, "it is the same one");
    assert_eq!(kicked.remembered(15 * SECOND, kick_of(9, 7)), 0, "this one has arrived");
    assert_eq!(kicked.remembered(SECOND, kick_of(8, 2)), 1, "another one is judged by its own age");
}

#[test]
fn redis_has_the_kick_before_its_message_arrives() {
    for history in [0, 10] {
        let Some(process) = BrokerProcess::start(Kind::Redis, &[]) else { return };
        let (north, south) = (node(&process), node(&process));
        let [north, south] = [&north, &south].map(|node| Member::enter(node, ROOM, history));
        kick(&north);
        south.log.wait_for(LOGGED);
        let length = process.command(&format!("STRLEN tidegate:{{.{ROOM}}}:k"));
        assert!(length.strip_prefix(':').is_some_and(|length| length != "0"), "{history}: {length}");
    }
}

#[test]
fn a_kick_of_a_clock_that_was_set_back_closes_nobody() {
    let Some(process) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    let south = node(&process);
    // It has read the server's clock before the member enters: the reply to the first presence request has come before the third
    // is sent.
    let _other = Member::enter(&south, "ebbs", 0);
    until("there are three presence requests", || south.counts().presence_requests >= 3);
    // It lasts a second, and Redis keeps it for ten minutes more.
    let bytes: String = kick_of(9, 7).iter().map(|byte| format!("\\x{byte:02x}")).collect();
    let set = format!("SET tidegate:{{.{ROOM}}}:k \"1000:{bytes}\" PX 600000");
    assert_eq!(process.command(&set), "+OK");
    let member = Member::enter(&south, ROOM, 10);
    let sent = south.counts().presence_requests;
    until("there are three more presence requests", || south.counts().presence_requests >= sent + 3);
    assert!(member.publish("welcome"));
    member.log.wait_for("welcome");
    assert_eq!((member.log.texts(), south.counts().late_kicks), (vec!["welcome".to_owned()], 0));
}

#[test]
fn remembered_bytes_that_are_no_kick_are_counted_and_dropped() {
    let mut kicked = Kicked::new();
    let message = Bytes::from([&b"TG\x01\x00"[..], &[9; 24], b"text"].concat());
    for bytes in [Bytes::new(), Bytes::from("TG"), Bytes::from("hello"), message] {
        assert_eq!(kicked.remembered(SECOND, bytes), 0);
    }
    assert_eq!(kicked.node.counts().foreign, 4);
    // A request that nobody has made.
    kicked.ticket += 1;
    assert_eq!(kicked.remembered(SECOND, kick_of(9, 7)), 0);
}

/// A node that renews its leases each second.
pub(crate) fn node(process: &BrokerProcess) -> Backplane {
    let mut limits = NodeLimits::default();
    limits.lease = 3 * SECOND;
    Backplane::at(&process.url()).expect("an address").limits(limits).spawn().expect("a thread")
}

#[test]
fn a_kick_whose_message_is_lost_reaches_the_members_with_the_next_renewal() {
    for kind in [Kind::Redis, Kind::Nats] {
        let Some(process) = BrokerProcess::start(kind, &[]) else { continue };
        let (north, south) = (node(&process), node(&process));
        let member = Member::enter(&south, ROOM, 10);
        // Once a kick has arrived, the broker has its stream for kicks.
        let others = [&north, &south].map(|node| Member::enter(node, "other", 10));
        kick(&others[0]);
        others[1].log.wait_for(LOGGED);
        let bytes = String::from_utf8(kick_of(9, 7).to_vec()).expect("its bytes are text");
        // The broker has the kick, and no node has the message.
        match kind {
            Kind::Redis => {
                let escaped: String = bytes.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
                let set = format!("SET tidegate:{{.{ROOM}}}:k \"600000:{escaped}\" PX 600000");
                assert_eq!(process.command(&set), "+OK");
            }
            Kind::Nats => process.publish_to_nats(&format!("tidegate.kick.{ROOM}"), "NATS/1.0\r\n\r\n", &bytes),
        }
        member.log.wait_for(LOGGED);
        // The kick in the other room may have come from the broker's memory, too. A member is closed before it is counted.
        until("the kick is counted", || south.counts().late_kicks > 0);
        assert_eq!(member.log.texts().len(), 1, "{kind:?}");
    }
}

/// A node in a cluster, which renews its leases each second.
fn node_of_cluster(masters: &[BrokerProcess]) -> Backplane {
    let mut limits = NodeLimits::default();
    limits.lease = 3 * SECOND;
    let servers: Vec<_> = masters.iter().map(|master| format!("127.0.0.1:{}", master.port)).collect();
    let address = format!("redis://{}", servers.join(","));
    Backplane::at(&address).expect("an address").limits(limits).spawn().expect("a thread")
}

#[test]
fn kicks_and_presence_reach_the_members_of_a_cluster() {
    let Some(masters) = BrokerProcess::start_redis_cluster() else { return };
    let (north, south) = (node_of_cluster(&masters), node_of_cluster(&masters));
    // Each of the rooms belongs to another server.
    let room_of = |master: usize| {
        let is_there = |room: &String| usize::from(slot_of(format!(".{room}").as_bytes())) / 5462 == master;
        (0..).map(|number| format!("room{number}")).find(is_there).expect("there are such rooms")
    };
    for history in [0, 10] {
        let rooms = [0, 1, 2].map(|master| format!("{}:{history}", room_of(master)));
        let members = rooms.each_ref().map(|room| [&north, &south].map(|node| Member::enter(node, room, history)));
        for [of_north, of_south] in &members {
            let id = south.id();
            of_north.log.wait(|seen| seen.contains(&crate::members::Seen::Elsewhere(id, Some(1))));
            kick(of_north);
            of_south.log.wait_for(LOGGED);
        }
    }
    // A kick without a message comes with the next renewal. The age of one is as exact as a reply is fast, so a slow reply dates it
    // before the member: then the next one counts.
    for master in [0, 1, 2] {
        let room = room_of(master);
        let (member, mut number) = (Member::enter(&south, &room, 10), 0);
        until("a remembered kick reaches the member", || {
            number += 1;
            let bytes: String = kick_of(9, number).iter().map(|byte| format!("\\x{byte:02x}")).collect();
            let set = format!("SET tidegate:{{.{room}}}:k \"600000:{bytes}\" PX 600000");
            assert_eq!(masters[master].command(&set), "+OK");
            member.log.has(LOGGED)
        });
    }
}

#[test]
fn a_kick_is_remembered_and_does_not_close_those_that_enter_later() {
    with_each_broker(|nodes| {
        let (north, south) = (Member::enter(&nodes.start(), ROOM, 10), Member::enter(&nodes.start(), ROOM, 10));
        kick(&north);
        south.log.wait_for(LOGGED);
        // The age of a kick is as exact as a reply is fast.
        std::thread::sleep(KICK_DELAY_MAX);
        let later = Member::enter(&nodes.start(), ROOM, 10);
        // Its presence request has read the remembered kick.
        later.log.wait(|seen| seen.iter().any(|event| matches!(event, crate::members::Seen::Elsewhere(..))));
        assert!(north.publish("welcome"));
        later.log.wait_for("welcome");
        assert_eq!(later.log.texts(), ["welcome"]);
    });
}

pub(crate) fn kick(member: &Member) {
    let message = RoomMessage { bytes: KICK.to_bytes(), form: MessageForm::Kick, is_announcement: true };
    assert!(member.publish_room_message(message));
}
