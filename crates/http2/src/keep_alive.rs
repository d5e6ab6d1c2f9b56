//! `KeepAlive`: when a silent peer is sent a PING, and until when it has to answer (RFC 9113 §6.7).

use std::time::Instant;

use crate::limits::Limits;

#[derive(Debug)]
pub(crate) struct KeepAlive {
    /// When bytes of the peer have come last.
    heard: Instant,
    /// When a PING was sent, unless something has come since.
    asked: Option<Instant>,
    /// A PING has no acknowledgement yet.
    is_unacknowledged: bool,
    /// How many bytes of the peer were left undecoded: those of a part of a frame.
    left: usize,
}

impl KeepAlive {
    pub(crate) fn new(now: Instant) -> Self {
        Self { heard: now, asked: None, is_unacknowledged: false, left: 0 }
    }

    /// Bytes of the peer have come. Whatever they are, they show that it is there.
    pub(crate) fn hear(&mut self, now: Instant) {
        (self.heard, self.asked) = (now, None);
    }

    /// So many bytes of the peer are there. They have come if they are more than those that were left.
    pub(crate) fn hear_input(&mut self, bytes: usize, now: Instant) {
        if bytes > self.left {
            self.hear(now);
        }
    }

    /// So many bytes could not be decoded yet.
    pub(crate) fn leave_input(&mut self, bytes: usize) {
        self.left = bytes;
    }

    /// A PING was sent.
    pub(crate) fn ask(&mut self, now: Instant) {
        (self.asked, self.is_unacknowledged) = (Some(now), true);
    }

    /// An acknowledgement has come. Returns whether a PING was waiting for it.
    pub(crate) fn acknowledge(&mut self) -> bool {
        std::mem::take(&mut self.is_unacknowledged)
    }

    /// Whether a PING waits for its answer.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// When a PING is due, if `has_streams`, or its answer is overdue.
    pub(crate) fn deadline(&self, has_streams: bool, limits: &Limits) -> Option<Instant> {
        match self.asked {
            Some(at) => at.checked_add(limits.ping_timeout),
            None if has_streams => self.heard.checked_add(limits.ping_interval?),
            None => None,
        }
    }
}

/// The content of such a PING.
pub(crate) const KEEP_ALIVE_PING: [u8; 8] = *b"tidelive";
