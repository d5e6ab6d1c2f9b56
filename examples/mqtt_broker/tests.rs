//! Tests without a network, and the self-check.

use std::time::Duration;

use tidegate_testkit::{Embedded, contract};

use crate::connect_packet;
use crate::connection::{CONNECT_TIMEOUT, Connection};
use crate::packet::Mqtt;
use crate::sessions::{Post, Sessions};
use crate::topics::matches;

fn open(sessions: &Sessions) -> Embedded<Post> {
    Embedded::new(Mqtt::default(), Connection::new(sessions.clone()))
}

/// A client with a clean session.
fn connect(sessions: &Sessions, name: &[u8]) -> Embedded<Post> {
    let mut pipe = open(sessions);
    pipe.receive(&connect_packet(true, 10, name));
    assert_eq!(pipe.take_written(), b"\x20\x02\x00\x00");
    pipe
}

/// Publishes to the topic `a/b`, with QoS 1.
fn publish(pipe: &mut Embedded<Post>, text: &[u8; 2]) {
    pipe.receive(&[b"\x32\x09\x00\x03a/b\x00\x07", &text[..]].concat());
    assert_eq!(pipe.take_written(), b"\x40\x02\x00\x07");
}

#[test]
fn it_checks_itself() {
    crate::check().unwrap();
}

#[test]
fn a_subscriber_with_a_wildcard_gets_a_message_once() {
    let sessions = Sessions::default();
    let (mut gull, mut tern) = (connect(&sessions, b"gull"), connect(&sessions, b"tern"));
    gull.receive(b"\x82\x0d\x00\x01\x00\x03a/+\x01\x00\x02a/\x00");
    assert_eq!(gull.take_written(), b"\x90\x04\x00\x01\x01\x00");
    gull.receive(b"\x82\x06\x00\x02\x00\x01#\x00");
    gull.take_written();
    publish(&mut tern, b"hi");
    gull.run();
    assert_eq!(gull.take_written(), b"\x32\x09\x00\x03a/b\x00\x01hi");
    gull.receive(b"\xa2\x0a\x00\x03\x00\x03a/+\x00\x01#");
    assert_eq!(gull.take_written(), b"\xb0\x02\x00\x03");
    publish(&mut tern, b"no");
    gull.run();
    assert_eq!(gull.take_written(), b"");
}

#[test]
fn an_unacknowledged_message_comes_again_with_its_identifier() {
    let sessions = Sessions::default();
    let mut tern = connect(&sessions, b"tern");
    let mut gull = open(&sessions);
    gull.receive(&connect_packet(false, 0, b"gull"));
    gull.receive(b"\x82\x08\x00\x01\x00\x03a/b\x01");
    gull.take_written();
    publish(&mut tern, b"hi");
    gull.run();
    assert_eq!(gull.take_written(), b"\x32\x09\x00\x03a/b\x00\x01hi");
    gull.reset();
    publish(&mut tern, b"ho");

    let mut gull = open(&sessions);
    gull.receive(&connect_packet(false, 0, b"gull"));
    let repeated = b"\x20\x02\x01\x00\x3a\x09\x00\x03a/b\x00\x01hi\x32\x09\x00\x03a/b\x00\x02ho";
    assert_eq!(gull.take_written(), repeated);

    // The client comes back before its connection has ended, with one message acknowledged.
    gull.receive(b"\x40\x02\x00\x01");
    let mut other = open(&sessions);
    other.receive(&connect_packet(false, 0, b"gull"));
    assert_eq!(other.take_written(), b"\x20\x02\x01\x00\x3a\x09\x00\x03a/b\x00\x02ho");
    gull.run();
    assert!(gull.is_write_closed());
    publish(&mut tern, b"he");
    other.run();
    assert_eq!(other.take_written(), b"\x32\x09\x00\x03a/b\x00\x03he");
}

#[test]
fn a_slow_subscriber_has_a_bounded_backlog_and_delays_no_publisher() {
    let sessions = Sessions::default();
    let (mut gull, mut tern) = (connect(&sessions, b"gull"), connect(&sessions, b"tern"));
    gull.receive(b"\x82\x08\x00\x01\x00\x03a/b\x01");
    gull.take_written();
    gull.limit_peer_reads(0);
    for _ in 0..10_000 {
        publish(&mut tern, b"hi");
        gull.run();
    }
    gull.limit_peer_reads(usize::MAX);
    gull.run();
    // As many as may be in flight; the others wait for acknowledgements.
    assert_eq!(gull.take_written().len(), 32 * 11);
    gull.receive(b"\x40\x02\x00\x01");
    assert_eq!(gull.take_written().len(), 11);
}

