//! Brokers that are connected and refuse something: subscriptions, reads, messages; and those that cannot be reached.

use std::time::{Duration, Instant};

use tidegate_backplane::node::{Node, Output};
use tidegate_backplane::{Backplane, BackplaneFault, BrokerEvent, NodeLimits, RoomName};
use tidegate_engine::NodeId;
use tidegate_testkit::ClosedPort;

use crate::bad_input::{BOUNDS, OpenNode, ROOM, envelope};
use crate::members::{Member, Seen, check, until};
use crate::processes::{BrokerProcess, Kind};

fn refused(room: &str) -> BrokerEvent {
    BrokerEvent::Refused { room: room.into(), reason: "no permission".into() }
}

/// The events of rooms among the outputs.
fn room_events(outputs: Vec<Output>) -> Vec<&'static str> {
    let event = |output| match output {
        Output::Opened(..) => Some("opened"),
        Output::Connected(_, true) => Some("up"),
        Output::Connected(_, false) => Some("down"),
        Output::Gap(..) => Some("gap"),
        Output::Deliver(..) => Some("message"),
        _ => None,
    };
    outputs.into_iter().filter_map(event).collect()
}

#[test]
fn a_room_whose_subscription_is_refused_is_down_until_it_is_subscribed() {
    let mut open = OpenNode::at(3);
    open.node.handle_event(refused(ROOM), open.now);
    open.node.handle_event(refused(ROOM), open.now);
    assert_eq!(room_events(open.outputs()), ["down"]);
    let counts = open.node.counts();
    assert_eq!((counts.refused_subscriptions, counts.refused_rooms), (2, 1));
    open.receive(Some(4), envelope(4));
    open.node.handle_event(BrokerEvent::Subscribed(ROOM.into()), open.now);
    let ticket = open.read().expect("a read");
    open.answer(ticket, 5, &[4, 5]);
    assert_eq!(room_events(open.outputs()), ["message", "message", "up"]);
    assert_eq!(open.node.counts().refused_rooms, 0);
}

#[test]
fn a_room_that_is_refused_before_it_is_open_opens_without_messages_and_is_down() {
    for (history, then) in [(None, ["gap", "up"].as_slice()), (Some(BOUNDS), &["message", "up"])] {
        let mut open = OpenNode::at(0);
        let late: RoomName = "late".into();
        open.node.attach(&late, history, open.now);
        open.node.handle_event(refused(&late), open.now);
        assert_eq!(room_events(open.outputs()), ["opened", "down"]);
        open.node.handle_event(BrokerEvent::Subscribed(late.clone()), open.now);
        if let Some(ticket) = open.read() {
            open.answer(ticket, 1, &[1]);
            assert_eq!(room_events(open.outputs()), then);
        } else {
            assert!(history.is_none());
        }
        // Nothing is counted of a room that is gone.
        open.node.handle_event(refused(&late), open.now);
        open.node.detach(&late, open.now);
        open.node.close(&late);
        assert_eq!(open.node.counts().refused_rooms, 0);
        open.node.handle_event(refused(&late), open.now);
        assert_eq!(open.node.counts().refused_rooms, 0);
    }
}

#[test]
fn a_lost_connection_ends_all_refusals() {
    let mut open = OpenNode::at(3);
    open.node.handle_event(refused(ROOM), open.now);
    open.node.handle_event(BrokerEvent::Down, open.now);
    assert_eq!((open.node.counts().refused_rooms, room_events(open.outputs())), (0, vec!["down"]));
}

/// A broker may refuse all reads: a user of Redis without scripts.
#[test]
fn a_history_that_cannot_be_read_is_read_again_less_often_and_members_learn_of_it() {
    let mut open = OpenNode::at(3);
    let late: RoomName = "late".into();
    open.node.attach(&late, Some(BOUNDS), open.now);
    open.node.handle_event(BrokerEvent::Subscribed(late), open.now);
    let (mut pauses, mut events) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        let ticket = open.read().expect("a read");
        open.node.handle_event(BrokerEvent::History { ticket, history: None }, open.now);
        let began = open.now;
        let mut outputs = open.outputs();
        while !outputs.iter().any(|output| format!("{output:?}").contains("ReadHistory")) {
            open.now = open.node.poll_timeout().expect("it is tried again");
            open.node.handle_timeout(open.now);
            outputs.extend(open.outputs());
        }
        pauses.push((open.now - began).as_millis());
        let ticket = outputs.iter().find_map(|output| match output {
            Output::BrokerRequest(tidegate_backplane::BrokerRequest::ReadHistory { ticket, .. }) => Some(*ticket),
            _ => None,
        });
        events.extend(room_events(outputs));
        open.node.handle_event(BrokerEvent::Down, open.now);
        open.outputs();
        open.node.handle_event(BrokerEvent::History { ticket: ticket.expect("a read"), history: None }, open.now);
        open.node.handle_event(BrokerEvent::Subscribed("late".into()), open.now);
    }
    assert_eq!(pauses, [200, 400, 800, 1600, 1600, 1600, 1600]);
    assert_eq!(events[..2], ["opened", "down"]);
    assert_eq!(open.node.counts().failed_reads, 14);
}

