//! `BackplaneCounts`: numbers of a node for metrics.

/// Numbers of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackplaneCounts {
    /// Messages that this node has given to the broker.
    pub published: u64,
    /// Messages of this node that the broker did not confirm: it may have published them.
    pub unconfirmed: u64,
    /// Messages that were refused, since too many were waiting.
    pub refused: u64,
    /// Messages that rooms of this node have received.
    pub delivered: u64,
    /// Messages that a loop with members did not take, since it did not keep up.
    pub undelivered: u64,
    /// Messages on our channels that no node has sent.
    pub foreign: u64,
    /// Keys under our names whose values no script can read: each time that one is found.
    pub foreign_keys: u64,
    /// Kicks that this node has missed, and has read from the broker.
    pub late_kicks: u64,
    /// Messages of nodes with another version of the format.
    pub other_versions: u64,
    /// Messages whose offset was delivered before.
    pub duplicates: u64,
    /// Messages whose offset the broker has not given.
    pub impossible: u64,
    /// Points at which messages are lost.
    pub gaps: u64,
    /// Messages that were lost, as far as offsets tell.
    pub lost: u64,
    /// Messages that came from the history, since they were missing.
    pub recovered: u64,
    /// Reads of a history.
    pub history_reads: u64,
    /// Reads of a history that have failed; each is tried again.
    pub failed_reads: u64,
    /// Subscriptions of rooms that the broker has refused.
    pub refused_subscriptions: u64,
    /// Rooms that were subscribed again after a lost connection.
    pub resubscribes: u64,
    /// Lost connections to the broker.
    pub downs: u64,
    /// Presence requests, each for up to 100 rooms.
    pub presence_requests: u64,
    /// Rooms that are subscribed at present.
    pub rooms: u64,
    /// Those of them whose subscription the broker refuses: their members get no messages.
    pub refused_rooms: u64,
    /// Messages that wait for the broker at present.
    pub queued_messages: u64,
    /// Microseconds from the last own message to its return from the broker.
    pub lag_micros: u64,
    /// Whether the broker is connected.
    pub is_up: bool,
    /// Whether the broker refuses messages: a replica (`READONLY`), one without memory, or a stream without storage.
    pub is_refusing: bool,
}

/// A number with its name, for a text of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackplaneMetric {
    /// The name, without `_total`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Whether it only grows.
    pub is_counter: bool,
    /// The number.
    pub value: u64,
}

impl BackplaneCounts {
    /// All of them with their names.
    #[must_use]
    pub fn metrics(&self) -> Vec<BackplaneMetric> {
        let counters = [
            ("tidegate_backplane_published", "Messages given to the broker.", self.published),
            ("tidegate_backplane_unconfirmed", "Messages that the broker did not confirm.", self.unconfirmed),
            ("tidegate_backplane_refused", "Messages refused because too many waited.", self.refused),
            ("tidegate_backplane_delivered", "Messages that rooms have received.", self.delivered),
            ("tidegate_backplane_undelivered", "Messages that a loop did not take.", self.undelivered),
            ("tidegate_backplane_foreign", "Messages on our channels that no node has sent.", self.foreign),
            ("tidegate_backplane_foreign_keys", "Keys of rooms with values of others.", self.foreign_keys),
            ("tidegate_backplane_late_kicks", "Kicks that this node had missed.", self.late_kicks),
            ("tidegate_backplane_other_versions", "Messages of another format version.", self.other_versions),
            ("tidegate_backplane_duplicates", "Messages delivered before, and dropped.", self.duplicates),
            ("tidegate_backplane_impossible", "Messages with offsets that the broker has not given.", self.impossible),
            ("tidegate_backplane_gaps", "Points at which messages are lost.", self.gaps),
            ("tidegate_backplane_lost", "Messages lost, as far as offsets tell.", self.lost),
            ("tidegate_backplane_recovered", "Missing messages that came from the history.", self.recovered),
            ("tidegate_backplane_history_reads", "Reads of a history.", self.history_reads),
            ("tidegate_backplane_failed_reads", "Reads of a history that failed.", self.failed_reads),
            (
                "tidegate_backplane_refused_subscriptions",
                "Subscriptions that the broker refused.",
                self.refused_subscriptions,
            ),
            ("tidegate_backplane_resubscribes", "Rooms subscribed again.", self.resubscribes),
            ("tidegate_backplane_downs", "Lost connections to the broker.", self.downs),
            ("tidegate_backplane_presence_requests", "Presence requests.", self.presence_requests),
        ];
        let gauges = [
            ("tidegate_backplane_up", "Whether the broker is connected.", u64::from(self.is_up)),
            ("tidegate_backplane_refusing", "Whether the broker refuses messages.", u64::from(self.is_refusing)),
            ("tidegate_backplane_rooms", "Rooms that are subscribed.", self.rooms),
            ("tidegate_backplane_refused_rooms", "Rooms whose subscription the broker refuses.", self.refused_rooms),
            ("tidegate_backplane_queued_messages", "Messages that wait for the broker.", self.queued_messages),
            (
                "tidegate_backplane_lag_microseconds",
                "Time from the last own message to its return from the broker.",
                self.lag_micros,
            ),
        ];
        let metric = |is_counter| {
            move |(name, help, value): (&'static str, &'static str, u64)| BackplaneMetric {
                name,
                help,
                is_counter,
                value,
            }
        };
        counters.into_iter().map(metric(true)).chain(gauges.into_iter().map(metric(false))).collect()
    }
}
