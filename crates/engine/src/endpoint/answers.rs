//! Streams that are answered within the event that opens them.
//!
//! Most requests come whole and get a short response at once. Such a stream takes the short way of
//! `connection/opening.rs`: it is in no slot, its session writes its queue and closes it, and its memory is free for the
//! next one. A stream that needs longer goes on as any other (`sessions.rs`).

use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate_buffer::{Outbound, Pool, Slice};
use tidegate_codec::mux::ResetCause;
use tidegate_codec::{ReadEnd, StreamEndpoint, StreamNumber};
use tidegate_sys::Token;

use super::sessions::SessionsEntry;
use super::stream_io::{Written, read_behind, write};
use crate::close_reason::CloseReason;
use crate::loop_core::Core;
use crate::session::MakeStream;
use crate::slot_entry::{SlotEntry, SlotEvent};

impl<E: StreamEndpoint + 'static> SessionsEntry<E> {
    /// Whether a response may be written before those that follow: none waits that may be more urgent.
    pub(super) fn may_answer(&self, core: &Core) -> bool {
        !self.is_draining && !core.drain.is_under_way() && !self.tables.has_writes()
    }

    /// Reads from a stream that the peer has opened, and makes it with these bytes.
    pub(super) fn accept_at_once(
        &mut self,
        core: &mut Core,
        make: &dyn MakeStream,
        (session, number): (u32, StreamNumber),
        flags: u16,
    ) {
        let (bytes, end) = read_opening(&mut self.base.endpoint, &core.pool, number);
        let is_whole = end == ReadEnd::Ended && !bytes.is_empty();
        let queue = if is_whole { core.take_answer_queue() } else { Outbound::new(&core.pool) };
        let Some((token, link, index)) = self.add_stream_with(core, queue, (session, number), flags) else { return };
        if !is_whole {
            let made = catch_unwind(AssertUnwindSafe(|| make.make_stream(core, token, link)));
            return match (made, self.tables.index(number)) {
                (Err(panic), _) => self.on_panic_of_make(core, token, number, panic),
                (Ok(()), Some(index)) => {
                    self.deliver(core, index, bytes, end);
                    self.tables.read_later(index);
                }
                (Ok(()), None) => {}
            };
        }
        if let Some(stream) = self.tables.stream(index) {
            stream.set_read_whole();
        }
        match catch_unwind(AssertUnwindSafe(|| make.answer_stream(core, token, link, bytes))) {
            Ok(Some(stream)) => self.answer(core, token, (index, number), stream),
            Ok(None) => {
                let urgency = core.slots.get_mut(token).and_then(|entry| entry.urgency());
                if let (Some(index), Some(urgency)) = (self.tables.index(number), urgency) {
                    self.prioritize(index, number, urgency);
                }
            }
            Err(panic) => self.on_panic_of_make(core, token, number, panic),
        }
    }

    /// Writes the complete response of a stream that is not in its slot, and closes it. A long one, and one that finds no
    /// window, waits for its turn.
    fn answer(
        &mut self,
        core: &mut Core,
        token: Token,
        (index, number): (u32, StreamNumber),
        mut stream: Box<dyn SlotEntry>,
    ) {
        if self.tables.stream(index).is_none_or(|known| known.token != token) {
            return core.dispatch_entry(token, stream, SlotEvent::SessionClosed(CloseReason::of_streams(None)));
        }
        if let Some(urgency) = stream.urgency() {
            self.prioritize(index, number, urgency);
        }
        let mut written = Written::default();
        if let Some(queue) = stream.outbound().filter(|queue| queue.pending() <= ANSWER_BYTES_MAX) {
            queue.flush();
            written = write_answer(&mut self.base.endpoint, number, queue);
            if written.is_all && !written.is_broken {
                core.keep_answer_queue(queue);
                self.base.endpoint.finish(number);
                self.tables.remove_stream(index);
                self.base.endpoint.close(number, Some(ResetCause::Unneeded), false);
                return core.close_answered(token, stream);
            }
        }
        core.dispatch_entry(token, stream, SlotEvent::Scheduled);
        if written.is_broken {
            // A file is shorter than its region: the peer must not take the bytes for complete ones.
            core.dispatch(token, SlotEvent::Failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

/// Reads the first bytes of a stream. Most requests are short, and need memory for their length only.
fn read_opening(endpoint: &mut impl StreamEndpoint, pool: &Pool, number: StreamNumber) -> (Slice, ReadEnd) {
    let mut space = [0; OPENING_BYTES];
    let (count, end) = endpoint.read(number, &mut space);
    let first = &space[..count];
    if end == ReadEnd::More { read_behind(first, endpoint, pool, number) } else { (pool.copy(first), end) }
}

/// Writes the queue of an answer. Bytes in one piece stay in the queue once they are written: its memory serves the next
/// answer.
fn write_answer(endpoint: &mut impl StreamEndpoint, number: StreamNumber, queue: &mut Outbound) -> Written {
    let Some(bytes) = queue.whole() else { return write(endpoint, number, queue) };
    match endpoint.write(number, bytes) {
        Ok(taken) if taken == bytes.len() => Written::all(),
        Ok(taken) => Written::blocked(queue, taken),
        Err(_) => Written::dropped(queue),
    }
}

/// Bytes of a short request, on the stack.
const OPENING_BYTES: usize = 1024;

/// A longer response takes turns with others.
const ANSWER_BYTES_MAX: u64 = 4 * 1024;
