//! The counts of a server as metrics.

use tidegate_engine::{Counts, Refusal, ServerHandle, TurnTimes};

use crate::text::{Kind, MetricsText};

/// Writes the counts of a server's loops and listeners. Nothing waits for a loop: each publishes its counts once a
/// turn.
pub fn write_server(server: &ServerHandle, text: &mut MetricsText) {
    let counts = server.counts();
    let names: Vec<_> = (0..counts.len()).map(|number| number.to_string()).collect();
    // A server without endpoints has no figures of datagrams.
    let has_datagrams = counts.iter().any(|counts| counts.endpoints > 0 || counts.datagrams_received > 0);
    let of_datagrams = if has_datagrams { OF_DATAGRAMS } else { &[] };
    let has_sessions = counts.iter().any(|counts| counts.sessions.begun > 0);
    let of_sessions = if has_sessions { OF_SESSIONS } else { &[] };
    for (name, kind, help, value) in OF_LOOPS.iter().chain(of_datagrams).chain(of_sessions) {
        text.family(name, *kind, help);
        for (number, counts) in names.iter().zip(&counts) {
            text.sample(&[("loop", number)], value(counts));
        }
    }
    text.family("tidegate_handshakes", Kind::Counter, "Handshakes of filters such as TLS, by result.");
    for (number, counts) in names.iter().zip(&counts) {
        text.sample(&[("loop", number), ("result", "completed")], counts.handshakes);
        text.sample(&[("loop", number), ("result", "failed")], counts.handshakes_failed);
    }
    text.family("tidegate_closed", Kind::Counter, "Closed connections, by cause.");
    for (number, counts) in names.iter().zip(&counts) {
        for (cause, count) in closed_by_cause(counts) {
            text.sample(&[("loop", number), ("cause", cause)], count);
        }
    }
    text.family("tidegate_turn_seconds", Kind::Histogram, "Turns of a loop, without waiting, by how long they took.");
    for (number, counts) in names.iter().zip(&counts) {
        let buckets = counts.turn_times.buckets().iter().enumerate();
        let buckets = buckets.map(|(at, count)| (TurnTimes::bound(at), *count));
        text.histogram(&[("loop", number)], buckets, counts.busy_time, |_| true);
    }
    write_listeners(server, text);
}

fn write_listeners(server: &ServerHandle, text: &mut MetricsText) {
    let listeners: Vec<_> = server
        .listeners()
        .iter()
        .map(|listener| {
            let addresses: Vec<_> = listener.addresses().iter().map(ToString::to_string).collect();
            (listener.label().to_owned(), addresses.join(" "), listener.counts())
        })
        .collect();
    text.family("tidegate_listener_connections", Kind::Gauge, "Open connections of a listener.");
    for (label, addresses, counts) in &listeners {
        text.sample(&[("listener", label), ("addresses", addresses)], counts.connections());
    }
    text.family("tidegate_listener_accepted", Kind::Counter, "Accepted connections of a listener.");
    for (label, addresses, counts) in &listeners {
        text.sample(&[("listener", label), ("addresses", addresses)], counts.accepted());
    }
    text.family("tidegate_listener_refused", Kind::Counter, "Connections that a listener refused, by reason.");
    for (label, addresses, counts) in &listeners {
        for (reason, refusal) in REFUSALS {
            let labels = [("listener", label.as_str()), ("addresses", addresses), ("reason", reason)];
            text.sample(&labels, counts.refused(refusal));
        }
    }
}

/// The closed connections of a loop, by cause.
pub fn closed_by_cause(counts: &Counts) -> impl Iterator<Item = (&'static str, u64)> {
    CAUSES.iter().map(|(name, count)| (*name, count(counts)))
}

type Metric = (&'static str, Kind, &'static str, fn(&Counts) -> u64);

const OF_LOOPS: &[Metric] = &[
    ("tidegate_connections", Kind::Gauge, "Open connections.", |counts| counts.connections),
    ("tidegate_streams", Kind::Gauge, "Open streams of sessions.", |counts| counts.streams),
    ("tidegate_memory_bytes", Kind::Gauge, "Bytes of memory of connections.", |counts| counts.memory_bytes),
    ("tidegate_memory_budget_bytes", Kind::Gauge, "Bytes of memory that connections may use.", |counts| {
        counts.memory_budget_bytes
    }),
    ("tidegate_accepted", Kind::Counter, "Accepted connections.", |counts| counts.accepted),
    ("tidegate_refused", Kind::Counter, "Connections that admission refused.", |counts| counts.refused),
    ("tidegate_accepts_failed", Kind::Counter, "Times that accepting failed.", |counts| counts.accepts_failed),
    ("tidegate_messages", Kind::Counter, "Decoded messages.", |counts| counts.messages),
    ("tidegate_received_bytes", Kind::Counter, "Received bytes.", |counts| counts.received_bytes),
    ("tidegate_sent_bytes", Kind::Counter, "Sent bytes.", |counts| counts.sent_bytes),
    ("tidegate_tasks_panicked", Kind::Counter, "Tasks that panicked.", |counts| counts.tasks_panicked),
    ("tidegate_long_work_waits", Kind::Counter, "Pieces of long work that waited for their turn.", |counts| {
        counts.long_work_waits
    }),
    ("tidegate_slow_turns", Kind::Counter, "Turns that took longer than 100 ms.", |counts| counts.slow_turns),
    ("tidegate_stalls", Kind::Counter, "Turns that took longer than a second.", |counts| counts.stalls),
];

