//! The work of a message, counted: linear in the nodes that have members, and flat in all else.

use std::collections::HashMap;
use std::time::Instant;

use tidegate_backplane::node::{Node, Output};
use tidegate_backplane::{BrokerEvent, BrokerRequest, History, HistoryBounds, NodeLimits, RoomName};
use tidegate_engine::{MessageForm, NodeId, NodePresence, Position, RoomMessage};
use tidegate_testkit::allocations::Region;

use crate::simulation::{Simulation, Size};

/// Requests to the broker, and messages of the broker, for a hundred messages of one room.
fn work(nodes: usize, with_members: usize, rooms: usize) -> (u64, u64) {
    let mut simulation = Simulation::new(7, Size { nodes, rooms, messages: 0, members: 0, has_faults: false });
    for node in 0..with_members {
        (0..rooms).for_each(|number| simulation.attach(node, &format!("room {number}").into()));
    }
    simulation.pass(5000);
    let before = (simulation.requests, simulation.sent);
    for _ in 0..100 {
        simulation.publish(0, &"room 0".into());
        // Each message is a request of its own.
        simulation.pass(20);
    }
    (simulation.requests - before.0, simulation.sent - before.1)
}

#[test]
fn a_message_costs_one_request_and_one_message_for_each_node_with_members() {
    for (nodes, with_members, rooms) in [(2, 2, 1), (10, 10, 1), (50, 50, 1), (50, 10, 1), (10, 10, 100)] {
        let (requests, sent) = work(nodes, with_members, rooms);
        println!("| {nodes} | {with_members} | {rooms} | {requests} | {sent} |");
        // And the confirmation of each request.
        assert_eq!((requests, sent), (100, 100 * (with_members as u64 + 1)));
    }
}

/// Gives the node's requests to a broker that has one message in each room.
fn answer(node: &mut Node, now: Instant) {
    while let Some(output) = node.poll_output() {
        let Output::BrokerRequest(request) = output else { continue };
        let event = match request {
            BrokerRequest::Subscribe(room) => BrokerEvent::Subscribed(room),
            BrokerRequest::ReadHistory { ticket, .. } => {
                let position = Some(Position { epoch: 7, offset: 1 });
                BrokerEvent::History { ticket, history: Some(History { position, ..History::default() }) }
            }
            BrokerRequest::Publish { ticket, .. } => BrokerEvent::Published { ticket, is_confirmed: true },
            BrokerRequest::Presence { ticket, .. } => BrokerEvent::Presence { ticket, leases: None },
            _ => continue,
        };
        node.handle_event(event, now);
    }
}

#[test]
fn few_presence_requests_are_under_way_at_a_time() {
    const ROOMS: usize = 5_000;
    let mut now = Instant::now();
    let limits = NodeLimits::default();
    let mut node = Node::new(NodeId([1; 16]), limits.clone());
    node.handle_event(BrokerEvent::Up, now);
    for number in 0..ROOMS {
        let name = format!("room {number}").into();
        node.attach(&name, None, now);
        node.presence_changed(&name, now);
    }
    // The window of changes, and the first renewal.
    for pause in [limits.presence_window, limits.lease] {
        now += pause;
        node.handle_timeout(now);
        let (mut recorded, mut under_way) = (0, Vec::new());
        loop {
            while let Some(output) = node.poll_output() {
                match output {
                    Output::Describe(rooms) => {
                        let members = |name: RoomName| (name, NodePresence { count: 1, names: Vec::new() });
                        node.presence(rooms.into_iter().map(members).collect(), now);
                    }
                    Output::BrokerRequest(BrokerRequest::Presence { ticket, rooms, .. }) => {
                        recorded += rooms.len();
                        under_way.push(ticket);
                    }
                    _ => {}
                }
            }
            assert!(under_way.len() <= 2, "{under_way:?}");
            let Some(ticket) = under_way.pop() else { break };
            node.handle_event(BrokerEvent::Presence { ticket, leases: None }, now);
        }
        assert_eq!(recorded, ROOMS);
    }
    assert_eq!(node.counts().presence_requests, 2 * ROOMS as u64 / 100);
}

