//! Streams of NATS that are reported before they take messages, that were deleted, or whose clocks differ.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tidegate_backplane::{Backplane, NodeLimits};
use tidegate_engine::{Backplane as _, MessageForm, NodeId, RoomMessage};

use crate::kicks::{LOGGED, kick, kick_of, node as renewing};
use crate::members::{Member, Seen, check, limits, until};
use crate::processes::{BrokerProcess, Kind};
use crate::scripted_nats::{Answer, start};

/// A node whose leases are renewed no more while a test runs.
fn node(url: &str) -> Backplane {
    let mut limits = NodeLimits::default();
    limits.lease = Duration::from_secs(24 * 3600);
    Backplane::at(url).expect("an address").limits(limits).spawn().expect("a thread")
}

#[test]
fn messages_that_a_reported_stream_does_not_take_yet_are_sent_again_in_order() {
    for refused in [1, 3] {
        let mut unanswered = refused;
        // The connection is accepted at once, and each request waits for the messages below.
        let (requested, publishing) = std::sync::mpsc::channel::<()>();
        let answer = move |subject: &str, payload: &[u8], stored: &mut Vec<String>| {
            let _ = publishing.recv();
            let is_kept = subject.starts_with("tidegate.store.");
            if is_kept && unanswered > 0 {
                unanswered -= 1;
                Answer::NoResponders
            } else if is_kept {
                // Behind the head of the envelope.
                stored.push(String::from_utf8_lossy(&payload[28..]).into_owned());
                Answer::ack("tidegate-history-10", stored.len())
            } else if subject == "$JS.API.STREAM.INFO.tidegate-history-10" {
                Answer::stream("tidegate-history-10", "tidegate.store.10.7.*")
            } else {
                Answer::NoResponders
            }
        };
        let (url, serving) = start(answer, Vec::new());
        let node = node(&url);
        let publish = |text: &'static str, form| {
            let message = RoomMessage {
                bytes: Bytes::from_static(text.as_bytes()),
                form,
                is_announcement: form == MessageForm::Kick,
            };
            node.publish(&"tides".into(), &limits(10), message).expect("there is room");
        };
        // The kick waits for the server, and the messages that follow wait for the kick: they are one request.
        publish("\x03\u{7f}", MessageForm::Kick);
        ["ebb", "flood", "slack"].into_iter().for_each(|text| publish(text, MessageForm::Plain));
        drop(requested);
        until("all are published", || node.counts().published + node.counts().unconfirmed == 4);
        assert_eq!(node.counts().unconfirmed, 0);
        node.close();
        assert_eq!(serving.join().expect("no panic"), ["ebb", "flood", "slack"]);
    }
}

/// The records of members that a server has taken, oldest first.
type Records = Vec<Vec<u8>>;

#[test]
fn members_that_a_reported_stream_does_not_take_yet_are_recorded_again() {
    let taken = Arc::new(AtomicUsize::new(0));
    let (mut unanswered, count) = (3, taken.clone());
    let answer = move |subject: &str, payload: &[u8], records: &mut Records| match subject {
        "$JS.API.STREAM.CREATE.tidegate-presence" => Answer::stream("tidegate-presence", "tidegate.lease.*.*"),
        _ if subject.starts_with("tidegate.lease.") && unanswered > 0 => {
            unanswered -= 1;
            Answer::NoResponders
        }
        _ if subject.starts_with("tidegate.lease.") => {
            records.push(payload.to_vec());
            count.store(records.len(), Ordering::Release);
            Answer::ack("tidegate-presence", records.len())
        }
        "$JS.API.DIRECT.GET.tidegate-presence" => Answer::NoMessage,
        _ => Answer::NoResponders,
    };
    let (url, serving) = start(answer, Records::new());
    let node = node(&url);
    let member = Member::enter(&node, "tides", 0);
    until("the members are recorded", || taken.load(Ordering::Acquire) == 1);
    drop(member);
    node.close();
    assert_eq!(serving.join().expect("no panic").len(), 1);
}

#[test]
fn members_that_are_recorded_again_replace_no_later_record() {
    let taken = Arc::new(AtomicUsize::new(0));
    let (mut first, count) = (None, taken.clone());
    let answer = move |subject: &str, payload: &[u8], records: &mut Records| match subject {
        "$JS.API.STREAM.CREATE.tidegate-presence" => Answer::stream("tidegate-presence", "tidegate.lease.*.*"),
        _ if subject.starts_with("tidegate.lease.") => {
            if first.get_or_insert_with(|| payload.to_vec()) == payload && records.is_empty() {
                // Until a later record comes.
                count.fetch_max(1, Ordering::AcqRel);
                return Answer::NoResponders;
            }
            records.push(payload.to_vec());
            count.store(1 + records.len(), Ordering::Release);
            Answer::ack("tidegate-presence", records.len())
        }
        "$JS.API.DIRECT.GET.tidegate-presence" => Answer::NoMessage,
        _ => Answer::NoResponders,
    };
    let (url, serving) = start(answer, Records::new());
    let node = node(&url);
    let member = Member::enter(&node, "tides", 0);
    until("a record is refused", || taken.load(Ordering::Acquire) == 1);
    member.log.count.store(2, Ordering::Relaxed);
    member.changed();
    until("the later record is taken", || taken.load(Ordering::Acquire) == 2);
    // A room that has changed since is recorded behind all that the first request does.
    member.log.count.store(3, Ordering::Relaxed);
    member.changed();
    until("both changes are recorded", || taken.load(Ordering::Acquire) == 3);
    node.close();
    assert_eq!(serving.join().expect("no panic").len(), 2, "the first record is sent no more");
}

