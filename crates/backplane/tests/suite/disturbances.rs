//! Real brokers that fail in the middle. A checker reads the logs of all members.

use std::time::Duration;

use tidegate_backplane::{Backplane, BackplaneCounts};

use crate::members::{Member, Seen, check, until};
use crate::processes::{BrokerProcess, Kind};

const NODES: usize = 3;

/// Members on three nodes publish before, during and after a disturbance. Returns their logs, and the counts of the first node.
fn disturbed(
    process: &mut BrokerProcess,
    history_max: usize,
    disturb: impl FnOnce(&mut BrokerProcess, &[Member]),
) -> (Vec<Vec<Seen>>, BackplaneCounts) {
    let (logs, counts) = unchecked(process, history_max, disturb);
    check(&logs, false);
    (logs, counts)
}

fn unchecked(
    process: &mut BrokerProcess,
    history_max: usize,
    disturb: impl FnOnce(&mut BrokerProcess, &[Member]),
) -> (Vec<Vec<Seen>>, BackplaneCounts) {
    let node = || Backplane::at(&process.url()).expect("an address").spawn().expect("a thread");
    let members: Vec<_> = (0..NODES).map(|_| Member::enter(&node(), "tides", history_max)).collect();
    let publish = |from: usize, to: usize| {
        for number in from..to {
            for (place, member) in members.iter().enumerate() {
                let _ = member.publish(&format!("{place} {number}"));
            }
        }
    };
    publish(0, 50);
    for member in &members {
        (0..NODES).for_each(|place| member.log.wait_for(&format!("{place} 49")));
    }
    disturb(process, &members);
    publish(50, 100);
    until_all_receive(&members);
    let logs = members.iter().map(|member| member.log.seen()).collect();
    (logs, members[0].backplane.counts())
}

/// Messages of a request that breaks are published at most once: so another one, until all have one of each member.
fn until_all_receive(members: &[Member]) {
    for (place, member) in members.iter().enumerate() {
        for attempt in 0.. {
            let text = format!("{place} ends {attempt}");
            let _ = member.publish(&text);
            let deadline = std::time::Instant::now() + Duration::from_millis(300);
            while std::time::Instant::now() < deadline && !members.iter().all(|member| member.log.has(&text)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if members.iter().all(|member| member.log.has(&text)) {
                break;
            }
            assert!(attempt < 400, "{text} does not arrive");
        }
    }
}

fn gaps(logs: &[Vec<Seen>]) -> Vec<usize> {
    logs.iter().map(|log| log.iter().filter(|event| **event == Seen::Gap).count()).collect()
}

#[test]
fn subscriptions_that_are_killed_lose_nothing() {
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    let (logs, counts) = disturbed(&mut redis, 1000, |redis, members| {
        for number in 0..20 {
            for member in members {
                let _ = member.publish(&format!("killed {number} {}", member.backplane.id()));
            }
            redis.command("CLIENT KILL TYPE pubsub");
        }
    });
    assert_eq!(gaps(&logs), [0; NODES]);
    assert_eq!(counts.unconfirmed, 0, "{counts:?}");
}

#[test]
fn a_script_that_is_flushed_is_loaded_again() {
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    let (logs, counts) = disturbed(&mut redis, 1000, |redis, _| drop(redis.command("SCRIPT FLUSH")));
    assert_eq!((gaps(&logs), counts.unconfirmed), (vec![0; NODES], 0));
}

#[test]
fn redis_that_comes_back_empty_is_a_gap_for_each_member() {
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    let (logs, counts) = disturbed(&mut redis, 1000, |redis, members| {
        redis.kill();
        members.iter().for_each(|member| member.log.wait(|seen| seen.contains(&Seen::Connected(false))));
        redis.restart();
    });
    assert_eq!(gaps(&logs), [1; NODES]);
    assert!(counts.downs >= 1 && counts.is_up, "{counts:?}");
}

#[test]
fn redis_that_is_killed_comes_back_with_its_messages() {
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &["--appendonly", "yes", "--appendfsync", "always"]) else {
        return;
    };
    let (logs, counts) = disturbed(&mut redis, 1000, |redis, members| {
        redis.kill();
        members.iter().for_each(|member| member.log.wait(|seen| seen.contains(&Seen::Connected(false))));
        redis.restart();
    });
    assert_eq!(gaps(&logs), [0; NODES]);
    assert!(counts.downs >= 1 && counts.is_up, "{counts:?}");
}

