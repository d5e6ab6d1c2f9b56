//! Streams of NATS that refuse messages, or cannot be created: the node is not ready until they take messages again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::faults::{configured_nats, has_fault, node};
use crate::kicks::kick;
use crate::late_streams::call;
use crate::members::{Member, until};
use crate::scripted_nats::{Answer, start};

/// The part of the server that refuses its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusing {
    /// A stream that is there.
    Store(&'static str),
    /// The creation of a stream.
    Creation(&'static str),
}

const FULL: &str = "{\"error\":{\"code\":503,\"err_code\":10023,\"description\":\"insufficient resources\"}}";

/// A server with JetStream, that refuses some of its work while the flag is set. It returns the subjects that no room has.
fn serve(refusing: Refusing, is_full: Arc<AtomicBool>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let answer = move |subject: &str, _: &[u8], probes: &mut Vec<String>| {
        if subject.contains("==") {
            probes.push(subject.to_owned());
        }
        let is_refused = match refusing {
            Refusing::Store(stored) => subject.starts_with(stored),
            Refusing::Creation(stream) => subject.strip_prefix("$JS.API.STREAM.CREATE.") == Some(stream),
        };
        if is_refused && is_full.load(Ordering::Acquire) {
            return Answer::Json(FULL.to_owned());
        }
        match subject {
            "$JS.API.STREAM.INFO.tidegate-history-10" => match refusing {
                Refusing::Creation("tidegate-history-10") => Answer::error_of(404, 10_059),
                _ => Answer::stream("tidegate-history-10", "tidegate.store.10.7.*"),
            },
            "$JS.API.STREAM.CREATE.tidegate-history-10" => {
                Answer::stream("tidegate-history-10", "tidegate.store.10.7.*")
            }
            "$JS.API.STREAM.CREATE.tidegate-presence" => Answer::stream("tidegate-presence", "tidegate.lease.*.*"),
            "$JS.API.STREAM.CREATE.tidegate-kicks" => Answer::stream("tidegate-kicks", "tidegate.kick.*"),
            _ if subject.starts_with("$JS.API.DIRECT.GET.") => Answer::NoMessage,
            _ if subject.starts_with("tidegate.") => Answer::ack("S", 1),
            _ => Answer::NoResponders,
        }
    };
    start(answer, Vec::new())
}

#[test]
fn a_stream_that_refuses_messages_is_a_fault_until_a_probe_is_taken() {
    for (refusing, probe) in [
        (Refusing::Store("tidegate.store.10."), "tidegate.store.10.0000000000000007.==probe"),
        (Refusing::Creation("tidegate-history-10"), "tidegate.store.10.0000000000000007.==probe"),
        (Refusing::Store("tidegate.lease."), "tidegate.lease.==probe.==probe"),
        (Refusing::Creation("tidegate-presence"), "tidegate.lease.==probe.==probe"),
        // The messages that compare clocks are probes as well.
        (Refusing::Store("tidegate.kick."), "tidegate.kick.=="),
        (Refusing::Creation("tidegate-kicks"), "tidegate.kick.=="),
    ] {
        println!("{refusing:?}");
        let is_full = Arc::new(AtomicBool::new(true));
        let (url, serving) = serve(refusing, is_full.clone());
        let node = node(&url);
        let member = Member::enter_at_once(&node, "tides", 10);
        assert!(member.publish("ebb"));
        kick(&member);
        until("the refusal is seen", || has_fault(&node, "the broker refuses messages: "));
        assert!(has_fault(&node, "insufficient resources"), "{:?}", node.fault());
        assert!(node.is_up() && node.counts().is_refusing);
        // Nothing is published: the node asks by itself.
        is_full.store(false, Ordering::Release);
        until("the broker takes messages again", || node.fault().is_none());
        node.close();
        let probes = serving.join().expect("no panic");
        assert!(probes.iter().any(|subject| subject.starts_with(probe)), "{probes:?}");
    }
}

#[test]
fn a_message_that_is_too_long_and_a_server_without_jetstream_are_no_faults() {
    let too_long = |subject: &str, _: &[u8], (): &mut ()| match subject {
        "$JS.API.STREAM.INFO.tidegate-history-10" => Answer::stream("tidegate-history-10", "tidegate.store.10.7.*"),
        _ if subject.starts_with("tidegate.store.") => Answer::error_of(400, 10_054),
        _ => Answer::NoResponders,
    };
    let without = |_: &str, _: &[u8], (): &mut ()| Answer::NoResponders;
    let servers = [(start(too_long, ()), 10), (start(without, ()), 0)];
    for ((url, serving), history_max) in servers {
        let node = node(&url);
        let member = Member::enter_at_once(&node, "tides", history_max);
        (0..3).for_each(|_| assert!(member.publish("ebb")));
        until("all are answered", || node.counts().published + node.counts().unconfirmed == 3);
        assert_eq!(node.counts().unconfirmed, if history_max > 0 { 3 } else { 0 });
        assert_eq!(node.fault(), None);
        node.close();
        serving.join().expect("no panic");
    }
}

#[test]
fn a_server_without_jetstream_is_a_fault_of_ordered_rooms() {
    let (url, serving) = start(|_: &str, _: &[u8], (): &mut ()| Answer::NoResponders, ());
    let node = node(&url);
    let member = Member::enter_at_once(&node, "tides", 10);
    assert!(member.publish("ebb"));
    until("the refusal is seen", || has_fault(&node, "start it with -js"));
    node.close();
    serving.join().expect("no panic");
}

#[test]
fn a_jetstream_whose_storage_is_full_is_a_fault_until_there_is_room() {
    for (storage, history_max) in [("max_file_store: 100000", 1000), ("max_memory_store: 1000", 0)] {
        let config = format!("jetstream {{ {storage} }}\n");
        let Some((nats, file)) = configured_nats("storage", &config) else { return };
        let node = node(&nats.url());
        let member = Member::enter_at_once(&node, "tides", history_max);
        // The names of members fill the memory, and the messages of a room the disk.
        let names = (0..20).map(|number| format!("{number:>100}").into()).collect();
        let long = Member::enter_with_names(&node, "long", 0, names);
        until("a message is refused", || {
            let _ = member.publish(&"x".repeat(10_000));
            member.changed();
            has_fault(&node, "the broker refuses messages: ")
        });
        until("nothing waits", || node.counts().queued_messages == 0);
        if history_max > 0 {
            let reply = call(&nats, "PURGE", "tidegate-history-1000");
            assert!(reply.contains("\"success\":true"), "{reply}");
        } else {
            long.log.names.lock().expect("no panic").clear();
            let reply = call(&nats, "PURGE", "tidegate-presence");
            assert!(reply.contains("\"success\":true"), "{reply}");
        }
        until("the broker takes messages again", || node.fault().is_none());
        assert!(member.publish("behind"));
        member.log.wait_for("behind");
        drop(std::fs::remove_file(file));
    }
}