/// Calls an operation of a stream. Returns the line of the reply.
pub(crate) fn call(process: &BrokerProcess, operation: &str, stream: &str) -> String {
    let mut connection = TcpStream::connect(("127.0.0.1", process.port)).expect("a connection");
    let subject = format!("$JS.API.STREAM.{operation}.{stream}");
    let wire = format!("CONNECT {{\"verbose\":false}}\r\nSUB reply 1\r\nPUB {subject} reply 0\r\n\r\n");
    connection.write_all(wire.as_bytes()).expect("it is sent");
    let mut lines = BufReader::new(connection).lines().map(|line| line.expect("a reply"));
    lines.find(|line| line.contains("\"type\":")).expect("a reply")
}

#[test]
fn a_stream_of_members_that_is_deleted_is_there_again_with_the_next_renewal() {
    let Some(process) = BrokerProcess::start(Kind::Nats, &[]) else { return };
    let (north, south) = (renewing(&process), renewing(&process));
    let members = [&north, &south].map(|node| Member::enter(node, "tides", 0));
    members[0].log.wait(|seen| seen.contains(&Seen::Elsewhere(south.id(), Some(1))));
    let is_there = || !call(&process, "INFO", "tidegate-presence").contains("\"error\"");
    // A node hears of members by a message, which may come before their record.
    until("the stream is there", is_there);
    let reply = call(&process, "DELETE", "tidegate-presence");
    assert!(reply.contains("\"success\":true"), "{reply}");
    // No node begins meanwhile, which would create it.
    until("the stream is there again", is_there);
    let newcomer = Member::enter(&renewing(&process), "tides", 0);
    for node in [&north, &south] {
        newcomer.log.wait(|seen| seen.contains(&Seen::Elsewhere(node.id(), Some(1))));
    }
}

#[test]
fn a_stream_of_messages_that_is_deleted_is_a_gap_and_the_next_message_makes_another_one() {
    let Some(process) = BrokerProcess::start(Kind::Nats, &[]) else { return };
    let members = [node(&process.url()), node(&process.url())].map(|node| Member::enter(&node, "tides", 10));
    let publish = |text: &str| {
        assert!(members[0].publish(text));
        members.iter().for_each(|member| member.log.wait_for(text));
    };
    publish("ebb");
    assert!(call(&process, "DELETE", "tidegate-history-10").contains("\"success\":true"));
    ["flood", "slack"].into_iter().for_each(publish);
    let logs = members.each_ref().map(|member| member.log.seen());
    check(&logs, false);
    for (log, member) in logs.iter().zip(&members) {
        assert_eq!(log.iter().filter(|event| **event == Seen::Gap).count(), 1);
        assert_eq!(member.log.texts(), ["ebb", "flood", "slack"]);
        assert_eq!(member.backplane.counts().unconfirmed, 0);
    }
}

/// Waits until a message of each member has reached all members. A server confirms a subscription before the others of its
/// cluster learn of it, and before it has routes to them; until then they drop the messages.
fn until_all_receive(members: &[Member]) {
    for (place, member) in members.iter().enumerate() {
        let (begin, mut number) = (format!("first {place} "), 0);
        until("a message reaches all members", || {
            // A full queue takes the next one.
            member.publish(&format!("{begin}{number}"));
            number += 1;
            members.iter().all(|other| other.log.texts().iter().any(|text| text.starts_with(&begin)))
        });
    }
}

#[test]
fn members_of_three_servers_of_a_cluster_have_one_order_and_learn_of_each_other_and_of_kicks() {
    let Some(servers) = BrokerProcess::start_nats_cluster() else { return };
    let nodes: Vec<_> = servers.iter().map(renewing).collect();
    // The streams of each are on some server.
    for history in [0, 10] {
        let members: Vec<_> =
            nodes.iter().map(|node| Member::enter(node, &format!("tides {history}"), history)).collect();
        until_all_receive(&members);
        for number in 0..20 {
            for (place, member) in members.iter().enumerate() {
                assert!(member.publish(&format!("{place} {number}")));
            }
        }
        for member in &members {
            (0..3).for_each(|place| member.log.wait_for(&format!("{place} 19")));
            for node in nodes.iter().filter(|node| node.id() != member.backplane.id()) {
                member.log.wait(|seen| seen.contains(&Seen::Elsewhere(node.id(), Some(1))));
            }
        }
        let logs: Vec<_> = members.iter().map(|member| member.log.seen()).collect();
        check(&logs, false);
        kick(&members[0]);
        members[1..].iter().for_each(|member| member.log.wait_for(LOGGED));
    }
}