/// `TIDEGATE_STOP_SECONDS` has other times, up to 60: beyond those after which a client probes its connection.
#[test]
fn a_broker_that_stops_for_a_while_loses_nothing() {
    let seconds = std::env::var("TIDEGATE_STOP_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let stop = Duration::from_secs(seconds.unwrap_or(1));
    for kind in [Kind::Redis, Kind::Nats] {
        let Some(mut process) = BrokerProcess::start(kind, &[]) else { continue };
        let (logs, _) = disturbed(&mut process, 1000, |process, members| {
            process.signal("STOP");
            for member in members {
                let _ = member.publish(&format!("stopped {}", member.backplane.id()));
            }
            std::thread::sleep(stop);
            process.signal("CONT");
        });
        assert_eq!(gaps(&logs), [0; NODES], "{kind:?}");
    }
}

#[test]
fn rooms_that_redis_evicts_are_gaps_and_go_on() {
    let memory = ["--maxmemory", "3mb", "--maxmemory-policy", "allkeys-random"];
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &memory) else { return };
    let (logs, counts) = disturbed(&mut redis, 1000, |redis, members| {
        let filler = "x".repeat(10_000);
        for number in 0.. {
            assert_eq!(redis.command(&format!("SET filler:{number} {filler}")), "+OK");
            if redis.command("EXISTS tidegate:{.tides}:m") == ":0" {
                break;
            }
        }
        assert_eq!(redis.command("CONFIG SET maxmemory 0"), "+OK");
        assert!(members[0].publish("a new epoch"));
        members.iter().for_each(|member| member.log.wait(|seen| seen.contains(&Seen::Gap)));
    });
    assert!(gaps(&logs).iter().all(|gaps| *gaps >= 1), "{:?}", gaps(&logs));
    assert_eq!(counts.unconfirmed, 0, "{counts:?}");
}

#[test]
fn redis_without_memory_refuses_messages_and_keeps_the_order() {
    let memory = ["--maxmemory-policy", "noeviction"];
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &memory) else { return };
    let (logs, counts) = disturbed(&mut redis, 1000, |redis, members| {
        assert_eq!(redis.command("CONFIG SET maxmemory 1"), "+OK");
        assert!(members[0].publish("refused"));
        while members[0].backplane.counts().unconfirmed == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(redis.command("CONFIG SET maxmemory 0"), "+OK");
    });
    assert_eq!(gaps(&logs), [0; NODES]);
    assert!(counts.unconfirmed >= 1, "{counts:?}");
}

