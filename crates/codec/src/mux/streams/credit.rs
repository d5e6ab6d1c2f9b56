//! Credit of streams and of their session, both ways: received and consumed bytes, updates that are due, and the bytes that may be
//! sent (RFC 9113 §5.2).

use super::{
    BLOCKED, FlowError, LISTED, PEER_ENDED, StreamKey, Streams, UPDATES, VACANT, WINDOW_CEILING, WINDOW_MAX,
    WindowUpdate,
};
use crate::mux::received::ReceivedBytes;

impl<S: Default> Streams<S> {
    // The inbound direction.

    /// Bytes of the peer have arrived on a stream, or on one that is closed already (`None`): those count for the
    /// session only, and as consumed.
    ///
    /// # Errors
    /// [`FlowError::Exceeded`].
    pub fn receive(&mut self, key: Option<StreamKey>, bytes: u32) -> Result<(), FlowError> {
        let (stream_max, session_max) = (self.windows.stream_receive, self.windows.session_receive);
        self.receive.add(bytes, session_max).ok_or(FlowError::Exceeded)?;
        match key.and_then(|key| self.entry_mut(key)) {
            Some(entry) => entry.receive.add(bytes, stream_max << entry.doublings).ok_or(FlowError::Exceeded),
            None => {
                self.consume_session(bytes);
                Ok(())
            }
        }
    }

    /// The same for a frame with bytes of the stream with the number `id`: bytes of a stream that is closed, or that the
    /// peer has ended, count for the session only. Returns the stream if they are for its application.
    ///
    /// # Errors
    /// [`FlowError::Exceeded`].
    #[inline]
    pub fn receive_frame(&mut self, id: u32, bytes: u32) -> Result<Option<StreamKey>, FlowError> {
        let (stream_max, session_max) = (self.windows.stream_receive, self.windows.session_receive);
        self.receive.add(bytes, session_max).ok_or(FlowError::Exceeded)?;
        if let Some(key) = self.find(id)
            && let Some(entry) = self.entry_mut(key)
            && entry.flags & PEER_ENDED == 0
        {
            entry.receive.add(bytes, stream_max << entry.doublings).ok_or(FlowError::Exceeded)?;
            return Ok(Some(key));
        }
        self.consume_session(bytes);
        Ok(None)
    }

    /// The application has consumed bytes of a stream.
    pub fn consume(&mut self, key: StreamKey, bytes: u32) {
        let Some(entry) = self.entry(key) else { return };
        let unconsumed = entry.receive.outstanding - entry.receive.consumed;
        self.set_unread(key, unconsumed.saturating_sub(bytes));
    }

    /// So many bytes of a stream are unread; the application has finished with all others.
    #[inline]
    pub fn set_unread(&mut self, key: StreamKey, bytes: u32) {
        let initial = self.windows.stream_receive;
        let Some(entry) = self.entry_mut(key) else { return };
        let window = initial << entry.doublings;
        let consumed = entry.receive.outstanding.saturating_sub(bytes);
        let more = consumed.saturating_sub(entry.receive.consumed);
        entry.receive.consumed += more;
        // A peer that sends no more needs no credit.
        let is_due = entry.receive.consumed >= (window / 2).max(1) && entry.flags & (UPDATES | PEER_ENDED) == 0;
        self.receive.consumed += more;
        if is_due {
            self.push_update(key);
        }
    }

    #[cold]
    fn push_update(&mut self, key: StreamKey) {
        let Some(tables) = &mut self.tables else { return };
        tables.entries[key.index as usize].flags |= UPDATES;
        tables.updates.push(key.index);
    }

    pub(super) fn consume_session(&mut self, bytes: u32) {
        self.receive.consume(bytes);
    }

    /// Whether credit for the session is half of the peer's full credit. Bytes that are not consumed do not count:
    /// bytes that some streams hold must not keep the rest from being granted.
    fn is_session_update_due(&self) -> bool {
        let ReceivedBytes { outstanding, consumed } = self.receive;
        let most = self.windows.session_receive.saturating_sub(outstanding - consumed);
        consumed > 0 && consumed >= most / 2
    }