/// The text of a time on 28 November 2026.
fn time(minutes: u32) -> String {
    format!("2026-11-28T{:02}:{:02}:00.5Z", minutes / 60, minutes % 60)
}

/// A member enters while the server has a kick from so many minutes ago. The stream of members is on a server whose clock is an
/// hour ahead, or behind. Returns how often the member is closed.
fn closed_by_kick(kicked_before: u32, clock_of_members: u32) -> u64 {
    const NOW: u32 = 12 * 60;
    let other = NodeId([5; 16]);
    let answer = move |subject: &str, payload: &[u8], record: &mut (String, Vec<u8>)| {
        let stored = |sequence, subject: &str, time: String, payload: Vec<u8>| {
            let place = format!("Nats-Stream: S\r\nNats-Subject: {subject}\r\nNats-Sequence: {sequence}");
            Answer::Stored(format!("{place}\r\nNats-Time-Stamp: {time}\r\n"), payload)
        };
        let request = String::from_utf8_lossy(payload);
        match subject {
            "$JS.API.STREAM.CREATE.tidegate-presence" => Answer::stream("tidegate-presence", "tidegate.lease.*.*"),
            _ if subject.starts_with("tidegate.lease.") => {
                *record = (subject.to_owned(), payload.to_vec());
                Answer::ack("tidegate-presence", 1)
            }
            _ if subject.starts_with("tidegate.kick.==") => Answer::ack("tidegate-kicks", 7),
            "$JS.API.DIRECT.GET.tidegate-presence"
                if request.contains("\"seq\":1,") || request.contains("\"seq\":1}") =>
            {
                stored(1, &record.0, time(clock_of_members), record.1.clone())
            }
            "$JS.API.DIRECT.GET.tidegate-presence" if request.contains("\"seq\":2") => {
                stored(2, &format!("tidegate.lease.tides.{other}"), time(clock_of_members), record.1.clone())
            }
            "$JS.API.DIRECT.GET.tidegate-presence" => Answer::NoMessage,
            "$JS.API.DIRECT.GET.tidegate-kicks" if request.contains("last_by_subj") => {
                stored(6, "tidegate.kick.tides", time(NOW - kicked_before), kick_of(9, 7).to_vec())
            }
            "$JS.API.DIRECT.GET.tidegate-kicks" => stored(7, "tidegate.kick.==", time(NOW), Vec::new()),
            _ => Answer::NoResponders,
        }
    };
    let (url, serving) = start(answer, (String::new(), Vec::new()));
    let node = node(&url);
    let member = Member::enter(&node, "tides", 0);
    // The lists come behind the kicks.
    member.log.wait(|seen| seen.contains(&Seen::Elsewhere(other, Some(1))));
    let closed = node.counts().late_kicks;
    assert_eq!(member.log.texts(), vec![LOGGED.to_owned(); closed as usize]);
    node.close();
    serving.join().expect("no panic");
    closed
}

#[test]
fn a_kick_is_dated_by_the_clock_of_its_own_stream() {
    for clock_of_members in [11 * 60, 12 * 60, 13 * 60] {
        assert_eq!(closed_by_kick(10, clock_of_members), 0, "the member has entered later");
        assert_eq!(closed_by_kick(0, clock_of_members), 1, "the kick is as late as the sample");
    }
}

#[test]
fn a_kick_is_read_even_if_the_stream_of_members_is_not_there() {
    let answer = |subject: &str, payload: &[u8], (): &mut ()| {
        let stored = |sequence, time: String, payload: Vec<u8>| {
            let place = format!("Nats-Stream: S\r\nNats-Subject: s\r\nNats-Sequence: {sequence}");
            Answer::Stored(format!("{place}\r\nNats-Time-Stamp: {time}\r\n"), payload)
        };
        match subject {
            _ if subject.starts_with("tidegate.kick.==") => Answer::ack("tidegate-kicks", 7),
            "$JS.API.DIRECT.GET.tidegate-kicks" if String::from_utf8_lossy(payload).contains("last_by_subj") => {
                stored(6, time(0), kick_of(9, 7).to_vec())
            }
            "$JS.API.DIRECT.GET.tidegate-kicks" => stored(7, time(0), Vec::new()),
            _ => Answer::error(),
        }
    };
    let (url, serving) = start(answer, ());
    let node = node(&url);
    let member = Member::enter(&node, "tides", 0);
    member.log.wait_for(LOGGED);
    node.close();
    serving.join().expect("no panic");
}