#[test]
fn a_server_that_becomes_a_replica_refuses_messages_until_it_is_the_master_again() {
    let (Some(mut redis), Some(other)) = (
        BrokerProcess::start(Kind::Redis, &[]),
        BrokerProcess::start(Kind::Redis, &["--repl-diskless-sync-delay", "0"]),
    ) else {
        return;
    };
    let port = other.port;
    let (_, counts) = disturbed(&mut redis, 1000, |redis, members| {
        assert_eq!(redis.command(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK");
        assert!(members[0].publish("read-only"));
        until("a message is refused", || members[0].backplane.counts().unconfirmed > 0);
        assert_eq!(redis.command("REPLICAOF NO ONE"), "+OK");
    });
    assert!(counts.unconfirmed >= 1, "{counts:?}");
}

#[test]
fn a_replica_that_became_the_master_without_the_last_messages_is_a_gap_for_those_that_have_them() {
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    let (logs, _) = unchecked(&mut redis, 1000, |redis, members| {
        // The state of a replica that lacks the last ten messages: 140 of 150 are there.
        let script = "EVAL \"local k = 'tidegate:{.tides}' redis.call('LTRIM', k .. ':h', 0, -11) \
                      redis.call('HINCRBY', k .. ':m', 'o', -10) return redis.status_reply('OK')\" 0";
        assert_eq!(redis.command(script), "+OK");
        redis.command("CLIENT KILL TYPE pubsub");
        members.iter().for_each(|member| member.log.wait(|seen| seen.contains(&Seen::Gap)));
    });
    check(&logs, true);
    assert!(gaps(&logs).iter().all(|gaps| *gaps >= 1), "{:?}", gaps(&logs));
}

#[test]
fn fields_that_no_script_has_written_begin_an_epoch_and_do_not_stop_the_room() {
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    for fields in ["e nothing", "o 1e300", "o -7", "o 99999999999999999999", "e 000000000000000x", "o nan"] {
        let (logs, counts) = disturbed(&mut redis, 1000, |redis, members| {
            assert_eq!(redis.command(&format!("HSET tidegate:{{.tides}}:m {fields}")), ":0");
            redis.command("CLIENT KILL TYPE pubsub");
            members.iter().for_each(|member| member.log.wait(|seen| seen.contains(&Seen::Gap)));
        });
        assert!(gaps(&logs).iter().all(|gaps| *gaps >= 1), "{fields}: {:?}", gaps(&logs));
        assert_eq!(counts.unconfirmed, 0, "{fields}");
        redis.command("FLUSHALL");
    }
}

#[test]
fn keys_of_another_program_are_counted_and_do_not_stop_the_room() {
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    for key in ["m", "h"] {
        let (logs, counts) = disturbed(&mut redis, 1000, |redis, members| {
            assert_eq!(redis.command(&format!("SET tidegate:{{.tides}}:{key} foreign")), "+OK");
            redis.command("CLIENT KILL TYPE pubsub");
            members.iter().for_each(|member| member.log.wait(|seen| seen.contains(&Seen::Gap)));
        });
        assert_eq!(gaps(&logs), [1; NODES], "{key}");
        assert_eq!(counts.unconfirmed, 0, "{key}: {counts:?}");
        assert!(counts.foreign_keys >= 1, "{key}: {counts:?}");
        redis.command("FLUSHALL");
    }
}

#[test]
fn a_key_of_another_program_under_a_live_room_begins_an_epoch_with_the_next_message() {
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    for key in ["m", "h"] {
        let (logs, counts) = disturbed(&mut redis, 1000, |redis, _| {
            assert_eq!(redis.command(&format!("SET tidegate:{{.tides}}:{key} foreign")), "+OK");
        });
        assert_eq!(gaps(&logs), [1; NODES], "{key}");
        assert_eq!(counts.unconfirmed, 0, "{key}: {counts:?}");
        redis.command("FLUSHALL");
    }
}

#[test]
fn keys_of_another_program_do_not_stop_presence() {
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    for key in ["p", "k"] {
        let (logs, _) = disturbed(&mut redis, 1000, |redis, members| {
            assert_eq!(redis.command(&format!("DEL tidegate:{{.tides}}:{key}")).get(..1), Some(":"));
            assert_eq!(redis.command(&format!("LPUSH tidegate:{{.tides}}:{key} foreign")), ":1");
            redis.command("CLIENT KILL TYPE pubsub");
            until("the key is found", || members.iter().any(|member| member.backplane.counts().foreign_keys > 0));
        });
        assert_eq!(gaps(&logs), [0; NODES], "{key}");
        redis.command("FLUSHALL");
    }
}

#[test]
fn foreign_messages_in_a_stream_do_not_end_a_history() {
    let Some(mut nats) = BrokerProcess::start(Kind::Nats, &[]) else { return };
    let long = format!("NATS/1.0\r\nx: {}\r\n\r\n", "x".repeat(200 << 10));
    let (logs, counts) = disturbed(&mut nats, 1000, |nats, members| {
        let seen = members[0].log.seen();
        let epoch = seen.iter().find_map(|event| match event {
            Seen::Message(position, _) => position.map(|position| position.epoch),
            _ => None,
        });
        let subject = format!("tidegate.store.1000.{:016x}.tides", epoch.expect("a message"));
        for block in ["NATS/1.0 204 EOB\r\n\r\n", "NATS/1.0 404\r\n\r\n", "NATS/1.0 503\r\n\r\n", "no headers", &long] {
            nats.publish_to_nats(&subject, block, "");
            members[1].publish(&format!("behind {block}"));
        }
        for member in members {
            member.log.wait_for(&format!("behind {long}"));
        }
        nats.kill();
        members.iter().for_each(|member| member.log.wait(|seen| seen.contains(&Seen::Connected(false))));
        nats.restart();
    });
    assert_eq!(gaps(&logs), [0; NODES]);
    assert!(counts.foreign >= 5 && counts.is_up, "{counts:?}");
}

/// A replica of a server that has all of its messages.
fn replica_of(redis: &BrokerProcess) -> Option<BrokerProcess> {
    let arguments = ["--replicaof", "127.0.0.1", &redis.port.to_string(), "--repl-diskless-sync-delay", "0"];
    BrokerProcess::start(Kind::Redis, &arguments)
}

/// The offset of the last message in the room.
fn last_offset(redis: &BrokerProcess) -> String {
    redis.command("EVAL \"return redis.status_reply(redis.call('HGET', 'tidegate:{.tides}:m', 'o') or '')\" 0")
}

/// The replica becomes the master, at the address of the old one, which has failed.
fn promote(redis: &mut BrokerProcess, replica: &BrokerProcess) {
    let port = redis.port;
    redis.kill();
    assert_eq!(replica.command("REPLICAOF NO ONE"), "+OK");
    assert_eq!(replica.command(&format!("CONFIG SET port {port}")), "+OK");
}

#[test]
fn a_replica_that_is_promoted_with_all_messages_goes_on_without_a_gap() {
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    let replica = replica_of(&redis).expect("it is installed");
    let (logs, counts) = disturbed(&mut redis, 1000, |redis, members| {
        until("the replica has all", || last_offset(&replica) == last_offset(redis));
        promote(redis, &replica);
        members.iter().for_each(|member| member.log.wait(|seen| seen.contains(&Seen::Connected(true))));
    });
    assert_eq!(gaps(&logs), [0; NODES]);
    assert!(counts.downs >= 1 && counts.is_up, "{counts:?}");
}

#[test]
fn a_replica_that_is_promoted_without_the_last_messages_is_a_gap_for_each_member() {
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    let replica = replica_of(&redis).expect("it is installed");
    let (logs, _) = unchecked(&mut redis, 1000, |redis, members| {
        until("the replica has all", || last_offset(&replica) == last_offset(redis));
        // From now on the two of them differ.
        assert_eq!(replica.command("REPLICAOF NO ONE"), "+OK");
        for number in 0..10 {
            members
                .iter()
                .for_each(|member| assert!(member.publish(&format!("lost {number} {}", member.backplane.id()))));
        }
        for member in members {
            members.iter().for_each(|other| member.log.wait_for(&format!("lost 9 {}", other.backplane.id())));
        }
        promote(redis, &replica);
        members.iter().for_each(|member| member.log.wait(|seen| seen.contains(&Seen::Gap)));
    });
    check(&logs, true);
    assert!(gaps(&logs).iter().all(|gaps| *gaps == 1), "{:?}", gaps(&logs));
}

#[test]
fn subscribers_that_exceed_the_output_buffer_read_the_history() {
    let limit = ["--client-output-buffer-limit", "pubsub 64kb 64kb 0"];
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &limit) else { return };
    let long = "x".repeat(30_000);
    let (logs, _) = disturbed(&mut redis, 10_000, |_, members| {
        for number in 0..60 {
            for (place, member) in members.iter().enumerate() {
                let _ = member.publish(&format!("long {place} {number} {long}"));
            }
        }
    });
    // The history has 1 MiB: a member that was cut off may lack some, and knows it.
    println!("gaps: {:?}", gaps(&logs));
}

#[test]
fn a_node_that_stops_is_cut_off_by_redis_and_has_the_order_of_the_others_afterwards() {
    let limit = ["--client-output-buffer-limit", "pubsub 64kb 64kb 0"];
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &limit) else { return };
    let long = "x".repeat(30_000);
    let subscribers = "EVAL \"return redis.call('PUBSUB', 'NUMSUB', 'tidegate:{.tides}')[2]\" 0";
    let (logs, counts) = disturbed(&mut redis, 1000, |redis, members| {
        let stopped = members[2].log.gate.lock().expect("no panic");
        let mut number = 0;
        // The sockets' buffers fill first.
        until("the node is cut off", || {
            let text = format!("long {number} {long}");
            number += 1;
            assert!(members[0].publish(&text));
            members[..2].iter().for_each(|member| member.log.wait_for(&text));
            redis.command(subscribers) == ":2"
        });
        drop(stopped);
    });
    assert_eq!(gaps(&logs)[..2], [0, 0]);
    // The history has 1 MiB, which is less than the sockets have.
    assert!(gaps(&logs)[2] <= 1 && counts.gaps == 0, "{:?}", gaps(&logs));
}

