//! The contract of a broker: the same tests with each of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_backplane::{Backplane, BackplaneBuilder, MemoryBroker};

use crate::members::{Member, Seen, check, until};
use crate::processes::{BrokerProcess, Kind};
use crate::redis_model::RedisModel;

/// Nodes of a broker.
pub(crate) struct Nodes<'a>(&'a dyn Fn() -> BackplaneBuilder);

impl Nodes<'_> {
    pub(crate) fn start(&self) -> Backplane {
        (self.0)().spawn().expect("a thread")
    }
}

pub(crate) fn with_each_broker(test: impl Fn(Nodes<'_>)) {
    let memory = MemoryBroker::new();
    test(Nodes(&|| Backplane::memory(&memory)));
    println!("with the model of Redis");
    let model = RedisModel::default().serve();
    test(Nodes(&|| Backplane::redis(&format!("redis://{}", model.address())).expect("an address")));
    drop(model);
    for kind in [Kind::Redis, Kind::Nats] {
        let Some(process) = BrokerProcess::start(kind, &[]) else { continue };
        println!("with {kind:?}");
        test(Nodes(&|| Backplane::at(&process.url()).expect("an address")));
    }
}

#[test]
fn members_of_three_nodes_have_one_order() {
    with_each_broker(|nodes| {
        let members = [(); 3].map(|()| Member::enter(&nodes.start(), "tides", 1000));
        for number in 0..100 {
            for (place, member) in members.iter().enumerate() {
                assert!(member.publish(&format!("{place} says {number}")));
            }
        }
        let messages = |seen: &[Seen]| seen.iter().filter(|event| matches!(event, Seen::Message(..))).count();
        members.iter().for_each(|member| member.log.wait(|seen| messages(seen) == 300));
        let logs = members.each_ref().map(|member| member.log.seen());
        check(&logs, false);
        assert_eq!(members[0].log.texts(), members[1].log.texts());
        assert_eq!(members[0].log.texts(), members[2].log.texts());
        // Each sender's messages are in its order.
        let texts = members[0].log.texts();
        let own: Vec<_> = texts.iter().filter(|text| text.starts_with("1 says")).cloned().collect();
        assert_eq!(own, (0..100).map(|number| format!("1 says {number}")).collect::<Vec<_>>());
        let counts = members[0].backplane.counts();
        assert_eq!((counts.gaps, counts.lost, counts.unconfirmed), (0, 0, 0), "{counts:?}");
    });
}

#[test]
fn a_newcomer_gets_the_last_messages_and_no_announcement() {
    with_each_broker(|nodes| {
        // Two rooms: where offsets are shared, theirs are not dense.
        let (north, south) = (nodes.start(), nodes.start());
        let (tides, winds) = (Member::enter(&north, "tides", 5), Member::enter(&south, "winds 7.*>", 5));
        for number in 0..12 {
            assert!(tides.publish(&format!("tide {number}")) && winds.publish(&format!("wind {number}")));
            assert!(tides.announce(&format!("announced {number}")));
        }
        tides.log.wait_for("announced 11");
        winds.log.wait_for("wind 11");
        let order: Vec<_> = (0..12).flat_map(|at| [format!("tide {at}"), format!("announced {at}")]).collect();
        assert_eq!(tides.log.texts(), order);
        for (name, word) in [("tides", "tide"), ("winds 7.*>", "wind")] {
            let newcomer = Member::enter(&nodes.start(), name, 5);
            assert_eq!(newcomer.log.texts(), (7..12).map(|at| format!("{word} {at}")).collect::<Vec<_>>());
            assert_eq!(newcomer.backplane.counts().history_reads, 1);
        }
    });
}

#[test]
fn a_room_without_history_delivers_and_keeps_nothing() {
    with_each_broker(|nodes| {
        let members = [(); 2].map(|()| Member::enter(&nodes.start(), "tides", 0));
        (0..20).for_each(|number| assert!(members[0].publish(&number.to_string())));
        let wanted: Vec<_> = (0..20).map(|number: i32| number.to_string()).collect();
        for member in &members {
            member.log.wait_for("19");
            assert_eq!(member.log.texts(), wanted);
        }
        assert!(Member::enter(&nodes.start(), "tides", 0).log.texts().is_empty());
    });
}

#[test]
fn a_room_that_was_left_is_unsubscribed_and_opens_again_with_its_history() {
    with_each_broker(|nodes| {
        let (north, south) = (nodes.start(), nodes.start());
        let tides = Member::enter(&north, "tides", 10);
        assert!(tides.publish("ebb"));
        tides.log.wait_for("ebb");
        tides.leave();
        until("the room is gone", || north.counts().rooms == 0);
        let other = Member::enter(&south, "tides", 10);
        assert!(other.publish("flood"));
        other.log.wait_for("flood");
        assert!(!tides.log.has("flood"));
        assert_eq!(Member::enter(&north, "tides", 10).log.texts(), ["ebb", "flood"]);
    });
}

#[test]
fn members_of_other_nodes_are_counted_and_those_that_leave_are_not() {
    with_each_broker(|nodes| {
        let (north, south) = (nodes.start(), nodes.start());
        let tides = Member::enter(&north, "tides", 10);
        let other = Member::enter(&south, "tides", 10);
        let has = |member: &Member, of: &Backplane, count| {
            let id = of.id();
            member.log.wait(|seen| seen.contains(&Seen::Elsewhere(id, count)));
        };
        has(&tides, &south, Some(1));
        has(&other, &north, Some(1));
        // A node that comes later learns of both by reading.
        let third = Member::enter(&nodes.start(), "tides", 10);
        has(&third, &north, Some(1));
        has(&third, &south, Some(1));
        other.leave();
        // A room without members has none to name.
        other.log.count.store(0, Ordering::Relaxed);
        other.changed();
        has(&tides, &south, None);
        has(&third, &south, None);
    });
}

#[test]
fn a_node_that_has_died_leaves_its_members_no_longer_than_their_lease() {
    with_each_broker(|nodes| {
        let short = || {
            let mut limits = tidegate_backplane::NodeLimits::default();
            (limits.lease, limits.presence_window) = (Duration::from_millis(1500), Duration::from_millis(20));
            (nodes.0)().limits(limits).spawn().expect("a thread")
        };
        let (north, south) = (short(), short());
        let tides = Member::enter(&north, "tides", 10);
        let other = Member::enter(&south, "tides", 10);
        let id = south.id();
        tides.log.wait(|seen| seen.contains(&Seen::Elsewhere(id, Some(1))));
        south.close();
        tides.log.wait(|seen| seen.contains(&Seen::Elsewhere(id, None)));
        drop(other);
    });
}
