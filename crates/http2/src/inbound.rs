//! The effect of each received frame (RFC 9113 §6).

use std::cell::RefCell;
use std::time::Duration;

use tidegate_codec::mux::{FlowError, StreamEvent, StreamKey};
use tidegate_codec::{Input, Output, Slice};
use tidegate_http_stream::Priority;

use crate::connection::{Connection, DRAIN_PING, Phase, Role};
use crate::error::{Error, Exceeded, Violation};
use crate::field_block::{dependency, unpadded};
use crate::frame::{
    ErrorCode, FRAME_BYTES_CEILING, FRAME_BYTES_MAX, FrameHead, HEAD_BYTES, STREAM_ID_MAX, flag, kind, setting,
    short_frame,
};
use crate::keep_alive::{KEEP_ALIVE_PING, KeepAlive};
use crate::stream_state::{HAS_LENGTH, HEAD_RECEIVED};

impl Connection {
    /// A frame that has arrived whole. It is removed from the input.
    pub(crate) fn on_frame(
        &mut self,
        head: FrameHead,
        input: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        let length = HEAD_BYTES + head.length as usize;
        if let Some(block) = &self.block
            && (head.kind != kind::CONTINUATION || head.stream != block.stream())
        {
            return Err(Violation::Continuation.into());
        }
        if head.kind == kind::DATA {
            return self.on_data(head, input, reply);
        }
        let content = &input.bytes()[HEAD_BYTES..length];
        let event = match head.kind {
            kind::HEADERS => self.on_headers(head, content, reply),
            kind::CONTINUATION => self.on_continuation(head, content, reply),
            kind::PRIORITY => self.on_priority(head, content, reply),
            kind::RST_STREAM => self.on_reset(head, content, reply),
            kind::SETTINGS => self.on_settings(head, content, reply).map(|()| None),
            kind::PUSH_PROMISE => Err(Violation::Push.into()),
            kind::PING => self.on_ping(head, content, reply).map(|()| None),
            kind::GOAWAY => self.on_goaway(head, content).map(|()| None),
            kind::WINDOW_UPDATE => self.on_window_update(head, content, reply),
            kind::PRIORITY_UPDATE => self.on_priority_update(head, content, reply).map(|()| None),
            // RFC 9113 §5.5.
            _ => self.add_abuse(reply).map(|()| None),
        };
        input.consume(length);
        event
    }

    fn on_data(
        &mut self,
        head: FrameHead,
        input: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        let (id, length) = (head.stream, HEAD_BYTES + head.length as usize);
        if id == 0 {
            return Err(Violation::FrameStream.into());
        }
        if self.is_idle(id) {
            return Err(Violation::IdleStream.into());
        }
        let body_bytes = unpadded(head, &input.bytes()[HEAD_BYTES..length])?.len() as u64;
        let ends = head.has(flag::END_STREAM);
        let Some(key) = self.streams.receive_frame(id, head.length).map_err(flow_error)? else {
            input.consume(length);
            return self.on_late_data(id, body_bytes, ends, reply);
        };
        let Some(state) = self.streams.state(key) else { return Ok(None) };
        let fits = match state.body_left.checked_sub(body_bytes) {
            _ if !state.has(HAS_LENGTH) => true,
            Some(left) => {
                state.body_left = left;
                !ends || left == 0
            }
            None => false,
        };
        if !fits || !state.has(HEAD_RECEIVED) {
            input.consume(length);
            return self.reset_stream(key, ErrorCode::PROTOCOL_ERROR, reply).map(Some);
        }
        if body_bytes == 0 && !ends {
            // Padding is granted again at once.
            self.streams.consume(key, head.length);
            input.consume(length);
            return self.add_abuse(reply).map(|()| None);
        }
        let may_merge = !ends && head.flags & flag::PADDED == 0 && next_small(&input.bytes()[length..], id).is_some();
        let (record, ends) = if body_bytes <= SMALL_DATA_BYTES.into() && may_merge {
            self.merge_small(key, length, input, reply)?
        } else {
            (input.take(length), ends)
        };
        if ends {
            self.streams.end_by_peer(key);
            self.pending.ended = Some(key);
        }
        Ok(Some(StreamEvent::Data { stream: key, bytes: record }))
    }

