//! The bytes of a connection's sections that wait for entries of the table, or for their rest.

/// Their bound, and the streams that are not read because of it.
#[derive(Debug, Default)]
pub(super) struct WaitingBytes {
    bytes: usize,
    /// Sections that are being collected.
    sections: usize,
    /// Streams that wait until there is room.
    streams: Vec<u64>,
    has_room_again: bool,
}

impl WaitingBytes {
    /// The bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many bytes may be read before it is known how many a section has.
    pub(super) fn piece_bytes(&self, bytes_max: u32) -> usize {
        (bytes_max as usize).saturating_sub(self.bytes).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
    }

    /// Begins to collect a section, for which so many more bytes wait. The first one always may, so that one makes progress.
    /// Otherwise the stream waits.
    pub(super) fn begin(&mut self, stream: u64, more: usize, bytes_max: u32) -> bool {
        let may_begin = self.sections == 0 || self.bytes + more <= bytes_max as usize;
        if may_begin {
            self.sections += 1;
        } else if !self.streams.contains(&stream) {
            self.streams.push(stream);
        }
        may_begin
    }

    /// A section is no longer collected.
    pub(super) fn end(&mut self) {
        self.sections -= 1;
        self.has_room_again = true;
    }

    /// Changes how many bytes a stream has.
    pub(super) fn change(&mut self, before: usize, after: usize) {
        self.bytes = self.bytes - before + after;
        self.has_room_again |= after < before;
    }

    /// The streams that have waited, once there is room again.
    pub(super) fn take_streams(&mut self) -> Vec<u64> {
        if std::mem::take(&mut self.has_room_again) { std::mem::take(&mut self.streams) } else { Vec::new() }
    }

    /// A stream is over.
    pub(super) fn remove(&mut self, stream: u64) {
        self.streams.retain(|waiting| *waiting != stream);
    }
}

/// Bounds of a piece that is read of a stream while its frames are collected.
const PIECE_BYTES_MIN: usize = 64;
pub(super) const PIECE_BYTES_MAX: usize = 4096;
