//! The sending side of one dispatch: the codec's bytes into the queue, the queue to the driver or to the session, and the
//! end of the side, whose states are in `closing.rs`.

use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use tidegate_buffer::injected::{self, Bug};
use tidegate_buffer::{LoadError, Outbound};
use tidegate_codec::{Lifecycle, Output, Pipeline};
use tidegate_sys::{Completion, Operation, Token};

use super::closing::{WriteEvent, WriteSide};
use super::dispatch::DispatchBudget;
use super::{Application, Connection, Link};
use crate::close_reason::CloseReason;
use crate::limits::{FILE_PIECE_BYTES, LINGER_MAX, SEND_BYTES_MAX};
use crate::loop_core::Core;
use crate::session::StreamRequestKind;
use crate::slot_entry::{Dispatched, Disposition};
use crate::wheel::DeadlineTick;

impl<C: Pipeline, A: Application<C>> Connection<C, A> {
    pub(super) fn on_sent(&mut self, core: &mut Core, token: Token, result: io::Result<usize>) -> Dispatched {
        self.link.set(Link::SENDING, false);
        let sent = match result {
            Ok(sent) => sent,
            Err(error) => return self.on_send_error(core, token, error),
        };
        if sent > 0 {
            self.link.set(Link::SENT, true);
            if self.link.intersects(Link::SHAPED) {
                core.shaping.sent(token.slot, sent, core.time.now());
            }
            core.counters.sent_bytes += sent as u64;
            self.link.outbound().advance(sent as u64);
            self.link.note_progress(sent as u64);
        }
        Ok(())
    }

