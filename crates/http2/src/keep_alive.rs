//! `KeepAlive`: when a silent peer is sent a PING, and until when it has to answer (RFC 9113 §6.7).

use std::time::Instant;

use crate::limits::Limits;

#[derive(Debug)]
pub(crate) struct KeepAlive {
    /// When bytes of the peer have come last.
    heard: Instant,
    /// When a PING was sent, unless something has come since.
    asked: Option<Instant>,
}

impl KeepAlive {
    pub(crate) fn new(now: Instant) -> Self {
        Self { heard: now, asked: None }
    }

    /// Bytes of the peer have come. Whatever they are, they show that it is there.
    pub(crate) fn hear(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// A PING was sent.
    pub(crate) fn ask(&mut self, now: Instant) {
        self.asked = Some(now);
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