#[test]
fn a_room_that_is_entered_and_left_again_and_again_has_one_timer() {
    let (mut now, mut node) = (Instant::now(), Node::new(NodeId([1; 16]), NodeLimits::default()));
    let room: RoomName = ROOM.into();
    for _ in 0..1000 {
        node.attach(&room, None, now);
        now += Duration::from_micros(100);
        node.detach(&room, now);
    }
    assert_eq!(format!("{node:?}").matches("Close(").count(), 1);
    let is_closing =
        |node: &mut Node| std::iter::from_fn(|| node.poll_output()).any(|output| matches!(output, Output::Closing(_)));
    // A second after the last member has left, and not before.
    node.handle_timeout(now + Duration::from_millis(999));
    assert!(!is_closing(&mut node));
    node.handle_timeout(now + Duration::from_millis(1000));
    assert!(is_closing(&mut node));
    node.close(&room);
    assert_eq!(format!("{node:?}").matches("Close(").count(), 0);
}

pub(crate) fn node(url: &str) -> Backplane {
    Backplane::at(url).expect("an address").spawn().expect("a thread")
}

pub(crate) fn has_fault(node: &Backplane, text: &str) -> bool {
    node.fault().is_some_and(|fault| fault.to_string().contains(text))
}

#[test]
fn a_redis_that_becomes_a_replica_is_a_fault_until_it_takes_messages_again() {
    let (Some(redis), Some(other)) = (BrokerProcess::start(Kind::Redis, &[]), BrokerProcess::start(Kind::Redis, &[]))
    else {
        return;
    };
    let node = node(&redis.url());
    let member = Member::enter(&node, ROOM, 10);
    until("the broker is connected", || node.fault().is_none());
    assert_eq!(redis.command(&format!("REPLICAOF 127.0.0.1 {}", other.port)), "+OK");
    assert!(member.publish("refused"));
    until("the refusal is seen", || has_fault(&node, "the broker refuses messages: the server answers: READONLY"));
    assert!(node.is_up() && node.counts().is_refusing);
    // Nothing is published: the node asks by itself.
    assert_eq!(redis.command("REPLICAOF NO ONE"), "+OK");
    until("the broker takes messages again", || node.fault().is_none());
    assert!(member.publish("taken"));
    member.log.wait_for("taken");
    assert!(!member.log.has("refused") && !node.counts().is_refusing);
}

#[test]
fn a_redis_without_memory_and_a_user_without_scripts_are_faults() {
    let Some(redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    let node = node(&redis.url());
    let member = Member::enter(&node, ROOM, 10);
    for (begin, end, reason) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OOM"),
        ("ACL SETUSER default -evalsha -eval", "ACL SETUSER default +evalsha +eval", "NOPERM"),
        ("ACL SETUSER default resetkeys ~other", "ACL SETUSER default ~*", "NOPERM"),
    ] {
        assert_eq!(redis.command(begin), "+OK", "{begin}");
        until("a message is refused", || {
            let _ = member.publish(begin);
            has_fault(&node, reason)
        });
        assert_eq!(redis.command(end), "+OK", "{end}");
        until("messages are taken again", || node.fault().is_none());
        assert!(member.publish(end));
        member.log.wait_for(end);
    }
}

