//! `HandlerConfig`: the password and the limits of a server's connections.

use crate::outgoing_reply::OutgoingReply;
use crate::server::channels::TopicKind;

/// Configuration that the connections of a server share. Each bound is for one connection.
#[derive(Debug, Clone)]
pub struct HandlerConfig {
    /// The password of AUTH; none unless set. Without it a client may do nothing but authenticate.
    pub password: Option<Box<[u8]>>,
    /// The version that HELLO and INFO report; 7.0.15 unless set. Clients choose commands by it.
    pub server_version: &'static str,
    /// Replies that wait behind one that is not ready; 128 unless set. Then no command is decoded. It stops a client from
    /// filling memory with replies.
    pub queued_replies_max: usize,
    /// Bytes of the replies that wait behind one that is not ready; 16 MiB unless set. Then no command is decoded. It stops
    /// a few commands with long replies from filling memory.
    pub queued_bytes_max: usize,
    /// Bytes of the commands between MULTI and EXEC; 64 MiB unless set. It stops a transaction without an end.
    pub transaction_bytes_max: usize,
    /// Channels and patterns of one connection; 65,536 unless set. It stops a client from filling memory with names.
    pub subscriptions_max: usize,
    /// Bytes of those names; 4 MiB unless set. It stops a client from filling memory with a few long names.
    pub subscription_bytes_max: usize,
    /// Patterns among them; 1,024 unless set. It stops a client that uses up the patterns of the server.
    pub patterns_max: usize,
    /// Different patterns of all connections; 4,096 unless set. One of 64 bytes and more counts once more for each 64 bytes.
    /// Each published message is compared with all of them, while other loops wait: it stops clients that make that slow. A
    /// byte of the channel's name costs at most a nanosecond or two for each pattern, so a PUBLISH takes some milliseconds at
    /// worst.
    pub all_patterns_max: usize,
    /// Bytes of a pattern; 1,024 unless set. It stops a pattern that takes long to compare.
    pub pattern_bytes_max: usize,
    /// Bytes of a channel's name; 1,024 unless set. It stops a name that takes long to compare with patterns.
    pub channel_bytes_max: usize,
}

impl Default for HandlerConfig {
    fn default() -> Self {
        Self {
            password: None,
            server_version: "7.0.15",
            queued_replies_max: 128,
            queued_bytes_max: 16 << 20,
            transaction_bytes_max: 64 << 20,
            subscriptions_max: 65_536,
            subscription_bytes_max: 4 << 20,
            patterns_max: 1_024,
            all_patterns_max: 4_096,
            pattern_bytes_max: 1_024,
            channel_bytes_max: 1_024,
        }
    }
}

impl HandlerConfig {
    /// The error for a name that is too long.
    pub(super) fn check_name(&self, kind: TopicKind, name: &[u8]) -> Result<(), OutgoingReply> {
        let (word, max) = match kind {
            TopicKind::Channel => ("the name of a channel", self.channel_bytes_max),
            TopicKind::Pattern => ("a pattern", self.pattern_bytes_max),
        };
        let error = || OutgoingReply::error(format!("ERR {word} has more than {max} bytes"));
        if name.len() <= max { Ok(()) } else { Err(error()) }
    }
}