    /// Makes one record of small frames of a stream that have come together, from a first one of `length` bytes that was
    /// counted. The head of a frame counts for no window: alone, frames of one byte would occupy ten times as much memory
    /// as the window allows, and cause a dispatch each.
    fn merge_small(
        &mut self,
        key: StreamKey,
        length: usize,
        input: &mut Input,
        reply: &Output<'_>,
    ) -> Result<(Slice, bool), Error> {
        MERGED.with_borrow_mut(|merged| {
            merged.clear();
            merged.extend_from_slice(&input.bytes()[..length]);
            input.consume(length);
            let mut ends = false;
            while !ends
                && merged.len() < MERGED_BYTES_MAX
                && let Some((head, content)) = next_small(input.bytes(), key.id())
            {
                ends = head.has(flag::END_STREAM);
                let Some(state) = self.streams.state(key) else { break };
                if state.has(HAS_LENGTH) {
                    match state.body_left.checked_sub(head.length.into()) {
                        Some(left) if !ends || left == 0 => state.body_left = left,
                        // The frame is refused by itself.
                        _ => {
                            ends = false;
                            break;
                        }
                    }
                }
                merged.extend_from_slice(content);
                input.consume(HEAD_BYTES + head.length as usize);
                self.streams.receive_frame(key.id(), head.length).map_err(flow_error)?;
            }
            let length = (merged.len() - HEAD_BYTES) as u32;
            let flags = if ends { flag::END_STREAM } else { 0 };
            let head = FrameHead { length, kind: kind::DATA, flags, stream: key.id() };
            merged[..HEAD_BYTES].copy_from_slice(&head.bytes());
            Ok((reply.pool().copy(merged), ends))
        })
    }

    /// Bytes for a stream that is closed, or that the peer has ended (RFC 9113 §5.1).
    #[cold]
    fn on_late_data(
        &mut self,
        id: u32,
        bytes: u64,
        ends: bool,
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        if let Some(recent) = self.reset.as_mut().filter(|recent| recent.contains(id)) {
            if !recent.receive(id, bytes, ends) {
                self.add_abuse(reply)?;
                self.write_reset_code(id, ErrorCode::PROTOCOL_ERROR, reply);
            } else if recent.take_deferred(id) {
                if ends {
                    recent.forget(id);
                } else {
                    self.write_reset_code(id, ErrorCode::NO_ERROR, reply);
                }
            }
            return Ok(None);
        }
        if let Some(key) = self.streams.find(id) {
            return self.reset_stream(key, ErrorCode::STREAM_CLOSED, reply).map(Some);
        }
        self.add_abuse(reply)?;
        self.abuse.withdraw(id);
        self.write_reset_code(id, ErrorCode::STREAM_CLOSED, reply);
        Ok(None)
    }

    /// The priorities of RFC 7540 are read and have no effect (RFC 9113 §5.3.2).
    fn on_priority(
        &mut self,
        head: FrameHead,
        content: &[u8],
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        if head.stream == 0 {
            return Err(Violation::FrameStream.into());
        }
        self.add_abuse(reply)?;
        let Some(content) = content.first_chunk().filter(|_| content.len() == 5) else {
            return self.reset_by_id(head.stream, ErrorCode::FRAME_SIZE_ERROR, Violation::FrameSize, reply);
        };
        if dependency(content) == head.stream {
            return self.reset_by_id(head.stream, ErrorCode::PROTOCOL_ERROR, Violation::SelfDependency, reply);
        }
        Ok(None)
    }

    fn on_reset(
        &mut self,
        head: FrameHead,
        content: &[u8],
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        let &[a, b, c, d] = content else { return Err(Violation::FrameSize.into()) };
        if head.stream == 0 {
            return Err(Violation::FrameStream.into());
        }
        if self.is_idle(head.stream) {
            return Err(Violation::IdleStream.into());
        }
        // Nothing follows from a peer that has reset the stream itself.
        self.forget_reset(head.stream);
        let Some(stream) = self.streams.find(head.stream) else {
            self.add_abuse(reply)?;
            self.abuse.withdraw(head.stream);
            return Ok(None);
        };
        self.count_reset(stream, reply)?;
        self.streams.reset_by_peer(stream).map_err(flow_error)?;
        Ok(Some(StreamEvent::Reset { stream, code: u32::from_be_bytes([a, b, c, d]).into() }))
    }