    #[cold]
    fn on_send_error(&mut self, core: &mut Core, token: Token, error: io::Error) -> Dispatched {
        // A file is shorter than its region; the peer must not take the truncated bytes for complete ones.
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Err(Disposition::reset(CloseReason::Failed(error.into())));
        }
        // The peer may have sent a response before it closed the connection (RFC 9112 §9.5).
        Err(self.on_failure(core, token, error))
    }

    /// The connection has failed. Earlier bytes of the peer are handled first.
    #[cold]
    pub(super) fn on_failure(&mut self, core: &mut Core, token: Token, error: io::Error) -> Disposition {
        if self.link.receive_rest(core, token)
            && !A::PULLS
            && let Err(disposition @ Disposition::Close { .. }) = self.handle_rest(core, token)
        {
            return disposition;
        }
        // A protocol that a message switches to has no connection.
        self.on_io_error(error)
    }

    /// A handler or a session gets the messages that came before the connection failed.
    fn handle_rest(&mut self, core: &mut Core, token: Token) -> Dispatched {
        // Nothing that is written from now on leaves.
        self.link.outbound().clear();
        self.link.set_write_failed();
        self.link.update_level(&self.codec);
        let decoded = self.decode(core, token, &mut DispatchBudget::rest());
        // The connection closes at once, so no dispatch waits for a task of its handler.
        core.has_spawned = false;
        decoded?;
        if self.link.closing.as_deref().is_some_and(|reason| matches!(reason, CloseReason::Done)) {
            // It did not end in good order.
            self.link.closing = None;
        }
        Ok(())
    }

    /// Sends pending bytes, as far as the kernel and the budget allow.
    pub(super) fn flush(&mut self, core: &mut Core, token: Token, budget: &mut DispatchBudget) -> Dispatched {
        loop {
            let before = (self.link.sent(), self.link.outbound().written());
            let has_more = A::IS_SESSION && self.transmit_streams(core);
            self.flush_codec(core);
            if self.link.is_shut() {
                // Replies of the codec after the shutdown cannot be sent any more.
                self.link.outbound().clear();
            }
            if self.link.is_stream() {
                self.offer(core);
            }
            while !self.link.intersects(Link::SENDING) && self.link.outbound().has_flushed() && budget.sends > 0 {
                let mut bytes_max = SEND_BYTES_MAX;
                if self.link.intersects(Link::SHAPED) {
                    let Some(admitted) = self.admit_send(core, token) else { break };
                    bytes_max = admitted;
                }
                budget.sends -= 1;
                let queue = self.link.outbound();
                match core.driver.submit(token, Operation::Send { queue, bytes_max }) {
                    Some(Completion::Sent(result)) => self.on_sent(core, token, result)?,
                    _ => self.link.set(Link::SENDING, true),
                }
            }
            self.link.update_level(&self.codec);
            if budget.sends == 0 || self.link.intersects(Link::SENDING) {
                break;
            }
            // Streams had more than fitted: there is room now, unless the rate of the connection admits nothing.
            let has_progressed = before != (self.link.sent(), self.link.outbound().written());
            if !(self.load_file()? || (has_more && has_progressed)) {
                break;
            }
        }
        if self.link.intersects(Link::SENDING)
            && !self.link.is_stream()
            && !core.driver.is_sending(token)
            && !self.is_send_held(core, token)
        {
            // The peer does not read, for an unknown time.
            self.link.outbound().shrink();
        }
        let unsent = injected::is_injected(Bug::ClosedBeforeFlush) && self.link.is_closing();
        if unsent || (self.link.outbound().is_empty() && self.buffered_bytes() == 0) {
            self.on_all_sent(core, token)?;
        }
        Ok(())
    }

    /// Of a stream: has the session write from the queue.
    #[cold]
    fn offer(&mut self, core: &mut Core) {
        if let Some(stream) = self.link.stream()
            && self.link.outbound().has_flushed()
            && !self.link.replace(Link::SENDING, true)
        {
            core.request(stream, StreamRequestKind::Send);
        }
    }

    /// Of a stream: its session writes from the queue. Returns whether the stream has to be dispatched for that.
    pub(super) fn transmit_queue(&mut self, act: &mut dyn FnMut(&mut Outbound, bool) -> bool) -> bool {
        let before = self.link.outbound().sent();
        let ends = self.link.write_side() == WriteSide::Flushing && self.buffered_bytes() == 0;
        let is_all = act(self.link.outbound(), ends);
        if is_all {
            self.link.set(Link::SENDING, false);
            if ends && self.link.advance_write_side(WriteEvent::Sent) {
                self.link.set_write_failed();
            }
            if self.buffered_bytes() == 0 {
                // There is nothing that the peer could be late to take. Whatever it has to do next has its own deadline.
                self.link.progress = DeadlineTick::NEVER;
            }
        }
        self.link.note_progress(self.link.sent() - before.0);
        self.link.update_level(&self.codec);
        // A stream that closes is not notified that it may write.
        let is_edge_due = self.has_become_writable() && !self.link.is_closing();
        let is_due = (is_edge_due && !injected::is_injected(Bug::StreamLevelLost))
            || (is_all && self.link.is_write_shut())
            || (self.link.is_watching() && self.watched_is_sent());
        is_due && !self.link.replace(Link::SCHEDULED, true)
    }

    /// Of a session: writes bytes of streams. Returns whether there are more. Nothing follows the closing bytes.
    fn transmit_streams(&mut self, core: &mut Core) -> bool {
        if self.link.has_write_failed() || self.link.write_side() >= WriteSide::Flushing {
            return false;
        }
        let has_more = self.application.transmit(&mut self.codec, &mut self.link, core);
        if !self.link.is_closing() && self.codec.status().is_finished {
            self.link.close_in_order();
        }
        has_more
    }

    /// Has the codec write the bytes that it buffers, and its closing bytes if this is the end.
    pub(super) fn flush_codec(&mut self, core: &mut Core) {
        if !self.link.has_write_failed() {
            let last = self.link.is_ending() && self.finishes();
            let mut out = Output::new(self.link.outbound(), &core.pool, &core.time);
            let mut flushed = self.codec.flush(&mut out);
            // Not while the codec buffers something: files that a filter has to see are read piece by piece.
            if last && flushed.is_ok() && self.codec.is_established() && self.codec.buffered_bytes() == 0 {
                flushed = self.codec.on(Lifecycle::Close, &mut out);
                self.link.advance_write_side(WriteEvent::Written);
            }
            if let Err(fault) = flushed {
                // The bytes that it could not write are lost; those that it wrote before are still sent.
                self.link.set_write_failed();
                self.link.closing.get_or_insert_with(|| Rc::new(CloseReason::Protocol(Box::new(fault))));
            }
        }
        self.link.outbound().flush();
    }

    /// Whether the codec has its closing bytes still to write.
    #[cold]
    fn finishes(&mut self) -> bool {
        self.link.advance_write_side(WriteEvent::Finish);
        self.link.write_side() == WriteSide::Finishing
    }

    /// Bytes that the codec buffers and may still write. Bytes that wait for a handshake that will never end do not
    /// count.
    pub(super) fn buffered_bytes(&self) -> usize {
        let stuck = self.link.intersects(Link::READ_FAILED | Link::PEER_ENDED) && !self.codec.is_established();
        if self.link.has_write_failed() || stuck { 0 } else { self.codec.buffered_bytes() }
    }

    /// Reads a piece of a file for a filter that must see its bytes. Returns whether there was one.
    fn load_file(&mut self) -> Dispatched<bool> {
        let Some(queue) = self.codec.file_to_load() else { return Ok(false) };
        let loaded = queue.load_file(FILE_PIECE_BYTES, |region, bytes| region.file.read_at(bytes, region.offset));
        loaded.map_err(|error| {
            let error = match error {
                LoadError::Read(error) => error,
                _ => io::ErrorKind::UnexpectedEof.into(),
            };
            Disposition::reset(CloseReason::Failed(error.into()))
        })
    }

    /// Everything is with the kernel: now our side may be shut down, and the connection closed.
    fn on_all_sent(&mut self, core: &mut Core, token: Token) -> Dispatched {
        if !self.link.is_ending() {
            return Ok(());
        }
        if self.link.intersects(Link::READ_CLOSED) && self.link.is_write_shut() {
            // Nothing more will come, and nothing more will be sent.
            self.link.closing.get_or_insert_with(|| core.done.clone());
        }
        if self.link.stream().is_some()
            && let Some(reason) = self.link.closing.take_if(|reason| reason.resets_stream())
        {
            return Err(Disposition::Close { reason, reset: true });
        }
        if self.link.is_closing() && (self.link.intersects(Link::PEER_ENDED) || self.needs_no_end_of_peer(core)) {
            return Err(self.close_now());
        }
        if self.link.is_closing() {
            self.link.advance_write_side(WriteEvent::Finish);
        }
        if self.link.advance_write_side(WriteEvent::Sent) {
            self.link.set_write_failed();
            self.link.progress = DeadlineTick::NEVER;
            match self.link.stream() {
                Some(stream) => core.request(stream, StreamRequestKind::End),
                None => drop(core.driver.submit(token, Operation::ShutdownWrite)),
            }
        }
        if self.link.is_closing() && self.link.advance_write_side(WriteEvent::Linger) {
            // The handler's deadline is of no use any more: the field now bounds the wait for the peer's end.
            self.link.deadline = core.wheel.tick_after(core.time.now(), LINGER_MAX);
        }
        Ok(())
    }

    /// Whether a close that asks the peer to stop harms nothing: each direction of a stream of an endpoint, such as QUIC, ends
    /// by itself, and a finished codec has no use for further bytes. If the stream lingered, the peer would go on sending, and
    /// could open no other stream in its place.
    #[inline(never)]
    fn needs_no_end_of_peer(&self, core: &Core) -> bool {
        let endpoint = self.link.stream().and_then(|stream| core.sessions.endpoint(stream.session));
        endpoint.is_some() && self.codec.status().is_finished
    }

    /// Whether everything up to the watched write position is with the kernel. The position is translated to an
    /// offset on the wire as soon as the filters know it.
    #[inline(never)]
    pub(super) fn watched_is_sent(&mut self) -> bool {
        if !self.link.intersects(Link::WIRE_OFFSET) {
            let Some(offset) = self.codec.wire_offset(tidegate_buffer::WritePosition(self.link.watched)) else {
                return false;
            };
            self.link.watched = offset;
            self.link.set(Link::WIRE_OFFSET, true);
        }
        self.link.outbound().sent().0 + u64::from(injected::is_injected(Bug::WritePositionOffByOne))
            >= self.link.watched
    }
}

impl Link {
    /// Receives bytes that the peer sent before the connection failed, and returns whether there is any. The connection
    /// is about to close. A channel still yields the input that came before that, although no task reads now.
    ///
    /// Compiled once, and not for each pipeline.
    #[inline(never)]
    fn receive_rest(&mut self, core: &mut Core, token: Token) -> bool {
        if self.is_stream() || self.is_closing() || self.intersects(Self::PEER_ENDED) {
            return false;
        }
        let mut has_received = false;
        while self.input.len() < REST_BYTES
            && let Some(bytes) = core.driver.receive_rest(token)
        {
            has_received = true;
            core.counters.received_bytes += bytes.len() as u64;
            self.input.append(bytes, &core.pool);
            self.input.compact(&core.pool);
        }
        has_received
    }
}

/// How much input of a connection that has failed is received without a task that reads it: at least this much, and less
/// than one receive more.
const REST_BYTES: usize = 64 * 1024;
