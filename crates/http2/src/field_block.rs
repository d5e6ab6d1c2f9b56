//! Field blocks: heads and trailers of the peer, in one HEADERS frame or in several frames (RFC 9113 §4.3, §6.2, §6.10).

use std::cell::RefCell;

use tidegate_codec::mux::{StreamEvent, StreamKey};
use tidegate_codec::{Output, Slice};
use tidegate_http_stream::{HeadBuilder, HeadFacts, HeadFault, HeadKind, HeadParts, Priority, write_head_record};

use crate::connection::{Connection, Phase, Role};
use crate::error::{Error, Exceeded, Violation};
use crate::frame::{ErrorCode, FrameHead, flag};
use crate::partial_block::{BlockInfo, FieldBlock};
use crate::stream_state::{HAS_LENGTH, HEAD_RECEIVED, IS_CONNECT, IS_HEAD, IS_TUNNEL};

/// Memory for the decoding of one block, and facts about the last one.
#[derive(Default)]
struct Scratch {
    parts: HeadParts,
    strings: Vec<u8>,
    last: LastBlock,
}

/// The last block, if it was the head of a request and has not changed the table of its decoder. Its text is still in the
/// parts. A block that comes again on the same connection, as most do where many requests come together, is not decoded
/// again.
#[derive(Default)]
struct LastBlock {
    /// The state of the decoder.
    version: Option<u64>,
    block: Vec<u8>,
    facts: HeadFacts,
    /// The record of the text, and whether the stream ends with it, until the end of the batch of frames.
    record: Option<(Slice, bool)>,
}

impl LastBlock {
    #[inline]
    fn is(&self, version: u64, block: &[u8]) -> bool {
        self.version == Some(version) && self.block == block
    }

    #[inline]
    fn forget(&mut self) {
        (self.version, self.record) = (None, None);
    }

