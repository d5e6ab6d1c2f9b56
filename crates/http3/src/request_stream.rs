//! `RequestStream`: the frames of one request stream (RFC 9114 §4), as a filter below the codec of the stream.
//!
//! **Inbound** it turns frames into records: a head becomes text once its frame is whole, a body passes as it comes.
//! **Outbound** it turns records into frames. The codec above is that of the crate `http-stream`, which HTTP/2 has as
//! well, so the messages are the same.
//!
//! - A malformed message is an error of the stream. Only frames that no message may have, and field sections that QPACK
//!   cannot decode, are errors of the connection.
//! - The end of the stream ends the message. A body that is shorter or longer than its declared length is malformed
//!   (RFC 9114 §4.1.2).
//! - A frame costs no memory but the counts of its bytes; a field section waits in the input until it is whole.
//! - Each thread remembers the last section that it has decoded, with its text. Many requests have the same section as the one
//!   before, on whichever connection: a section has no references to a dynamic table here.

use std::cell::RefCell;
use std::sync::Arc;

use tidegate_codec::{Filter, Input, Outbound, Output, Step};
use tidegate_http_stream as stream;
use tidegate_http_stream::{
    HEAD_BYTES, HeadBuilder, HeadFacts, HeadFault, HeadKind, HeadParts, Priority, RECORD_BYTES, RECORD_CONTENT_MAX,
    Record, RecordKind, StreamConfig, flag, write_head_record,
};
use tidegate_http1::{Refusal, Status};

use crate::connection::ConnectionRole;
use crate::error::{ErrorCode, Exceeded, HEAD_TOO_LARGE, StreamError, Violation};
use crate::frame::{FrameHead, is_of_http2, kind};
use crate::limits::Config;
use crate::qpack::QpackError;
use crate::{qpack, section};

/// The frames of one request stream, in either role: the filter below
/// [`tidegate_http_stream::ServerStream`] or [`tidegate_http_stream::ClientStream`]. [`server_stream`](crate::server_stream)
/// and [`client_stream`](crate::client_stream) stack both.
///
/// An error ends the stream: [`failure`](Self::failure) returns it with its code. Once our message is complete,
/// [`has_sent_end`](Self::has_sent_end) is true, and the stream ends with FIN; a stream that closes before is reset with
/// H3_INTERNAL_ERROR.
#[derive(Debug)]
pub struct RequestStream {
    config: Arc<Config>,
    /// Bytes of the current frame that are to come: of a DATA frame, or of one that is discarded if [`IS_DISCARDED`].
    frame_left: u64,
    /// Bytes of the body that are to come, or [`UNDECLARED`].
    body_left: u64,
    /// Bytes of the outbound record that is being written.
    record_left: u64,
    /// Bytes that may be discarded.
    reserved_left: u32,
    inbound: Inbound,
    flags: u8,
    priority: Option<Priority>,
    failure: Option<StreamError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    /// The final head has not come.
    Head,
    Body,
    /// Trailers have come, and only reserved frames may follow.
    End,
    /// The peer's message is broken.
    Failed,
}

/// The request is a HEAD: a length announces no body.
const IS_HEAD: u8 = 1;
/// The request is a CONNECT, ordinary or extended: nothing but DATA follows.
const IS_CONNECT: u8 = 1 << 1;
/// The bytes in the input are the last ones of the stream.
const IS_LAST_INPUT: u8 = 1 << 2;
/// The stream ends behind the record that is being written.
const RECORD_ENDS: u8 = 1 << 3;
/// Our message is complete.
const SENT_END: u8 = 1 << 4;
/// The bytes of the current frame are discarded.
const IS_DISCARDED: u8 = 1 << 5;
/// The stream is one of a client.
const IS_CLIENT: u8 = 1 << 6;

/// Memory for the decoding of one section.
#[derive(Default)]
struct Scratch {
    /// The text of the last section that was decoded.
    parts: HeadParts,
    strings: Vec<u8>,
    last: Option<DecodedSection>,
}

/// A section that was decoded, whose text is in the [`Scratch`].
struct DecodedSection {
    config: Arc<StreamConfig>,
    kind: HeadKind,
    facts: HeadFacts,
    section: Vec<u8>,
}

