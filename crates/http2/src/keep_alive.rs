//! `KeepAlive`: when a silent peer is sent a PING, and until when it has to answer (RFC 9113 §6.7).

use std::time::Instant;

use crate::limits::Limits;

#[derive(Debug)]
pub(crate) struct KeepAlive {
    /// When bytes of the peer have come last.
    received: Instant,
    /// When a PING was sent, unless something has come since.
    ping_sent: Option<Instant>,
    /// A PING has no acknowledgement yet.
    is_unacknowledged: bool,
    /// How many bytes of the peer were left undecoded: those of a part of a frame.
    left: usize,
}

impl KeepAlive {
    pub(crate) fn new(now: Instant) -> Self {
        Self { received: now, ping_sent: None, is_unacknowledged: false, left: 0 }
    }

    /// Bytes of the peer have come. Whatever they are, they show that it is there.
    pub(crate) fn on_received(&mut self, now: Instant) {
        (self.received, self.ping_sent) = (now, None);
    }

    /// So many bytes of the peer are there. They have come if they are more than those that were left.
    pub(crate) fn on_input(&mut self, bytes: usize, now: Instant) {
        if bytes > self.left {
            self.on_received(now);
        }
    }

    /// So many bytes could not be decoded yet.
    pub(crate) fn on_undecoded(&mut self, bytes: usize) {
        self.left = bytes;
    }

    /// A PING was sent.
    pub(crate) fn on_ping_sent(&mut self, now: Instant) {
        (self.ping_sent, self.is_unacknowledged) = (Some(now), true);
    }

    /// An acknowledgement has come. Returns whether a PING was waiting for it.
    pub(crate) fn acknowledge(&mut self) -> bool {
        std::mem::take(&mut self.is_unacknowledged)
    }

    /// Whether a PING waits for its answer.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.ping_sent.is_some()
    }

    /// When a PING is due, if `has_streams`, or its answer is overdue.
    pub(crate) fn deadline(&self, has_streams: bool, limits: &Limits) -> Option<Instant> {
        match self.ping_sent {
            Some(at) => at.checked_add(limits.ping_timeout),
            None if has_streams => self.received.checked_add(limits.ping_interval?),
            None => None,
        }
    }
}

/// The content of such a PING.
pub(crate) const KEEP_ALIVE_PING: [u8; 8] = *b"tidelive";