    /// Whether streams that nothing reads occupy more than half of the session's window, which is to grow then: they
    /// must not stop the others. Their own windows bound the waiting bytes, so the session's window has no bound below.
    fn is_session_held(&self) -> bool {
        let window = self.windows.session_receive;
        self.window_max > 0 && self.receive.unconsumed() > window / 2 && window <= WINDOW_CEILING / 2
    }

    /// The next credit that is to be written.
    pub fn next_update(&mut self) -> Option<WindowUpdate> {
        let (window_max, initial) = (self.window_max, self.windows.stream_receive);
        let is_held = self.is_session_held();
        if is_held || self.is_session_update_due() {
            let window = self.windows.session_receive;
            let more = if is_held { window } else { self.receive.growth(window, window_max) };
            self.windows.session_receive += more;
            return Some(WindowUpdate { stream: None, bytes: self.receive.grant() + more });
        }
        let tables = self.tables.as_mut()?;
        while let Some(index) = tables.updates.pop() {
            let entry = &mut tables.entries[index as usize];
            entry.flags &= !UPDATES;
            if entry.flags & VACANT == 0 {
                let more = entry.receive.growth(initial << entry.doublings, window_max);
                entry.doublings += u8::from(more > 0);
                let bytes = entry.receive.grant() + more;
                return Some(WindowUpdate { stream: Some(entry.id), bytes });
            }
            if entry.flags & LISTED == 0 {
                tables.vacate(index);
            }
        }
        None
    }

    /// Bytes that arrived on any stream and were not consumed.
    #[must_use]
    pub fn unconsumed_bytes(&self) -> u32 {
        self.receive.outstanding - self.receive.consumed
    }

    // The outbound direction.

    /// The peer grants more bytes on a stream, or on the session (`None`).
    ///
    /// # Errors
    /// [`FlowError::Overflow`].
    pub fn grant(&mut self, key: Option<StreamKey>, bytes: u32) -> Result<(), FlowError> {
        let Some(key) = key else {
            self.send_window += i64::from(bytes);
            if self.send_window > WINDOW_MAX {
                return Err(FlowError::Overflow);
            }
            if self.send_window > 0
                && let Some(tables) = &mut self.tables
            {
                tables.schedule.resume_stalled(&mut tables.entries);
            }
            return Ok(());
        };
        let Some(entry) = self.entry_mut(key) else { return Ok(()) };
        let window = i64::from(entry.send_window) + i64::from(bytes);
        if window > WINDOW_MAX {
            return Err(FlowError::Overflow);
        }
        entry.send_window = window as i32;
        self.unblock(key);
        Ok(())
    }

    /// The peer has changed the initial window of streams: the windows of all streams move by the difference, and may
    /// become negative (RFC 9113 §6.9.2).
    ///
    /// # Errors
    /// [`FlowError::Overflow`].
    pub fn set_initial_send_window(&mut self, bytes: u32) -> Result<(), FlowError> {
        let difference = i64::from(bytes) - i64::from(self.windows.stream_send);
        if i64::from(bytes) > WINDOW_MAX {
            return Err(FlowError::Overflow);
        }
        self.windows.stream_send = bytes;
        for index in 0..self.places() {
            let Some(key) = self.at(index) else { continue };
            let Some(entry) = self.entry_mut(key) else { continue };
            let window = i64::from(entry.send_window) + difference;
            if window > WINDOW_MAX {
                return Err(FlowError::Overflow);
            }
            entry.send_window = window as i32;
            self.unblock(key);
        }
        Ok(())
    }

    fn unblock(&mut self, key: StreamKey) {
        let Some(entry) = self.entry_mut(key) else { return };
        if entry.flags & BLOCKED != 0 && entry.send_window > 0 {
            entry.flags &= !BLOCKED;
            self.set_ready(key);
        }
    }

    /// How many bytes may be sent on a stream now.
    #[must_use]
    pub fn send_allowance(&self, key: StreamKey) -> u32 {
        let stream = self.entry(key).map_or(0, |entry| i64::from(entry.send_window));
        stream.min(self.send_window).max(0) as u32
    }
}