#[test]
fn nats_that_is_killed_comes_back_with_its_messages() {
    let Some(mut nats) = BrokerProcess::start(Kind::Nats, &[]) else { return };
    let (logs, counts) = disturbed(&mut nats, 1000, |nats, members| {
        nats.kill();
        members.iter().for_each(|member| member.log.wait(|seen| seen.contains(&Seen::Connected(false))));
        nats.restart();
    });
    assert_eq!(gaps(&logs), [0; NODES]);
    assert!(counts.is_up && counts.downs >= 1, "{counts:?}");
}

#[test]
fn nats_that_comes_back_empty_is_a_gap_for_each_member() {
    let Some(mut nats) = BrokerProcess::start(Kind::Nats, &[]) else { return };
    let (logs, _) = disturbed(&mut nats, 1000, |nats, members| {
        nats.kill();
        members.iter().for_each(|member| member.log.wait(|seen| seen.contains(&Seen::Connected(false))));
        nats.remove_data();
        nats.restart();
    });
    assert_eq!(gaps(&logs), [1; NODES]);
}

#[test]
fn keys_of_a_room_in_use_last_and_new_ones_are_made_to_last_at_once() {
    let Some(redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    let member =
        || Member::enter(&Backplane::at(&redis.url()).expect("an address").spawn().expect("a thread"), "tides", 9);
    let north = member();
    let publish = |member: &Member, text: &str| {
        assert!(member.publish(text));
        member.log.wait_for(text);
    };
    let lasts = |key: &str| {
        let seconds = redis.command(&format!("TTL tidegate:{{.tides}}:{key}"));
        seconds.trim_start_matches(':').parse::<i64>().expect("seconds") > 600_000
    };
    publish(&north, "1");
    assert!(lasts("m") && lasts("h"));
    // The node has made them last, and does not again at once.
    assert_eq!(redis.command("EXPIRE tidegate:{.tides}:m 1000"), ":1");
    publish(&north, "2");
    assert!(!lasts("m") && lasts("h"));
    // Keys that are gone are new ones.
    assert_eq!(redis.command("DEL tidegate:{.tides}:h"), ":1");
    publish(&north, "3");
    assert!(lasts("m") && lasts("h"));
    assert_eq!(redis.command("DEL tidegate:{.tides}:m"), ":1");
    publish(&north, "4");
    assert!(lasts("m") && lasts("h"));
    // Another node does not know it.
    assert_eq!(redis.command("EXPIRE tidegate:{.tides}:m 1000"), ":1");
    publish(&member(), "5");
    assert!(lasts("m"));
}
