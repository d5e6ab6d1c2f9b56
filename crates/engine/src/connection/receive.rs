//! Bytes for a stream, within the dispatch of its session: a short way through a dispatch, for a stream on which nothing
//! else happens.
//!
//! A stream is *plain* if nothing is queued, armed, watched or unread, neither side has ended, and its application is a
//! handler. If it is plain before the bytes are decoded, and but for its queue also afterwards, then nothing that a
//! dispatch does beside decoding has an effect, except that the queue is sent. Its session does that, which has offered
//! room at the end of its own queue (`session/application.rs`). In all other cases the dispatch goes on as any other
//! (`dispatch.rs`).
//!
//! A stream that has come with all bytes of its peer is *answered* if after decoding its codec is finished, and nothing but
//! its queue is left. Its session writes the queue and closes the stream, which was in no slot (`session/application.rs`).
//! In all other cases the dispatch goes on as well.

use tidegate_buffer::Slice;
use tidegate_codec::Pipeline;
use tidegate_sys::Token;

use super::{Application, Connection, Link};
use crate::loop_core::Core;
use crate::slot_entry::Dispatched;

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

    /// Takes in the opening of a stream, and all bytes of its peer.
    #[inline]
    pub(super) fn take_in_opening(&mut self, core: &mut Core, token: Token, bytes: Slice) -> Dispatched {
        core.counters.streams += 1;
        self.link.set(Link::PEER_ENDED | Link::CONSUMED, true);
        self.link.input.append(bytes, &core.pool);
        self.open(core, token)
    }

    /// Whether a stream is over once its session has written what is in its queue.
    #[inline]
    pub(super) fn is_answered(&self, core: &Core) -> bool {
        !A::PULLS
            && self.link.is_answered()
            && !core.has_spawned
            && self.codec.status().is_finished
            && self.codec.is_established()
            && self.codec.buffered_bytes() == 0
            && self.codec.input_memory() == 0
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