const OF_DATAGRAMS: &[Metric] = &[
    ("tidegate_endpoints", Kind::Gauge, "Open datagram sockets.", |counts| counts.endpoints),
    ("tidegate_datagrams_received", Kind::Counter, "Received datagrams.", |counts| counts.datagrams_received),
    ("tidegate_datagrams_sent", Kind::Counter, "Sent datagrams.", |counts| counts.datagrams_sent),
    ("tidegate_datagrams_dropped", Kind::Counter, "Datagrams that a full list of waiting ones dropped.", |counts| {
        counts.datagrams_dropped
    }),
    (
        "tidegate_datagrams_overflowed",
        Kind::Counter,
        "Datagrams for which the kernel's receive buffer had no room.",
        |counts| counts.datagrams_overflowed,
    ),
    ("tidegate_datagrams_lost", Kind::Counter, "Datagrams that the kernel or the device did not take.", |counts| {
        counts.datagrams_lost
    }),
    ("tidegate_datagrams_forwarded", Kind::Counter, "Datagrams that were for another loop than came to.", |counts| {
        counts.datagrams_forwarded
    }),
    (
        "tidegate_datagrams_to_predecessor",
        Kind::Counter,
        "Datagrams that were sent on to a server before, which drains.",
        |counts| counts.datagrams_to_predecessor,
    ),
    (
        "tidegate_datagrams_from_successor",
        Kind::Counter,
        "Datagrams of sessions of this server that a successor has sent on.",
        |counts| counts.datagrams_from_successor,
    ),
    ("tidegate_datagram_errors", Kind::Counter, "Reports that a datagram was not delivered or not sent.", |counts| {
        counts.datagram_errors
    }),
    ("tidegate_endpoints_panicked", Kind::Counter, "Protocols of datagram sockets that panicked.", |counts| {
        counts.endpoints_panicked
    }),
];

const OF_SESSIONS: &[Metric] = &[
    ("tidegate_quic_connections", Kind::Gauge, "Open QUIC connections, with those in their handshake.", |counts| {
        counts.sessions.connections
    }),
    ("tidegate_quic_begun", Kind::Counter, "QUIC connections that were accepted or begun.", |counts| {
        counts.sessions.begun
    }),
    ("tidegate_quic_handshakes", Kind::Counter, "QUIC handshakes that were completed.", |counts| {
        counts.sessions.handshakes
    }),
    ("tidegate_quic_handshakes_failed", Kind::Counter, "QUIC handshakes that failed, or took too long.", |counts| {
        counts.sessions.handshakes_failed
    }),
    ("tidegate_quic_retries", Kind::Counter, "QUIC clients that had to prove their address first.", |counts| {
        counts.sessions.retries
    }),
    ("tidegate_quic_refused", Kind::Counter, "QUIC clients that were refused.", |counts| counts.sessions.refused),
    ("tidegate_quic_ignored", Kind::Counter, "First QUIC packets that were dropped.", |counts| counts.sessions.ignored),
    ("tidegate_quic_packets_lost", Kind::Counter, "Lost packets of QUIC connections that are over.", |counts| {
        counts.sessions.packets_lost
    }),
    ("tidegate_quic_migrations", Kind::Counter, "Addresses of QUIC peers that have changed.", |counts| {
        counts.sessions.migrations
    }),
    ("tidegate_quic_idle_timeouts", Kind::Counter, "QUIC connections that were idle for too long.", |counts| {
        counts.sessions.idle_timeouts
    }),
    (
        "tidegate_quic_datagrams_dropped",
        Kind::Counter,
        "QUIC datagrams that a full queue dropped, or that were for no open stream.",
        |counts| counts.sessions.datagrams_dropped,
    ),
];

type Cause = (&'static str, fn(&Counts) -> u64);

const CAUSES: &[Cause] = &[
    ("done", |counts| counts.closed_done),
    ("aborted", |counts| counts.closed_aborted),
    ("broken", |counts| counts.closed_broken),
    ("protocol", |counts| counts.closed_protocol),
    ("failed", |counts| counts.closed_failed),
    ("deadline", |counts| counts.closed_deadline),
    ("panicked", |counts| counts.closed_panicked),
    ("write_timeout", |counts| counts.closed_write_timeout),
    ("idle_timeout", |counts| counts.closed_idle_timeout),
    ("read_timeout", |counts| counts.closed_read_timeout),
    ("handshake_timeout", |counts| counts.closed_handshake_timeout),
    ("age_timeout", |counts| counts.closed_age_timeout),
    ("replies_unread", |counts| counts.closed_replies_unread),
    ("shed", |counts| counts.closed_shed),
    ("too_slow", |counts| counts.closed_too_slow),
    ("drained", |counts| counts.closed_drained),
];

const REFUSALS: [(&str, Refusal); 4] = [
    ("denied", Refusal::Denied),
    ("too_many_connections", Refusal::TooManyConnections),
    ("too_fast", Refusal::TooFast),
    ("too_many_addresses", Refusal::TooManyAddresses),
];