    fn remember(&mut self, version: u64, block: &[u8], facts: HeadFacts) {
        if block.len() <= KEPT_BYTES_MAX {
            (self.version, self.facts) = (Some(version), facts);
            self.block.clear();
            self.block.extend_from_slice(block);
        }
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Connection {
    /// All frames that came together are decoded: the memory of their connection is not kept.
    #[inline]
    pub(crate) fn forget_record() {
        SCRATCH.with_borrow_mut(|scratch| scratch.last.record = None);
    }

    pub(crate) fn on_headers(
        &mut self,
        head: FrameHead,
        content: &[u8],
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        if head.stream == 0 {
            return Err(Violation::FrameStream.into());
        }
        let mut fragment = unpadded(head, content)?;
        let mut about = BlockInfo { stream: head.stream, ends: head.has(flag::END_STREAM), depends_on_itself: false };
        if head.has(flag::PRIORITY) {
            let (priority, rest) = fragment.split_first_chunk::<5>().ok_or(Violation::FrameSize)?;
            about.depends_on_itself = dependency(priority) == head.stream;
            fragment = rest;
        }
        if head.has(flag::END_HEADERS) {
            return self.on_block(about, fragment, reply);
        }
        self.since = Some(reply.now());
        let charge = reply.pool().charge(fragment.len());
        self.block = Some(Box::new(FieldBlock { about, bytes: fragment.to_vec(), charge }));
        Ok(None)
    }

    #[cold]
    pub(crate) fn on_continuation(
        &mut self,
        head: FrameHead,
        content: &[u8],
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        self.add_abuse(reply)?;
        let Some(mut block) = self.block.take() else { return Err(Violation::Continuation.into()) };
        if block.bytes.len() + content.len() > self.config.limits().field_block_bytes_max as usize {
            return Err(Exceeded::FieldBlock.into());
        }
        block.bytes.extend_from_slice(content);
        if head.has(flag::END_HEADERS) {
            return self.on_block(block.about, &block.bytes, reply);
        }
        block.charge.resize(block.bytes.capacity());
        self.block = Some(block);
        Ok(None)
    }

    /// A complete block. It is decoded in any case, or the tables of both sides would differ.
    fn on_block(
        &mut self,
        about: BlockInfo,
        block: &[u8],
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        let id = about.stream;
        let existing = self.streams.find(id);
        let kind = match existing {
            Some(key) if self.role == Role::Client && !self.has_flag(key, HEAD_RECEIVED) => HeadKind::Response,
            Some(key) if self.streams.has_ended(key) && !self.was_reset(id) => {
                return Err(Violation::ClosedStream.into());
            }
            Some(_) => HeadKind::Trailers,
            None if self.role == Role::Server && self.is_by_peer(id) && id > self.peer_id => HeadKind::Request,
            None if self.is_idle(id) => return Err(Violation::StreamId.into()),
            None if self.was_reset(id) => HeadKind::Trailers,
            None => return Err(Violation::ClosedStream.into()),
        };
        SCRATCH.with_borrow_mut(|Scratch { parts, strings, last }| {
            let version = self.decoder.version();
            if kind == HeadKind::Request && last.is(version, block) {
                let facts = Ok(last.facts);
                return self.on_request(about, facts, &mut parts.text, &mut last.record, reply);
            }
            last.forget();
            let mut builder = HeadBuilder::new(kind, self.config.stream(), parts);
            self.decoder.decode(block, strings, |name, value| builder.add(name, value))?;
            let facts = builder.finish();
            match (existing, kind) {
                (None, HeadKind::Request) => {
                    if let Ok(facts) = facts
                        && self.decoder.version() == version
                    {
                        last.remember(version, block, facts);
                    }
                    self.on_request(about, facts, &mut parts.text, &mut last.record, reply)
                }
                (Some(key), HeadKind::Response) => self.on_response(key, about, facts, &mut parts.text, reply),
                (Some(key), _) => self.on_trailers(key, about, facts, &mut parts.text, reply),
                (None, _) => self.on_late_trailers(about, facts, reply),
            }
        })
    }

    /// Trailers for a stream that this side has reset: they were on their way. An error in them is reported nevertheless.
    #[cold]
    fn on_late_trailers(
        &mut self,
        about: BlockInfo,
        facts: Result<HeadFacts, HeadFault>,
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        self.add_abuse(reply)?;
        if !about.ends || about.depends_on_itself || facts.is_err() {
            self.write_reset_code(about.stream, ErrorCode::PROTOCOL_ERROR, reply);
        } else if let Some(recent) = &mut self.reset
            && recent.take_deferred(about.stream)
        {
            // The request has ended, and so the stream.
            recent.forget(about.stream);
        }
        Ok(None)
    }

    fn on_request(
        &mut self,
        about: BlockInfo,
        facts: Result<HeadFacts, HeadFault>,
        text: &mut [u8],
        last_record: &mut Option<(Slice, bool)>,
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        let id = about.stream;
        if id > self.peer_id + 2 {
            self.skipped = [self.peer_id + 1, id];
        }
        self.peer_id = id;
        if self.phase == Phase::Ending {
            // The last GOAWAY has named a lower stream, so the peer knows that this one is not processed.
            return self.add_abuse(reply).map(|()| None);
        }
        self.processed_id = id;
        let limits = self.config.limits();
        let is_malformed = about.depends_on_itself
            || matches!(facts, Err(HeadFault::Malformed))
            || facts.is_ok_and(|facts| about.ends && facts.content_length.is_some_and(|length| length > 0));
        let refusal = match facts {
            _ if is_malformed => Some(ErrorCode::PROTOCOL_ERROR),
            _ if self.streams.opened_by_peer() >= limits.streams_max as usize => Some(ErrorCode::REFUSED_STREAM),
            _ => None,
        };
        if let Some(code) = refusal {
            self.add_abuse(reply)?;
            self.write_reset_code(id, code, reply);
            return Ok(None);
        }
        let Ok(facts) = facts else {
            self.add_abuse(reply)?;
            self.write_too_large(id, about.ends, reply);
            return Ok(None);
        };
        let key = self.open_request(about, facts, reply);
        let record = match last_record {
            Some((record, ends)) if *ends == about.ends => record.clone(),
            _ => {
                let record = head_record(about.ends, text, reply);
                *last_record = Some((record.clone(), about.ends)).filter(|_| text.len() <= KEPT_BYTES_MAX);
                record
            }
        };
        self.pass(key, record, about.ends);
        Ok(Some(StreamEvent::Opened(key)))
    }

    /// Opens the stream of a request that is not refused.
    fn open_request(&mut self, about: BlockInfo, facts: HeadFacts, reply: &Output<'_>) -> StreamKey {
        let opened = self.abuse.millis(reply.now());
        let key = self.streams.open(about.stream, true);
        if let Some(Priority { urgency, is_incremental }) = facts.priority {
            self.streams.set_urgency(key, urgency);
            self.streams.set_incremental(key, is_incremental);
        }
        if let Some(state) = self.streams.state(key) {
            let of_method = match () {
                () if facts.is_head => IS_HEAD,
                () if facts.is_connect => IS_CONNECT,
                () => 0,
            };
            state.flags |= HEAD_RECEIVED | of_method;
            state.opened = opened;
        }
        self.expect_length(key, facts.content_length.filter(|_| !about.ends && !facts.is_connect));
        key
    }

    fn on_response(
        &mut self,
        key: StreamKey,
        about: BlockInfo,
        facts: Result<HeadFacts, HeadFault>,
        text: &mut [u8],
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        let Ok(facts) = facts else { return self.reset_stream(key, ErrorCode::PROTOCOL_ERROR, reply).map(Some) };
        let is_interim = facts.status < 200;
        // A tunnel has no body, and its head no length (RFC 9110 §9.3.6).
        let is_tunnel = self.has_flag(key, IS_CONNECT) && (200..300).contains(&facts.status);
        let has_body = !self.has_flag(key, IS_HEAD) && !matches!(facts.status, 204 | 304) && !is_tunnel;
        let length = facts.content_length.filter(|_| has_body);
        if about.ends && (is_interim || length.is_some_and(|length| length > 0)) {
            return self.reset_stream(key, ErrorCode::PROTOCOL_ERROR, reply).map(Some);
        }
        if !is_interim {
            if let Some(state) = self.streams.state(key) {
                state.flags |= HEAD_RECEIVED | if is_tunnel { IS_TUNNEL } else { 0 };
            }
            self.expect_length(key, length);
        }
        self.pass_head(key, about.ends, text, reply);
        Ok(None)
    }

    /// RFC 9113 §8.1.
    fn on_trailers(
        &mut self,
        key: StreamKey,
        about: BlockInfo,
        facts: Result<HeadFacts, HeadFault>,
        text: &mut [u8],
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, Error> {
        if self.was_reset(key.id()) {
            return self.on_late_trailers(about, facts, reply);
        }
        if self.streams.has_peer_ended(key) {
            return self.reset_stream(key, ErrorCode::STREAM_CLOSED, reply).map(Some);
        }
        // RFC 9113 §8.5.
        let is_connect = self.has_flag(key, IS_CONNECT);
        if !about.ends || about.depends_on_itself || facts.is_err() || is_connect || !self.is_body_complete(key) {
            return self.reset_stream(key, ErrorCode::PROTOCOL_ERROR, reply).map(Some);
        }
        self.pass_head(key, true, text, reply);
        Ok(None)
    }

    fn expect_length(&mut self, key: StreamKey, length: Option<u64>) {
        if let Some(length) = length
            && let Some(state) = self.streams.state(key)
        {
            state.flags |= HAS_LENGTH;
            state.body_left = length;
        }
    }

    /// Passes a head or trailers to the stream, as a record.
    fn pass_head(&mut self, key: StreamKey, ends: bool, text: &mut [u8], reply: &mut Output<'_>) {
        self.pass(key, head_record(ends, text, reply), ends);
    }

    /// Passes a record to the stream, and its end.
    pub(crate) fn pass(&mut self, key: StreamKey, record: Slice, ends: bool) {
        debug_assert!(self.pending.data.is_none(), "one record a frame");
        self.pending.data = Some((key, record));
        if ends {
            self.streams.end_by_peer(key);
            self.pending.ended = Some(key);
        }
    }
}

/// The record of a head or of trailers. Several streams may have the same.
fn head_record(ends: bool, text: &mut [u8], reply: &Output<'_>) -> Slice {
    write_head_record(text, ends);
    reply.pool().copy(text)
}

/// The content of a frame without its padding (RFC 9113 §6.1, §6.2).
pub(crate) fn unpadded(head: FrameHead, content: &[u8]) -> Result<&[u8], Error> {
    if !head.has(flag::PADDED) {
        return Ok(content);
    }
    let (&padding, rest) = content.split_first().ok_or(Violation::FrameSize)?;
    let length = rest.len().checked_sub(padding.into()).ok_or(Violation::Padding)?;
    Ok(&rest[..length])
}

/// The stream on which another one depends (RFC 7540 §6.3).
pub(crate) fn dependency(priority: &[u8; 5]) -> u32 {
    let &[a, b, c, d, _] = priority;
    u32::from_be_bytes([a & 0x7f, b, c, d])
}

/// Longer blocks are not remembered, and longer records not shared.
const KEPT_BYTES_MAX: usize = 1024;
