//! `Names`: the subjects and streams of a prefix, and rooms as tokens of a subject.

use std::fmt::Write as _;

use tidegate_engine::NodeId;

/// The subjects and streams of a prefix.
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: token_of(prefix.trim_end_matches([':', '.'])) }
    }

    /// The subject of a room.
    pub(super) fn room(&self, token: &str) -> String {
        format!("{}.room.{token}", self.prefix)
    }

    /// The subject of a room's messages that are kept in this epoch. `*` for all rooms.
    pub(super) fn store(&self, messages_max: usize, epoch: u64, token: &str) -> String {
        format!("{}.store.{messages_max}.{epoch:016x}.{token}", self.prefix)
    }

    /// The stream of all rooms with this bound.
    pub(super) fn history_stream(&self, messages_max: usize) -> String {
        format!("{}-history-{messages_max}", self.prefix)
    }

    /// The subject of a node's members.
    pub(super) fn lease(&self, token: &str, node: NodeId) -> String {
        format!("{}.lease.{token}.{node}", self.prefix)
    }

    /// All nodes of a room. `*` for all rooms.
    pub(super) fn leases(&self, token: &str) -> String {
        format!("{}.lease.{token}.*", self.prefix)
    }

    /// The subject of a room's last kick. `*` for all rooms.
    pub(super) fn kick(&self, token: &str) -> String {
        format!("{}.kick.{token}", self.prefix)
    }

    /// The subject by which a node reads the clock of the stream of kicks. No room has this token.
    pub(super) fn kick_clock(&self, node: NodeId) -> String {
        format!("{}.kick.=={node}", self.prefix)
    }

    /// The subject of probes of the stream of histories. No room has this token.
    pub(super) fn store_probe(&self, messages_max: usize, epoch: u64) -> String {
        self.store(messages_max, epoch, PROBE)
    }

    /// The subject of probes of the stream of members.
    pub(super) fn lease_probe(&self) -> String {
        format!("{}.lease.{PROBE}.{PROBE}", self.prefix)
    }

    /// The subject of probes of the stream of kicks.
    pub(super) fn kick_probe(&self) -> String {
        self.kick(PROBE)
    }

    pub(super) fn kick_stream(&self) -> String {
        format!("{}-kicks", self.prefix)
    }

    pub(super) fn lease_stream(&self) -> String {
        format!("{}-presence", self.prefix)
    }
}

/// The epoch in the subject of a message that is kept.
pub(super) fn epoch_in(subject: &str) -> Option<u64> {
    u64::from_str_radix(subject.rsplit('.').nth(1)?, 16).ok()
}

/// A name as a token of a subject: letters, digits, `-` and `_` stay, other bytes become `=` and two digits. No two names have
/// the same token, and no token is empty.
pub(super) fn token_of(name: &str) -> String {
    if name.is_empty() {
        return "=".to_owned();
    }
    let mut token = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            token.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(token, "={byte:02X}");
        }
    }
    token
}

/// The token of probes.
const PROBE: &str = "==probe";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_tokens_and_differ_as_names_do() {
        for (name, token) in
            [("tides-1_A", "tides-1_A"), ("a.b", "a=2Eb"), ("", "="), ("=", "=3D"), ("> *", "=3E=20=2A")]
        {
            assert_eq!(token_of(name), token);
        }
        let mut tokens: Vec<_> = (0..=127).map(|byte: u8| token_of(&char::from(byte).to_string())).collect();
        assert!(tokens.iter().all(|token| tidegate_nats::is_subject(token.as_bytes()) && !token.contains('.')));
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 128);
    }
}
