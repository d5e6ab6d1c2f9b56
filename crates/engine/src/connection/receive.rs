//! Bytes for a stream, within the dispatch of its session: a short way through a dispatch, for a stream on which nothing
//! else happens.
//!
//! A stream is *plain* if nothing is queued, armed, watched or unread, neither side has ended, and its application is a
//! handler. If it is plain before the bytes are decoded, and but for its queue also afterwards, then nothing that a
//! dispatch does beside decoding has an effect, except that the queue is sent. Its session does that, which has offered
//! room at the end of its own queue (`session/application.rs`). In all other cases the dispatch goes on as any other
//! (`dispatch.rs`).

use tidegate_buffer::Slice;
use tidegate_codec::Pipeline;

use super::{Application, Connection, Link};
use crate::loop_core::Core;

impl<C: Pipeline, A: Application<C>> Connection<C, A> {
    /// Takes bytes in if the session of this stream offers to send what it replies, and it is plain. Otherwise the bytes
    /// are returned.
    #[inline]
    pub(super) fn receive_plain(&mut self, core: &mut Core, bytes: Slice) -> Option<Slice> {
        if !(core.offers_room && self.is_plain() && self.link.outbound_is_empty()) {
            return Some(bytes);
        }
        let (queue, input) = self.link.queues();
        queue.attach(&core.pool);
        queue.borrow_room(&mut core.room);
        input.append(bytes, &core.pool);
        None
    }

    /// Whether a dispatch of plain bytes is over: decoding has stopped for want of input, and the stream is plain but for
    /// its queue.
    #[inline]
    pub(super) fn is_done_plain(&mut self, core: &Core, starved: bool) -> bool {
        let is_done = starved && self.is_plain();
        if is_done {
            self.link.input.compact(&core.pool);
        } else {
            self.link.set(Link::CONSUMED, true);
        }
        is_done
    }

    /// Whether a dispatch has nothing to do but to decode and to send.
    #[inline]
    fn is_plain(&self) -> bool {
        !A::PULLS
            && self.link.is_plain()
            && self.codec.is_established()
            && self.codec.buffered_bytes() == 0
            && self.codec.input_memory() == 0
            && !self.codec.status().is_finished
            && self.codec.poll_timeout().is_none()
    }
}