#[test]
fn changes_and_a_renewal_go_on_side_by_side_with_a_slow_broker() {
    const ROOMS: usize = 1_000;
    let mut now = Instant::now();
    let limits = NodeLimits::default();
    let mut node = Node::new(NodeId([1; 16]), limits.clone());
    node.handle_event(BrokerEvent::Up, now);
    let names: Vec<RoomName> = (0..ROOMS).map(|number| format!("room {number}").into()).collect();
    names.iter().for_each(|name| node.attach(name, None, now));
    let mut recorded_at: HashMap<_, _> = names.iter().map(|name| (name.clone(), now)).collect();
    let mut under_way = Vec::new();
    // In each window more rooms change than the broker records. Half of the rooms never change.
    for _ in 0..4 * limits.lease.as_millis() / limits.presence_window.as_millis() {
        names[..ROOMS / 2].iter().for_each(|name| node.presence_changed(name, now));
        now += limits.presence_window;
        node.handle_timeout(now);
        for ticket in under_way.drain(..) {
            node.handle_event(BrokerEvent::Presence { ticket, leases: None }, now);
        }
        while let Some(output) = node.poll_output() {
            match output {
                Output::Describe(rooms) => {
                    let members = |name: RoomName| (name, NodePresence { count: 1, names: Vec::new() });
                    node.presence(rooms.into_iter().map(members).collect(), now);
                }
                Output::BrokerRequest(BrokerRequest::Presence { ticket, rooms, .. }) => {
                    under_way.push(ticket);
                    for room in rooms {
                        let lasted = now - recorded_at.insert(room.room.clone(), now).expect("a room");
                        assert!(lasted < limits.lease, "the lease of {} has ended", room.room);
                    }
                }
                _ => {}
            }
        }
    }
    let oldest = recorded_at.values().min().expect("rooms");
    assert!(now - *oldest < limits.lease, "{:?}", now - *oldest);
}

#[test]
fn a_room_takes_at_most_250_bytes_of_a_node_beside_its_name() {
    const ROOMS: usize = 7_000;
    let now = Instant::now();
    let names: Vec<RoomName> = (0..ROOMS).map(|number| format!("room {number}").into()).collect();
    let bounds = Some(HistoryBounds { messages_max: 10, bytes_max: 1 << 16 });
    let mut node = Node::new(NodeId([1; 16]), NodeLimits::default());
    let region = Region::new();
    node.handle_event(BrokerEvent::Up, now);
    for name in &names {
        node.attach(name, bounds, now);
        node.presence_changed(name, now);
        answer(&mut node, now);
        let message = RoomMessage { bytes: "ebb".into(), form: MessageForm::Plain, is_announcement: false };
        node.publish(name, bounds, message, now).expect("there is room");
        answer(&mut node, now);
    }
    let members = |name: &RoomName| (name.clone(), NodePresence { count: 1, names: Vec::new() });
    node.presence(names.iter().map(members).collect(), now);
    answer(&mut node, now);
    let each = region.change().bytes_in_use() as usize / ROOMS;
    println!("a room takes {each} bytes of a node");
    assert!(each <= 250, "{each}");
}

#[test]
fn a_broker_that_comes_and_goes_leaves_no_reads_behind() {
    let mut limits = NodeLimits::default();
    limits.reads_max = 1;
    let now = Instant::now();
    let names: Vec<RoomName> = (0..10).map(|number| format!("room {number}").into()).collect();
    let mut node = Node::new(NodeId([1; 16]), limits);
    names.iter().for_each(|name| node.attach(name, Some(HistoryBounds { messages_max: 10, bytes_max: 1 << 16 }), now));
    let mut come_and_go = |times| {
        for _ in 0..times {
            node.handle_event(BrokerEvent::Up, now);
            names.iter().for_each(|name| node.handle_event(BrokerEvent::Subscribed(name.clone()), now));
            node.handle_event(BrokerEvent::Down, now);
            // The first read is never answered.
            while node.poll_output().is_some() {}
        }
    };
    come_and_go(10);
    let region = Region::new();
    come_and_go(1_000);
    let more = region.change().bytes_in_use();
    assert!(more < 10_000, "{more}");
}