#[test]
fn retained_messages_and_wills_reach_subscribers() {
    let sessions = Sessions::default();
    let mut tern = connect(&sessions, b"tern");
    tern.receive(b"\x31\x07\x00\x03a/bhi");
    let mut gull = connect(&sessions, b"gull");
    gull.receive(b"\x82\x06\x00\x01\x00\x01#\x01");
    assert_eq!(gull.take_written(), b"\x90\x03\x00\x01\x01\x31\x07\x00\x03a/bhi");
    let mut auk = open(&sessions);
    auk.receive(b"\x10\x16\x00\x04MQTT\x04\x06\x00\x00\x00\x03auk\x00\x01w\x00\x02ex");
    assert_eq!(auk.take_written(), b"\x20\x02\x00\x00");
    auk.reset();
    gull.run();
    assert_eq!(gull.take_written(), b"\x30\x05\x00\x01wex");
}

#[test]
fn a_silent_client_is_closed_after_one_and_a_half_keep_alives() {
    let sessions = Sessions::default();
    let mut pipe = connect(&sessions, b"gull");
    pipe.advance(Duration::from_secs(14));
    assert!(!pipe.is_write_closed());
    pipe.receive(b"\xc0\x00");
    assert_eq!(pipe.take_written(), b"\xd0\x00");
    pipe.advance(Duration::from_secs(15));
    assert!(pipe.is_write_closed());
    pipe.receive_fin();
    assert_eq!(sessions.len(), 0);

    let mut pipe = open(&sessions);
    pipe.advance(CONNECT_TIMEOUT);
    assert!(pipe.is_write_closed(), "no CONNECT has come");
}

#[test]
fn invalid_packets_end_the_connection() {
    let connect = connect_packet(true, 10, b"gull");
    let wires: [&[u8]; 6] = [
        b"\xc0\x00",                       // before CONNECT
        b"\x82\x06\x00\x01\x00\x01a\x03",  // QoS 3
        b"\x82\x07\x00\x01\x00\x02a#\x00", // a wildcard that is no level
        b"\x30\x05\x00\x03a/#",            // a wildcard in a topic
        b"\x34\x07\x00\x03a/b\x00\x01",    // QoS 2
        b"\x30\x03\x00\x01\xff",           // not UTF-8
    ];
    for (index, wire) in wires.into_iter().enumerate() {
        let mut pipe = open(&Sessions::default());
        if index > 0 {
            pipe.receive(&connect);
        }
        pipe.receive(wire);
        assert!(pipe.is_write_closed(), "{wire:?}");
    }
    let mut pipe = open(&Sessions::default());
    pipe.receive(b"\x10\x0f\x00\x06MQIsdp\x03\x02\x00\x00\x00\x01a");
    assert_eq!(pipe.take_written(), b"\x20\x02\x00\x01", "MQTT 3.1");
}

#[test]
fn the_codec_keeps_the_contract_of_codecs() {
    let mut wire = connect_packet(true, 10, b"gull");
    wire.extend(b"\x82\x08\x00\x01\x00\x03a/+\x01\x32\x09\x00\x03a/b\x00\x07hi\x40\x02\x00\x01\xc0\x00\xe0\x00");
    assert_eq!(contract::check(Mqtt::default, &wire).messages.len(), 6);
    contract::never_panics(Mqtt::default, &wire, 300);
    contract::refuses_before_allocating(Mqtt::default, b"\x10\xff\xff\xff\x7f");
}

#[test]
fn filters_match_as_in_the_specification() {
    for (filter, topic, wanted) in [
        ("sport/tennis/player1/#", "sport/tennis/player1", true),
        ("sport/#", "sport", true),
        ("sport/tennis/+", "sport/tennis/player1/ranking", false),
        ("sport/+", "sport", false),
        ("sport/+", "sport/", true),
        ("+/+", "/finance", true),
        ("/+", "/finance", true),
        ("+", "/finance", false),
        ("#", "$SYS/load", false),
        ("$SYS/#", "$SYS/load", true),
    ] {
        assert_eq!(matches(filter, topic), wanted, "{filter} {topic}");
        let mut root = crate::topics::FilterNode::default();
        root.insert(filter, "gull".into(), 1);
        assert_eq!(root.find(topic).contains_key("gull"), wanted, "{filter} {topic}");
    }
}