/// Why a section has no text.
enum SectionFault {
    Qpack(QpackError),
    Head(HeadFault),
}

impl Scratch {
    /// Decodes a section, unless it is the last one again. The parts have its text then.
    fn decode(
        &mut self,
        section: &[u8],
        kind: HeadKind,
        config: &Arc<StreamConfig>,
    ) -> Result<HeadFacts, SectionFault> {
        if let Some(last) = &self.last
            && last.section == section
            && last.kind == kind
            && Arc::ptr_eq(&last.config, config)
        {
            return Ok(last.facts);
        }
        // The text changes, whatever comes of it.
        let last = self.last.take();
        let mut builder = HeadBuilder::new(kind, config, &mut self.parts);
        let decoded = qpack::decode(section, &mut self.strings, |name, value| builder.add(name, value));
        decoded.map_err(SectionFault::Qpack)?;
        let facts = builder.finish().map_err(SectionFault::Head)?;
        if section.len() <= KEPT_BYTES_MAX {
            let mut kept = last.map(|last| last.section).unwrap_or_default();
            kept.clear();
            kept.extend_from_slice(section);
            self.last = Some(DecodedSection { config: config.clone(), kind, facts, section: kept });
        }
        Ok(facts)
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl RequestStream {
    /// The frames of a stream that a client has opened, for its server.
    #[must_use]
    pub fn server(config: Arc<Config>) -> Self {
        Self::new(ConnectionRole::Server, config)
    }

    /// The frames of a stream that this client opens.
    #[must_use]
    pub fn client(config: Arc<Config>) -> Self {
        Self::new(ConnectionRole::Client, config)
    }

    fn new(role: ConnectionRole, config: Arc<Config>) -> Self {
        let reserved_left = config.limits().reserved_bytes_max;
        Self {
            config,
            frame_left: 0,
            body_left: UNDECLARED,
            record_left: 0,
            reserved_left,
            inbound: Inbound::Head,
            flags: if role == ConnectionRole::Client { IS_CLIENT } else { 0 },
            priority: None,
            failure: None,
        }
    }

    /// The peer has sent FIN, and the input has all bytes before it. A head that is the last frame then declares no body,
    /// so a request without a body is complete with its head. Optional: the end of the stream is enough.
    pub fn note_last_input(&mut self) {
        self.flags |= IS_LAST_INPUT;
    }

    /// The error that has ended the stream.
    #[must_use]
    pub fn failure(&self) -> Option<StreamError> {
        self.failure
    }

    /// Whether our message is complete, so that the stream ends with FIN.
    #[must_use]
    pub fn has_sent_end(&self) -> bool {
        self.flags & SENT_END != 0
    }

    /// The code of RESET_STREAM for a stream whose application has gone: `None` if our message is complete, so that the
    /// stream ends with FIN.
    #[must_use]
    pub fn reset_code(&self) -> Option<ErrorCode> {
        match self.failure {
            Some(failure) => Some(failure.code()).filter(|code| *code != ErrorCode::NO_ERROR),
            None if self.has_sent_end() => None,
            None => Some(ErrorCode::INTERNAL_ERROR),
        }
    }

    /// The priority in the head of the request (RFC 9218 §5), once it has come. A PRIORITY_UPDATE counts more.
    #[must_use]
    pub fn priority(&self) -> Option<Priority> {
        self.priority
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn role(&self) -> ConnectionRole {
        if self.has(IS_CLIENT) { ConnectionRole::Client } else { ConnectionRole::Server }
    }

    /// Counts bytes of the peer that bring its message forward by nothing.
    fn discard(&mut self, bytes: u64) -> Result<(), StreamError> {
        let left = u64::from(self.reserved_left).checked_sub(bytes);
        self.reserved_left = left.ok_or(StreamError::Connection(Exceeded::ReservedBytes.into()))? as u32;
        Ok(())
    }

    fn read_frames(
        &mut self,
        wire: &mut Input,
        plain: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Step<()>, StreamError> {
        loop {
            if wire.is_empty() {
                return Ok(Step::NeedMore);
            }
            if self.frame_left > 0 {
                if !self.has(IS_DISCARDED) {
                    self.pass_data(wire, plain, reply);
                    return Ok(Step::Message(()));
                }
                let skipped = self.frame_left.min(wire.len() as u64);
                wire.consume(skipped as usize);
                self.frame_left -= skipped;
                continue;
            }
            let Some((head, head_bytes)) = FrameHead::read(wire.bytes()) else { return Ok(Step::NeedMore) };
            self.check_kind(head.kind)?;
            match head.kind {
                kind::DATA => {
                    if self.body_left != UNDECLARED {
                        self.body_left = self.body_left.checked_sub(head.length).ok_or(StreamError::Malformed)?;
                    }
                    if head.length == 0 {
                        self.discard(head_bytes as u64)?;
                    }
                    wire.consume(head_bytes);
                    (self.frame_left, self.flags) = (head.length, self.flags & !IS_DISCARDED);
                }
                kind::HEADERS => {
                    if head.length > self.config.limits().rewritten_section_bytes_max().into() {
                        return Err(self.refuse_head(reply));
                    }
                    let length = head.length as usize;
                    if wire.len() < head_bytes + length {
                        return Ok(Step::NeedMore);
                    }
                    let ends = self.has(IS_LAST_INPUT) && wire.len() == head_bytes + length;
                    self.read_section(&wire.bytes()[head_bytes..head_bytes + length], ends, plain, reply)?;
                    wire.consume(head_bytes + length);
                    return Ok(Step::Message(()));
                }
                _ => {
                    self.discard(head.length.saturating_add(head_bytes as u64))?;
                    wire.consume(head_bytes);
                    (self.frame_left, self.flags) = (head.length, self.flags | IS_DISCARDED);
                }
            }
        }
    }

    /// Whether a frame may come now (RFC 9114 §4.1, §7). Unknown ones always may.
    fn check_kind(&self, kind: u64) -> Result<(), Violation> {
        let is_allowed = match kind {
            kind::DATA => self.inbound == Inbound::Body,
            // Behind a CONNECT only DATA follows (RFC 9114 §4.4).
            kind::HEADERS => match self.inbound {
                Inbound::Head => true,
                Inbound::Body => !self.has(IS_CONNECT),
                _ => false,
            },
            // This client has permitted no push.
            kind::PUSH_PROMISE if self.has(IS_CLIENT) => return Err(Violation::Id),
            kind::PUSH_PROMISE | kind::SETTINGS | kind::GOAWAY | kind::MAX_PUSH_ID | kind::CANCEL_PUSH => false,
            kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_OF_PUSH => false,
            kind => !is_of_http2(kind),
        };
        if is_allowed { Ok(()) } else { Err(Violation::FrameUnexpected) }
    }

    /// Passes bytes of a DATA frame as a record.
    fn pass_data(&mut self, wire: &mut Input, plain: &mut Input, reply: &Output<'_>) {
        let length = self.frame_left.min(wire.len() as u64).min(RECORD_CONTENT_MAX.into()) as u32;
        let head = stream::FrameHead { length, kind: stream::kind::DATA, flags: 0, stream: 0 };
        plain.append(reply.pool().copy(&head.bytes()), reply.pool());
        wire.move_to(0..length as usize, plain, reply.pool());
        self.frame_left -= u64::from(length);
    }

    /// Decodes a field section, and passes it as a record.
    fn read_section(
        &mut self,
        bytes: &[u8],
        ends: bool,
        plain: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<(), StreamError> {
        let kind = match (self.inbound, self.role()) {
            (Inbound::Head, ConnectionRole::Server) => HeadKind::Request,
            (Inbound::Head, ConnectionRole::Client) => HeadKind::Response,
            _ => HeadKind::Trailers,
        };
        SCRATCH.with_borrow_mut(|scratch| {
            let facts = match scratch.decode(bytes, kind, self.config.stream()) {
                Ok(facts) => facts,
                Err(SectionFault::Qpack(error)) => return Err(StreamError::Connection(error.into())),
                Err(SectionFault::Head(HeadFault::Malformed)) => return Err(StreamError::Malformed),
                Err(SectionFault::Head(HeadFault::TooLarge)) => return Err(self.refuse_head(reply)),
            };
            match kind {
                HeadKind::Request => self.on_request(facts, ends)?,
                HeadKind::Response => self.on_response(facts, ends)?,
                HeadKind::Trailers => self.on_trailers()?,
            }
            let text = &mut scratch.parts.text;
            write_head_record(text, ends);
            plain.append(reply.pool().copy(text), reply.pool());
            Ok(())
        })
    }

    fn on_request(&mut self, facts: HeadFacts, ends: bool) -> Result<(), StreamError> {
        self.priority = facts.priority;
        self.flags |= match () {
            () if facts.is_head => IS_HEAD,
            () if facts.is_connect => IS_CONNECT,
            () => 0,
        };
        self.body_left = declared(facts.content_length.filter(|_| !facts.is_connect));
        self.inbound = Inbound::Body;
        self.check_length(ends)
    }

    fn on_response(&mut self, facts: HeadFacts, ends: bool) -> Result<(), StreamError> {
        if facts.status < 200 {
            return if ends { Err(StreamError::Malformed) } else { Ok(()) };
        }
        let is_success = (200..300).contains(&facts.status);
        // A tunnel has no body, and its head no length (RFC 9110 §9.3.6).
        let is_tunnel = self.has(IS_CONNECT) && is_success;
        let has_body = !self.has(IS_HEAD) && !matches!(facts.status, 204 | 304) && !is_tunnel;
        if !is_success {
            self.flags &= !IS_CONNECT;
        }
        self.body_left = match facts.content_length {
            _ if is_tunnel => UNDECLARED,
            // Bytes in place of no body are malformed as well.
            _ if !has_body => 0,
            length => declared(length),
        };
        self.inbound = Inbound::Body;
        self.check_length(ends)
    }

    fn on_trailers(&mut self) -> Result<(), StreamError> {
        self.inbound = Inbound::End;
        self.check_length(true)
    }

    /// At the end of a message all bytes of a body have come.
    fn check_length(&self, ends: bool) -> Result<(), StreamError> {
        match self.body_left {
            0 | UNDECLARED => Ok(()),
            _ if ends => Err(StreamError::Malformed),
            _ => Ok(()),
        }
    }

    /// A field section exceeds a limit. A server answers with 431, without an application, unless a response may be on
    /// its way.
    #[cold]
    fn refuse_head(&mut self, reply: &mut Output<'_>) -> StreamError {
        let is_answered = !self.has(IS_CLIENT) && self.inbound == Inbound::Head;
        if is_answered {
            self.config.stream().refusals().add(Status::FIELDS_TOO_LARGE);
            Refusal::record(Status::FIELDS_TOO_LARGE, HEAD_TOO_LARGE, &[]);
            section::write_empty_response(Status::FIELDS_TOO_LARGE.code(), reply);
            self.flags |= SENT_END;
        }
        StreamError::HeadTooLarge { is_answered }
    }

    #[cold]
    fn fail(&mut self, error: StreamError) -> StreamError {
        (self.inbound, self.failure) = (Inbound::Failed, Some(error));
        error
    }

    /// Writes the record that is next. Returns `false` if there is none.
    fn write_record(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> bool {
        let Some(record) = Record::peek(plain) else { return false };
        if record.kind != RecordKind::Data {
            record.take_content(plain, |lines| self.write_section(record, lines, out));
            self.end_record(record.ends);
            return true;
        }
        if record.length > 0 {
            let (head, start) = FrameHead::of_data(record.length);
            let head = &head[start..];
            if record.length <= SHORT_DATA_BYTES
                && let Some(content) = record.content(plain)
            {
                out.write_pieces((head, content, &[][..]));
                plain.advance(RECORD_BYTES as u64 + record.length);
                self.end_record(record.ends);
                return true;
            }
            out.write(head);
        }
        plain.advance(RECORD_BYTES as u64);
        self.record_left = record.length;
        if record.ends {
            self.flags |= RECORD_ENDS;
        }
        self.end_record(record.ends && record.length == 0);
        true
    }

    /// Writes a response whose head and short body lie side by side, as most do. Returns `false` if the next record is no
    /// such head.
    fn write_short_response(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> bool {
        let Some(front) = plain.front() else { return false };
        let Some((record, lines, rest)) = Record::split(front) else { return false };
        if record.kind != RecordKind::Response || record.ends {
            return false;
        }
        let Some((data, content, _)) = Record::split(rest) else { return false };
        if data.kind != RecordKind::Data || !(1..=SHORT_DATA_BYTES).contains(&data.length) {
            return false;
        }
        let (head, start) = FrameHead::of_data(data.length);
        section::write_before((&head[start..], content), record, lines, self.config.stream().name(), out);
        plain.advance(2 * RECORD_BYTES as u64 + record.length + data.length);
        self.end_record(data.ends);
        true
    }

    fn end_record(&mut self, ends: bool) {
        if ends {
            self.flags |= SENT_END;
        }
    }

    fn write_section(&mut self, record: Record, lines: &[u8], out: &mut Output<'_>) {
        if record.kind == RecordKind::Request {
            let is = |method: &[u8]| lines.strip_prefix(b":method: ").is_some_and(|rest| rest.starts_with(method));
            self.flags |= match () {
                () if is(b"HEAD\r") => IS_HEAD,
                () if is(b"CONNECT\r") => IS_CONNECT,
                () => 0,
            };
        }
        section::write(record, lines, self.config.stream().name(), out);
    }
}

impl Filter for RequestStream {
    type Error = StreamError;

    fn inbound(
        &mut self,
        wire: &mut Input,
        plain: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Step<()>, StreamError> {
        if self.inbound == Inbound::Failed {
            wire.consume(wire.len());
            return Ok(Step::NeedMore);
        }
        self.read_frames(wire, plain, reply).map_err(|error| self.fail(error))
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), StreamError> {
        loop {
            if self.record_left > 0 {
                let moved = out.take_flushed_up_to(plain, self.record_left);
                self.record_left -= moved;
                if self.record_left > 0 {
                    return Ok(());
                }
                self.end_record(self.has(RECORD_ENDS));
            }
            if !self.write_short_response(plain, out) && !self.write_record(plain, out) {
                return Ok(());
            }
        }
    }

    fn decode_eof(&mut self, wire: &mut Input, _: &mut Output<'_>) -> Result<(), StreamError> {
        let ended = match (self.inbound, self.role()) {
            (Inbound::Failed, _) => Ok(()),
            // RFC 9114 §7.1.
            _ if !wire.is_empty() || self.frame_left > 0 => Err(Violation::FrameLayout.into()),
            (Inbound::Head, ConnectionRole::Server) => Err(StreamError::Incomplete),
            (Inbound::Head, ConnectionRole::Client) => Err(StreamError::Malformed),
            _ => self.check_length(true),
        };
        ended.map_err(|error| self.fail(error))
    }

    fn urgency(&self) -> Option<u8> {
        self.priority.map(|priority| priority.urgency)
    }

    fn protocol(&self) -> &'static str {
        "HTTP/3"
    }

    fn allows_file_bypass(&self) -> bool {
        true
    }
}

/// A longer section is not remembered.
const KEPT_BYTES_MAX: usize = 1024;

/// Up to this length it is cheaper to copy bytes of a body than to move them.
const SHORT_DATA_BYTES: u64 = 1024;

/// The length of a body, or [`UNDECLARED`]. Of one that is not possible, which never comes, a byte is left out.
fn declared(length: Option<u64>) -> u64 {
    length.map_or(UNDECLARED, |length| length.min(UNDECLARED - 1))
}

/// In place of the length of a body: the peer has declared none. No body is that long: QUIC numbers bytes up to 2⁶².
const UNDECLARED: u64 = u64::MAX;

const _: () = assert!(size_of::<RequestStream>() <= 48);
const _: () = assert!(HEAD_BYTES == 9 && flag::END_STREAM == 1, "the records of HTTP/2 and HTTP/3 are the same");
