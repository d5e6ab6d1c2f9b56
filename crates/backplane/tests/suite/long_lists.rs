//! Lists of members that are longer than a reply, a request or a message: they are read and recorded in pieces.

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use tidegate_backplane::node::{Node, Output};
use tidegate_backplane::{Backplane, BackplaneBuilder, BrokerEvent, BrokerRequest, NodeLimits, RoomName};
use tidegate_engine::{NodeId, NodePresence};

use crate::faults::configured_nats;
use crate::members::{Member, Seen};
use crate::processes::{BrokerProcess, Kind};
use crate::redis_model::RedisModel;

fn names(length: usize) -> Vec<Bytes> {
    (0..100).map(|number| Bytes::from(format!("{number:>length$}"))).collect()
}

/// Enters rooms with names of so many bytes.
fn enter(backplane: &Backplane, rooms: usize, length: usize) -> Vec<Member> {
    let enter = |room| Member::enter_with_names(backplane, &format!("room {room}"), 0, names(length));
    (0..rooms).map(enter).collect()
}

/// Waits until each room has the members of a node, and the first `count` of their names.
fn wait_for(members: &[Member], node: &Backplane, (count, length): (usize, usize)) {
    for member in members {
        member.log.wait(|seen| seen.contains(&Seen::Elsewhere(node.id(), Some(1))));
        let elsewhere = member.log.elsewhere.lock().expect("no panic");
        assert_eq!(elsewhere[&node.id()], names(length)[..count]);
    }
}

fn with_names_of(builder: BackplaneBuilder, bytes_max: usize) -> Backplane {
    let mut limits = NodeLimits::default();
    limits.names_bytes_max = bytes_max;
    builder.limits(limits).spawn().expect("a thread")
}

/// A node with short replies reads lists which are longer together, in one room and in several.
fn reads_in_pages(address: &str) {
    const ROOMS: usize = 8;
    let client = || tidegate_redis::Client::to(address).expect("an address");
    let nodes: Vec<_> = (0..12).map(|_| with_names_of(Backplane::redis_client(client()), 64 << 10)).collect();
    let members: Vec<_> = nodes.iter().map(|node| enter(node, ROOMS, 100)).collect();
    // Longer than a list may be.
    let long = with_names_of(Backplane::redis_client(client()), 64 << 10);
    let of_long = enter(&long, ROOMS, 400);
    for node in &nodes {
        wait_for(&of_long, node, (100, 100));
    }
    wait_for(&members[0], &long, (100, 400));
    let limits = tidegate_redis::ProtocolLimits { whole_bytes_max: 64 << 10, ..Default::default() };
    let short = Backplane::redis_client(client().protocol_limits(limits)).spawn().expect("a thread");
    let newcomers = enter(&short, ROOMS, 10);
    for node in &nodes {
        wait_for(&newcomers, node, (100, 100));
    }
    wait_for(&newcomers, &long, (0, 400));
    // Without its names the newcomer's list is longer than a list may be for it, but for none of the others.
    wait_for(&members[0], &short, (100, 10));
}

#[test]
fn lists_of_members_that_are_longer_than_a_reply_are_read_in_pages() {
    let model = RedisModel::default().serve();
    reads_in_pages(&model.address().to_string());
    let Some(redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    reads_in_pages(&format!("127.0.0.1:{}", redis.port));
}

#[test]
fn lists_that_are_longer_than_a_message_of_nats_have_the_names_that_fit() {
    const ROOMS: usize = 20;
    let Some(nats) = BrokerProcess::start(Kind::Nats, &[]) else { return };
    let node = |bytes_max| with_names_of(Backplane::at(&nats.url()).expect("an address"), bytes_max);
    let (north, south) = (node(2 << 20), node(16 << 10));
    // 1.5 MB; the first 512 KiB are sent.
    let [northern, southern] = [(&north, 15_000), (&south, 10)].map(|(node, length)| enter(node, ROOMS, length));
    wait_for(&southern, &north, (34, 15_000));
    wait_for(&northern, &south, (100, 10));
    // By reading alone.
    let newcomers = enter(&node(16 << 10), ROOMS, 10);
    wait_for(&newcomers, &north, (34, 15_000));
}

#[test]
fn a_nats_that_takes_short_messages_alone_has_the_counts_of_long_lists() {
    let Some((nats, file)) = configured_nats("payload", "max_payload: 8192\n") else { return };
    let node = || Backplane::at(&nats.url()).expect("an address").spawn().expect("a thread");
    let (north, south) = (node(), node());
    let [northern, southern] = [(&north, 150), (&south, 10)].map(|(node, length)| enter(node, 2, length));
    wait_for(&southern, &north, (0, 150));
    wait_for(&northern, &south, (100, 10));
    let newcomers = enter(&node(), 2, 10);
    wait_for(&newcomers, &north, (0, 150));
    drop(std::fs::remove_file(file));
}

#[test]
fn requests_of_long_lists_have_fewer_rooms_and_few_are_under_way() {
    const ROOMS: usize = 150;
    let (mut limits, mut now) = (NodeLimits::default(), Instant::now());
    limits.names_bytes_max = 1 << 20;
    let mut node = Node::new(NodeId([1; 16]), limits.clone());
    node.handle_event(BrokerEvent::Up, now);
    let all: Vec<RoomName> = (0..ROOMS).map(|number| format!("room {number}").into()).collect();
    for name in &all {
        node.attach(name, None, now);
        node.presence_changed(name, now);
    }
    let long: Vec<_> = (0..20).map(|_| Bytes::from(vec![b'x'; 60_000])).collect();
    // The window of changes, and the first renewal.
    for pause in [limits.presence_window, limits.lease] {
        now += pause;
        node.handle_timeout(now);
        let (mut recorded, mut under_way) = (HashMap::new(), Vec::new());
        loop {
            while let Some(output) = node.poll_output() {
                match output {
                    Output::Describe(rooms) => {
                        let members = |name: RoomName| (name, NodePresence { count: 20, names: long.clone() });
                        node.presence(rooms.into_iter().map(members).collect(), now);
                    }
                    Output::BrokerRequest(BrokerRequest::Presence { ticket, rooms, .. }) => {
                        let bytes: usize = rooms.iter().filter_map(|room| Some(room.list.as_ref()?.len())).sum();
                        assert!(bytes < 5 << 20, "{bytes}");
                        rooms.into_iter().for_each(|room| *recorded.entry(room.room).or_insert(0) += 1);
                        under_way.push(ticket);
                    }
                    _ => {}
                }
            }
            assert!(under_way.len() <= 2, "{under_way:?}");
            let Some(ticket) = under_way.pop() else { break };
            node.handle_event(BrokerEvent::Presence { ticket, leases: None }, now);
        }
        assert!(all.iter().all(|name| recorded[name] == 1), "{recorded:?}");
    }
}