#[test]
fn a_broker_that_cannot_be_reached_is_a_fault_with_its_reason() {
    let closed = ClosedPort::tcp();
    for scheme in ["redis", "nats"] {
        let node = node(&format!("{scheme}://{}", closed.address()));
        assert!(matches!(node.fault(), Some(BackplaneFault::NotConnected(_))));
        until("the reason is there", || has_fault(&node, "the broker is not connected: "));
        until("the reason is known", || has_fault(&node, "refused"));
        node.close();
    }
    let Some(redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    assert_eq!(redis.command("CONFIG SET requirepass ebb"), "+OK");
    let without = node(&redis.url());
    until("the password is missing", || has_fault(&without, "NOAUTH"));
    let right = node(&format!("redis://:ebb@127.0.0.1:{}", redis.port));
    until("the right one is taken", || right.fault().is_none());
    let Some(nats) = BrokerProcess::start(Kind::Nats, &["--user", "ebb", "--pass", "flow"]) else { return };
    let without = node(&nats.url());
    until("the password is missing", || has_fault(&without, "Authorization Violation"));
}

#[test]
fn a_history_that_is_longer_than_a_reply_is_read_in_pages_and_a_message_that_is_too_long_is_a_gap() {
    let Some(redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    let short_replies = || {
        let limits = tidegate_redis::ProtocolLimits { whole_bytes_max: 64 << 10, ..Default::default() };
        let client = tidegate_redis::Client::to(&format!("127.0.0.1:{}", redis.port)).expect("an address");
        Backplane::redis_client(client.protocol_limits(limits)).spawn().expect("a thread")
    };
    let publisher = Member::enter(&node(&redis.url()), ROOM, 1000);
    let texts: Vec<_> = (0..300).map(|number| format!("{number} {}", "x".repeat(number * 7))).collect();
    texts.iter().for_each(|text| assert!(publisher.publish(text)));
    publisher.log.wait_for(&texts[299]);
    let newcomer = Member::enter(&short_replies(), ROOM, 1000);
    assert_eq!(newcomer.log.texts(), texts);
    assert_eq!(newcomer.backplane.counts().failed_reads, 0);
    // Its subscriber cannot take a longer message: it connects again, and reads the others.
    assert!(publisher.publish(&"long".repeat(20_000)));
    assert!(publisher.publish("behind"));
    newcomer.log.wait_for("behind");
    newcomer.log.wait(|seen| seen.last() == Some(&Seen::Connected(true)));
    let logs = [publisher.log.seen(), newcomer.log.seen()];
    check(&logs, false);
    assert_eq!(logs[1].iter().filter(|event| **event == Seen::Gap).count(), 1);
    assert_eq!(newcomer.log.texts().len(), 301);
}

/// A server of NATS with a configuration, and its file.
pub(crate) fn configured_nats(name: &str, config: &str) -> Option<(BrokerProcess, std::path::PathBuf)> {
    let file = std::env::temp_dir().join(format!("tidegate-{name}-{}.conf", std::process::id()));
    std::fs::write(&file, config).expect("a file");
    let process = BrokerProcess::start(Kind::Nats, &["-c", file.to_str().expect("a path")])?;
    Some((process, file))
}

#[test]
fn rooms_beyond_the_subscriptions_that_nats_allows_are_down_until_there_is_room() {
    let Some((nats, file)) = configured_nats("subscriptions", "max_subscriptions: 4\n") else { return };
    let node = node(&nats.url());
    let members: Vec<_> = (0..6).map(|number| Member::enter_at_once(&node, &format!("room {number}"), 0)).collect();
    members.iter().for_each(|member| member.log.wait(|seen| seen.contains(&Seen::Opened)));
    until("some are refused", || node.counts().refused_rooms > 0);
    until("a node that has rooms is ready", || node.is_up() && node.fault().is_none());
    let refused = |member: &&Member| member.log.seen().contains(&Seen::Connected(false));
    let last = members.iter().rev().find(refused).expect("a member of a refused room knows it");
    members.iter().filter(|member| !std::ptr::eq(*member, last)).for_each(Member::leave);
    last.log.wait(|seen| seen.ends_with(&[Seen::Gap, Seen::Connected(true)]));
    assert!(last.publish("ebb"));
    last.log.wait_for("ebb");
    until("no room is refused", || node.counts().refused_rooms == 0);
    drop(std::fs::remove_file(file));
}

#[test]
fn a_room_that_a_user_of_nats_may_not_have_is_down_until_the_user_may() {
    let config = |denied: &str| {
        format!(
            "authorization {{ users = [{{ user: ebb, password: flow, permissions: {{ publish: \">\", subscribe: {{ deny: \
             \"{denied}\" }} }} }}] }}\n"
        )
    };
    let Some((nats, file)) = configured_nats("permissions", &config("tidegate.room.secret")) else { return };
    let node = node(&format!("nats://ebb:flow@127.0.0.1:{}", nats.port));
    let [allowed, secret] = ["tides", "secret"].map(|name| Member::enter(&node, name, 0));
    secret.log.wait(|seen| seen.contains(&Seen::Connected(false)));
    assert!(secret.publish("missed") && allowed.publish("ebb"));
    allowed.log.wait_for("ebb");
    assert!(node.counts().refused_subscriptions > 0 && !secret.log.has("missed"));
    std::fs::write(&file, config("other")).expect("a file");
    nats.signal("HUP");
    secret.log.wait(|seen| seen.ends_with(&[Seen::Gap, Seen::Connected(true)]));
    assert!(secret.publish("flood"));
    secret.log.wait_for("flood");
    assert!(!secret.log.has("missed"));
    drop(std::fs::remove_file(file));
}

#[test]
fn a_room_that_a_user_of_redis_may_not_have_is_down_until_the_user_may() {
    let Some(redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    assert_eq!(redis.command("ACL SETUSER default resetchannels &tidegate:{.tides} &tidegate:{.storms}"), "+OK");
    let node = node(&redis.url());
    let [allowed, secret, other] = ["tides", "secret", "storms"].map(|name| Member::enter(&node, name, 0));
    secret.log.wait(|seen| seen.contains(&Seen::Connected(false)));
    // Publishing in it is refused as well, which is no reason for the node to take no clients.
    assert!(secret.publish("missed") && allowed.publish("ebb") && other.publish("gale"));
    allowed.log.wait_for("ebb");
    other.log.wait_for("gale");
    assert_eq!((node.counts().refused_rooms, node.counts().downs, node.fault()), (1, 0, None));
    assert_eq!(redis.command("ACL SETUSER default allchannels"), "+OK");
    secret.log.wait(|seen| seen.ends_with(&[Seen::Gap, Seen::Connected(true)]));
    assert!(secret.publish("flood"));
    secret.log.wait_for("flood");
    assert!(!secret.log.has("missed") && !allowed.log.seen().contains(&Seen::Connected(false)));
    assert_eq!((node.counts().refused_rooms, node.counts().downs), (0, 0));
}
