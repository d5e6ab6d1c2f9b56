//! A stream that has come with all bytes of its peer: a short way through its first dispatch.
//!
//! Such a stream is *answered* if after decoding its codec is finished, and nothing but its queue is left. Its session
//! writes the queue and closes the stream, which was in no slot (`session/application.rs`). In all other cases the
//! dispatch goes on as any other (`dispatch.rs`). The answer of a codec over filters goes through these first.

use tidegate_buffer::Slice;
use tidegate_codec::Pipeline;
use tidegate_sys::Token;

use super::closing::WriteSide;
use super::{Application, Connection, Link};
use crate::loop_core::Core;
use crate::slot_entry::Dispatched;

impl<C: Pipeline, A: Application<C>> Connection<C, A> {
    /// Takes in the opening of a stream, and all bytes of its peer.
    #[inline]
    pub(super) fn take_in_opening(&mut self, core: &mut Core, token: Token, bytes: Slice) -> Dispatched {
        core.counters.streams += 1;
        self.link.set(Link::PEER_ENDED | Link::CONSUMED, true);
        self.link.input.append(bytes, &core.pool);
        self.open(core, token)
    }

    /// Has the filters of a finished codec write its answer and their closing bytes. Returns whether the stream is over once
    /// its session has written its queue. Input that they still have in memory is no obstacle: a finished codec reads none.
    pub(super) fn finish_answer(&mut self, core: &mut Core) -> bool {
        if A::PULLS || !self.codec.status().is_finished || !self.link.is_answered() || core.has_spawned {
            return false;
        }
        self.link.closing = Some(core.done.clone());
        self.flush_codec(core);
        self.link.write_side() == WriteSide::Flushing
            && !self.link.has_write_failed()
            && self.codec.is_established()
            && self.codec.buffered_bytes() == 0
    }

    /// Whether a stream is over once its session has written its queue.
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
}
