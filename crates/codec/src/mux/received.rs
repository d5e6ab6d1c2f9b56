//! `ReceivedBytes`: the bytes that have arrived in a window, and how many of them are granted again.

/// The inbound bytes of a window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReceivedBytes {
    /// Bytes that arrived and were not granted again.
    pub(super) outstanding: u32,
    /// Those of them that were consumed.
    pub(super) consumed: u32,
}

impl ReceivedBytes {
    /// `None` if that is more than a window of `max` bytes allows.
    #[inline]
    pub(super) fn add(&mut self, bytes: u32, max: u32) -> Option<()> {
        if bytes > max - self.outstanding.min(max) {
            return None;
        }
        self.outstanding += bytes;
        Some(())
    }

    /// Bytes that were not consumed.
    pub(super) fn unconsumed(self) -> u32 {
        self.outstanding - self.consumed
    }

    /// Returns how many of the bytes had not been consumed.
    pub(super) fn consume(&mut self, bytes: u32) -> u32 {
        let consumed = bytes.min(self.outstanding - self.consumed);
        self.consumed += consumed;
        consumed
    }

    /// By how much a window of this size grows now.
    pub(super) fn growth(&self, window: u32, window_max: u32) -> u32 {
        if self.consumed == self.outstanding && window <= window_max / 2 { window } else { 0 }
    }

    pub(super) fn grant(&mut self) -> u32 {
        let bytes = std::mem::take(&mut self.consumed);
        self.outstanding -= bytes;
        bytes
    }
}