    fn on_settings(&mut self, head: FrameHead, content: &[u8], reply: &mut Output<'_>) -> Result<(), Error> {
        if head.stream != 0 {
            return Err(Violation::FrameStream.into());
        }
        if head.has(flag::ACK) {
            if !content.is_empty() {
                return Err(Violation::FrameSize.into());
            }
            if self.phase == Phase::Settings {
                return Err(Violation::Preface.into());
            }
            self.settings_due = None;
            self.decoder.on_acknowledged();
            return self.add_abuse(reply);
        }
        if !content.len().is_multiple_of(6) {
            return Err(Violation::FrameSize.into());
        }
        self.add_abuse(reply)?;
        for entry in content.chunks_exact(6) {
            let &[a, b, c, d, e, f] = entry else { continue };
            self.apply(u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]))?;
        }
        if self.phase == Phase::Settings {
            let (now, limits) = (reply.now(), self.config.limits());
            self.phase = Phase::Open;
            self.since = Some(now);
            self.settings_due = now.checked_add(limits.settings_timeout);
            self.keep_alive = limits.ping_interval.map(|_| Box::new(KeepAlive::new(now)));
        }
        self.wake_observer();
        reply.write(&FrameHead { length: 0, kind: kind::SETTINGS, flags: flag::ACK, stream: 0 }.bytes());
        if std::mem::take(&mut self.drains_later) {
            self.drain(reply);
        }
        Ok(())
    }

    fn apply(&mut self, id: u16, value: u32) -> Result<(), Error> {
        match id {
            setting::HEADER_TABLE_SIZE => self.encoder.set_table_bytes_max(value),
            setting::ENABLE_PUSH if value > 1 || (value == 1 && self.role == Role::Client) => {
                return Err(Violation::Setting.into());
            }
            setting::MAX_CONCURRENT_STREAMS => self.peer_streams_max = value,
            setting::INITIAL_WINDOW_SIZE if value > STREAM_ID_MAX => return Err(Violation::WindowSetting.into()),
            setting::INITIAL_WINDOW_SIZE => {
                self.streams.set_initial_send_window(value).map_err(flow_error)?;
            }
            setting::MAX_FRAME_SIZE if !(FRAME_BYTES_MAX..=FRAME_BYTES_CEILING).contains(&value) => {
                return Err(Violation::Setting.into());
            }
            setting::MAX_FRAME_SIZE => self.frame_bytes_max = value,
            setting::ENABLE_CONNECT_PROTOCOL | setting::NO_RFC7540_PRIORITIES if value > 1 => {
                return Err(Violation::Setting.into());
            }
            setting::ENABLE_CONNECT_PROTOCOL => self.peer_extends_connect = self.role == Role::Client && value == 1,
            // The size of the peer's list is advice, and heads of ours are small. Others are not known (RFC 9113 §6.5.2).
            _ => {}
        }
        Ok(())
    }

    fn on_ping(&mut self, head: FrameHead, content: &[u8], reply: &mut Output<'_>) -> Result<(), Error> {
        if head.stream != 0 {
            return Err(Violation::FrameStream.into());
        }
        if content.len() != 8 {
            return Err(Violation::FrameSize.into());
        }
        let is_answer = head.has(flag::ACK)
            && content == KEEP_ALIVE_PING
            && self.keep_alive.as_mut().is_some_and(|keep_alive| keep_alive.acknowledge());
        if !is_answer {
            self.add_abuse(reply)?;
        }
        if !head.has(flag::ACK) {
            reply.write(&FrameHead { flags: flag::ACK, ..head }.bytes());
            reply.write(content);
        } else if self.phase == Phase::Draining && content == DRAIN_PING {
            self.end_drain(reply);
        }
        Ok(())
    }

    /// Streams of this side that the peer has not processed are closed as refused, so that they may be tried again (RFC
    /// 9113 §6.8).
    fn on_goaway(&mut self, head: FrameHead, content: &[u8]) -> Result<(), Error> {
        if head.stream != 0 {
            return Err(Violation::FrameStream.into());
        }
        let Some(&[a, b, c, d, e, f, g, h]) = content.first_chunk() else {
            return Err(Violation::FrameSize.into());
        };
        let last = u32::from_be_bytes([a, b, c, d]) & STREAM_ID_MAX;
        if self.goaway.is_some_and(|before| last > before) {
            return Err(Violation::GoAwayOrder.into());
        }
        self.wake_observer();
        (self.goaway, self.goaway_code) = (Some(last), ErrorCode(u32::from_be_bytes([e, f, g, h])));
        let unprocessed: Vec<_> =
            self.streams.iter().filter(|key| !self.is_by_peer(key.id()) && key.id() > last).collect();
        for key in unprocessed {
            self.streams.end_by_peer(key);
            self.streams.end_locally(key);
            self.pending.reset.push((key, ErrorCode::REFUSED_STREAM));
        }
        Ok(())
    }

    fn on_window_update(
        &mut self,
        head: FrameHead,
        content: &[u8],
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        let &[a, b, c, d] = content else { return Err(Violation::FrameSize.into()) };
        let bytes = u32::from_be_bytes([a, b, c, d]) & STREAM_ID_MAX;
        if head.stream == 0 {
            if bytes == 0 {
                return Err(Violation::EmptyUpdate.into());
            }
            self.streams.grant(None, bytes).map_err(flow_error)?;
        } else {
            if self.is_idle(head.stream) {
                return Err(Violation::IdleStream.into());
            }
            if bytes == 0 {
                self.add_abuse(reply)?;
                return self.reset_by_id(head.stream, ErrorCode::PROTOCOL_ERROR, Violation::EmptyUpdate, reply);
            }
            let Some(key) = self.streams.find(head.stream) else {
                if bytes == STREAM_ID_MAX {
                    // It exceeds any window but an empty one.
                    self.add_abuse(reply)?;
                    self.abuse.withdraw(head.stream);
                    self.write_reset_code(head.stream, ErrorCode::FLOW_CONTROL_ERROR, reply);
                }
                return Ok(None);
            };
            if self.streams.grant(Some(key), bytes).is_err() {
                return self.reset_stream(key, ErrorCode::FLOW_CONTROL_ERROR, reply).map(Some);
            }
        }
        if bytes < SMALL_UPDATE_BYTES {
            self.add_abuse(reply)?;
        }
        Ok(None)
    }

    /// RFC 9218 §7.1.
    fn on_priority_update(&mut self, head: FrameHead, content: &[u8], reply: &mut Output<'_>) -> Result<(), Error> {
        self.add_abuse(reply)?;
        if head.stream != 0 || self.role == Role::Client {
            return Err(Violation::FrameStream.into());
        }
        let (&[a, b, c, d], value) = content.split_first_chunk().ok_or(Violation::FrameSize)?;
        let id = u32::from_be_bytes([a, b, c, d]) & STREAM_ID_MAX;
        if id == 0 || !self.is_by_peer(id) {
            return Err(Violation::FrameStream.into());
        }
        // Of a stream that is not open yet nothing is kept: its request says the same.
        if let Some(key) = self.streams.find(id) {
            let Priority { urgency, is_incremental } = Priority::parse(value);
            self.streams.set_urgency(key, urgency);
            self.streams.set_incremental(key, is_incremental);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn add_abuse(&mut self, reply: &Output<'_>) -> Result<(), Error> {
        let leak = self.config.limits().abuse_leak_per_second;
        if self.abuse.add(reply.now(), self.abuse_max(), leak) { Ok(()) } else { Err(Exceeded::Abuse.into()) }
    }

    /// A peer whose connection ends may not know of that yet: its requests that were on their way are abuse too.
    fn abuse_max(&self) -> u32 {
        let max = self.config.limits().abuse_max;
        if self.phase == Phase::Ending { max.saturating_mul(2) } else { max }
    }

    /// The peer resets an open stream. That is abuse if the stream was open for a short time: `streams_max` bounds the
    /// others. A server resets no more streams than this side opens, so those are none. If the peer resets too many, the
    /// other streams end first.
    fn count_reset(&mut self, stream: StreamKey, reply: &mut Output<'_>) -> Result<(), Error> {
        if self.role == Role::Client {
            return Ok(());
        }
        let now = self.abuse.millis(reply.now());
        let opened = self.streams.state(stream).map_or(now, |state| state.opened);
        let age = Duration::from_millis(now.wrapping_sub(opened).into());
        if age >= self.config.limits().abuse_reset_age {
            return Ok(());
        }
        match self.add_abuse(reply) {
            Err(Error::Limit(Exceeded::Abuse)) if self.phase != Phase::Ending && self.streams.len() > 1 => {
                self.end_calmly(reply);
                Ok(())
            }
            counted => counted,
        }
    }

    /// Resets a stream because of the peer's frames. The event closes it.
    #[cold]
    pub(crate) fn reset_stream(
        &mut self,
        stream: StreamKey,
        code: ErrorCode,
        reply: &mut Output<'_>,
    ) -> Result<StreamEvent, Error> {
        self.write_reset_code(stream.id(), code, reply);
        self.streams.reset_by_peer(stream).map_err(flow_error)?;
        self.add_abuse(reply)?;
        Ok(StreamEvent::Reset { stream, code: code.0.into() })
    }

    /// Resets a stream, also one that is closed: the peer may not know of that yet. Ends the connection if it is idle.
    fn reset_by_id(
        &mut self,
        id: u32,
        code: ErrorCode,
        violation: Violation,
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        match self.streams.find(id) {
            Some(key) => self.reset_stream(key, code, reply).map(Some),
            None if self.is_idle(id) => Err(violation.into()),
            None => {
                self.abuse.withdraw(id);
                self.write_reset_code(id, code, reply);
                Ok(None)
            }
        }
    }

    /// Whether the peer has sent as many bytes as it has announced.
    pub(crate) fn is_body_complete(&mut self, key: StreamKey) -> bool {
        self.streams.state(key).is_none_or(|state| !state.has(HAS_LENGTH) || state.body_left == 0)
    }

    pub(crate) fn has_flag(&mut self, key: StreamKey, flag: u8) -> bool {
        self.streams.state(key).is_some_and(|state| state.has(flag))
    }

    pub(crate) fn write_reset_code(&mut self, id: u32, code: ErrorCode, out: &mut Output<'_>) {
        if let Some(recent) = &mut self.reset {
            // A stream is reset once.
            recent.take_deferred(id);
        }
        self.remember_reset(id);
        self.count_idle_from(out.now());
        out.write(&short_frame(kind::RST_STREAM, id, code.0));
    }
}

fn flow_error(error: FlowError) -> Error {
    match error {
        FlowError::Exceeded => Violation::WindowExceeded.into(),
        FlowError::ResetFlood => Exceeded::Resets.into(),
        _ => Violation::WindowOverflow.into(),
    }
}

/// The frame at the start of `bytes` with its content, if it is a whole one of DATA for this stream, and small.
fn next_small(bytes: &[u8], stream: u32) -> Option<(FrameHead, &[u8])> {
    let head = FrameHead::read(bytes)?;
    let is_small = (1..=SMALL_DATA_BYTES).contains(&head.length);
    let is_one = head.kind == kind::DATA && head.stream == stream && is_small && !head.has(flag::PADDED);
    let content = bytes.get(HEAD_BYTES..HEAD_BYTES + head.length as usize).filter(|_| is_one)?;
    Some((head, content))
}

thread_local! {
    /// Small frames of DATA, before they are a record.
    static MERGED: RefCell<Vec<u8>> = RefCell::default();
}

/// DATA of up to this length is merged with others like it. For longer frames the head does not matter.
const SMALL_DATA_BYTES: u32 = 128;

/// A record of merged frames has not many bytes more.
const MERGED_BYTES_MAX: usize = 8 * 1024;

/// A window update of fewer bytes is abuse.
const SMALL_UPDATE_BYTES: u32 = 16;
