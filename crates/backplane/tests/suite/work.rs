//! The work of a message, counted: linear in the nodes that have members, and flat in all else.

use crate::simulation::{Simulation, Size};

/// Requests to the broker, and messages of the broker, for a hundred messages of one room.
fn work(nodes: usize, with_members: usize, rooms: usize) -> (u64, u64) {
    let mut simulation = Simulation::new(7, Size { nodes, rooms, messages: 0, has_faults: false });
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
