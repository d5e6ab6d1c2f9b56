//! Prints the counts of all loops as one line, on SIGUSR1.

use tidegate::ServerHandle;
use tidegate::engine::Counts;

use crate::log;

/// Prints the sums over all loops as `name=value`. Each is slightly stale; together they are no consistent snapshot.
pub(crate) fn print(running: &ServerHandle) {
    let counts = running.counts();
    let mut line = String::from("tidegate: counts:");
    for (name, count) in COUNTS {
        let sum: u64 = counts.iter().map(count).sum();
        line.push_str(&format!(" {name}={sum}"));
    }
    log::write_to_stdout(&line);
}

type Count = (&'static str, fn(&Counts) -> u64);

/// All but `longest_turn`: a maximum has no sum.
const COUNTS: [Count; 29] = [
    ("connections", |counts| counts.connections),
    ("memory_bytes", |counts| counts.memory_bytes),
    ("accepted", |counts| counts.accepted),
    ("refused", |counts| counts.refused),
    ("accepts_failed", |counts| counts.accepts_failed),
    ("messages", |counts| counts.messages),
    ("received_bytes", |counts| counts.received_bytes),
    ("sent_bytes", |counts| counts.sent_bytes),
    ("tasks_panicked", |counts| counts.tasks_panicked),
    ("long_work_waits", |counts| counts.long_work_waits),
    ("turns", |counts| counts.turns),
    ("slow_turns", |counts| counts.slow_turns),
    ("stalls", |counts| counts.stalls),
    ("closed_done", |counts| counts.closed_done),
    ("closed_aborted", |counts| counts.closed_aborted),
    ("closed_broken", |counts| counts.closed_broken),
    ("closed_protocol", |counts| counts.closed_protocol),
    ("closed_failed", |counts| counts.closed_failed),
    ("closed_deadline", |counts| counts.closed_deadline),
    ("closed_panicked", |counts| counts.closed_panicked),
    ("closed_write_timeout", |counts| counts.closed_write_timeout),
    ("closed_idle_timeout", |counts| counts.closed_idle_timeout),
    ("closed_read_timeout", |counts| counts.closed_read_timeout),
    ("closed_handshake_timeout", |counts| counts.closed_handshake_timeout),
    ("closed_age_timeout", |counts| counts.closed_age_timeout),
    ("closed_replies_unread", |counts| counts.closed_replies_unread),
    ("closed_shed", |counts| counts.closed_shed),
    ("closed_too_slow", |counts| counts.closed_too_slow),
    ("closed_drained", |counts| counts.closed_drained),
];
