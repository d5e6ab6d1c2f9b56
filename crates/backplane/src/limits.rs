//! `NodeLimits`: how much may wait, and how long.

use std::time::Duration;

/// The limits of a node.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeLimits {
    /// Messages of this node that wait for the broker; a further one is refused. 65,536.
    pub queued_messages_max: usize,
    /// Bytes of these messages. 64 MiB.
    pub queued_bytes_max: usize,
    /// Messages of a room that wait while its history is read. 1,024. If there are more, the history is read once more.
    pub buffered_messages_max: usize,
    /// Bytes of these messages. 4 MiB.
    pub buffered_bytes_max: usize,
    /// History reads at a time; further rooms wait. 64. It bounds the replies that a broker sends at once after a reconnect.
    pub reads_max: usize,
    /// The length of a room's name; messages to a room with a longer name are refused. 64 KiB.
    pub room_name_bytes_max: usize,
    /// Nodes whose members a room knows; further ones are not counted. 1,024.
    pub nodes_max: usize,
    /// Names of members that a node sends to others, for each room. 100.
    pub names_max: usize,
    /// Bytes of these names. 16 KiB. At most an eighth of a reply on Redis, 8 MiB, and 512 KiB on NATS, where a server with a smaller
    /// `max_payload` gets longer lists without names.
    pub names_bytes_max: usize,
    /// How long a room stays subscribed after its last member has left. 1 s.
    pub linger: Duration,
    /// Joins and leaves of this period are one message. 250 ms.
    pub presence_window: Duration,
    /// How long members of a node that has died are counted, and two presence windows more at most. 30 s.
    pub lease: Duration,
    /// How long the broker remembers the last kick of a room, for nodes that have missed it. 10 min. It bounds the kicks that a
    /// broker stores.
    pub kick_lease: Duration,
}

impl NodeLimits {
    /// The same limits, with times that can be added to others.
    pub(crate) fn effective(mut self) -> Self {
        for time in [&mut self.linger, &mut self.presence_window, &mut self.lease, &mut self.kick_lease] {
            *time = (*time).min(CENTURY);
        }
        self
    }
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self {
            queued_messages_max: 65_536,
            queued_bytes_max: 64 << 20,
            buffered_messages_max: 1024,
            buffered_bytes_max: 4 << 20,
            reads_max: 64,
            room_name_bytes_max: 64 << 10,
            nodes_max: 1024,
            names_max: 100,
            names_bytes_max: 16 << 10,
            linger: Duration::from_secs(1),
            presence_window: Duration::from_millis(250),
            lease: Duration::from_secs(30),
            kick_lease: Duration::from_secs(600),
        }
    }
}

/// No process lasts as long. Redis takes such a time in milliseconds.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
