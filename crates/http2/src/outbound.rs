//! The output of streams: heads, trailers and bodies, from the records that their codecs have queued.
//!
//! A head is compressed here, when it is written, and not before: its references depend on the order on the wire.

use std::cell::RefCell;

use tidegate_codec::mux::StreamKey;
use tidegate_codec::{Outbound, Output};
use tidegate_http_stream::{RECORD_BYTES, Record, RecordKind, SHORT_COOKIE_BYTES, split_line};
use tidegate_http1::{OwnFields, Status};

use crate::connection::{Connection, Role};
use crate::frame::{ErrorCode, FRAME_BYTES_MAX, FrameHead, flag, kind};
use crate::hpack::{Encoder, Indexing, static_table};
use crate::stream_state::{HAS_LENGTH, HEAD_WRITTEN, IS_CONNECT, IS_HEAD, IS_TUNNEL, RECORD_ENDS};

thread_local! {
    /// The last head, and the last trailers, that were written.
    static SECTIONS: RefCell<[Section; 2]> = RefCell::default();
}

/// A head or trailers, and their field block. A section that comes again on the same connection, as most do where many
/// requests come together, is not encoded again.
#[derive(Default)]
struct Section {
    /// The state of the encoder, which the block has not changed; `None` if it has.
    version: Option<u64>,
    status: u16,
    date: [u8; DATE_BYTES],
    lines: Vec<u8>,
    block: Vec<u8>,
}

impl Section {
    fn is(&self, version: Option<u64>, record: Record, lines: &[u8], date: &[u8; DATE_BYTES]) -> bool {
        version.is_some()
            && self.version == version
            && self.status == record.status
            && self.lines == lines
            && self.date == *date
    }

    /// Encodes a section.
    fn encode(
        &mut self,
        record: Record,
        lines: &[u8],
        date: &[u8; DATE_BYTES],
        [server, alt_svc]: [&str; 2],
        encoder: &mut Encoder,
    ) {
        let before = encoder.version();
        let block = &mut self.block;
        block.clear();
        encoder.begin(block);
        if record.kind == RecordKind::Response {
            encoder.encode_status(record.status, block);
            if record.status >= 200 {
                let own = OwnFields::among(lines);
                if !server.is_empty() && !own.server {
                    let name = static_table::SERVER;
                    encoder.encode_known(name, b"server", server.as_bytes(), Indexing::Allowed, block);
                }
                if !alt_svc.is_empty() {
                    encoder.encode_known(0, b"alt-svc", alt_svc.as_bytes(), Indexing::Allowed, block);
                }
                if !own.date {
                    encoder.encode_known(static_table::DATE, b"date", date, Indexing::Allowed, block);
                }
            }
        }
        encode_lines(encoder, lines, block);
        self.version = before.filter(|_| before == encoder.version() && lines.len() <= KEPT_BYTES_MAX);
        if self.version.is_some() {
            (self.status, self.date) = (record.status, *date);
            self.lines.clear();
            self.lines.extend_from_slice(lines);
        }
    }
}

impl Connection {
    /// One turn of a stream: heads and trailers, and at most a frame of its body. Returns whether all was written.
    pub(crate) fn write_records(
        &mut self,
        key: StreamKey,
        queue: &mut Outbound,
        ends: bool,
        out: &mut Output<'_>,
    ) -> bool {
        queue.flush();
        let allowance = self.streams.send_allowance(key).min(FRAME_BYTES_MAX);
        let (mut sent, mut has_ended) = (0, self.streams.has_ended_locally(key));
        while !has_ended {
            let Some(state) = self.streams.state(key) else { return true };
            if state.record_left > 0 {
                let length = state.record_left.min((allowance - sent).into());
                if length == 0 {
                    break;
                }
                state.record_left -= length;
                has_ended = state.record_left == 0 && state.has(RECORD_ENDS);
                sent += length as u32;
                write_body(key.id(), queue, length as u32, has_ended, out);
                continue;
            }
            let Some(record) = Record::peek(queue) else { break };
            has_ended = record.ends;
            if record.kind != RecordKind::Data {
                record.take_content(queue, |lines| self.write_section(key, record, lines, out));
                continue;
            }
            if record.length <= SHORT_DATA_BYTES.min((allowance - sent).into())
                && let Some(content) = record.content(queue)
            {
                sent += content.len() as u32;
                write_short_body(key.id(), content, has_ended, out);
                queue.advance(RECORD_BYTES as u64 + record.length);
                continue;
            }
            queue.advance(RECORD_BYTES as u64);
            state.record_left = record.length;
            if record.ends {
                state.flags |= RECORD_ENDS;
            }
            has_ended &= record.length == 0;
            if has_ended {
                write_body(key.id(), queue, 0, true, out);
            }
        }
        let is_all = queue.is_empty();
        if has_ended {
            self.end_stream(key, out);
        } else if ends && is_all {
            // The application has gone in the middle of its message.
            self.reset_unended(key, out);
        }
        self.streams.on_sent(key, sent, !is_all);
        is_all
    }

    /// The whole response of a stream whose request has ended, which was opened last, and whose queue has nothing else.
    /// Returns `false`, and writes nothing, if a window or one frame is too small for it, or if it is not of the usual
    /// kind, a head and a body in one piece of memory.
    #[inline]
    pub(crate) fn write_whole(&mut self, key: StreamKey, queue: &mut Outbound, out: &mut Output<'_>) -> bool {
        let Some((head, lines, rest)) = queue.whole().and_then(Record::split) else { return false };
        if head.kind != RecordKind::Response || head.ends != rest.is_empty() {
            return false;
        }
        let mut content = None;
        if !head.ends {
            match Record::split(rest) {
                Some((Record { kind: RecordKind::Data, ends: true, .. }, bytes, [])) => content = Some(bytes),
                _ => return false,
            }
        }
        let length = content.map_or(0, <[u8]>::len);
        if length > self.streams.send_allowance(key).min(FRAME_BYTES_MAX) as usize {
            return false;
        }
        self.write_answer_frames(key.id(), head, lines, content, out);
        self.streams.close_answered(key, length as u32);
        self.abuse.credit_stream(key.id(), self.config.limits().abuse_credit_per_request);
        self.count_idle_from(out.now());
        true
    }

    /// Writes the frames of a response.
    fn write_answer_frames(
        &mut self,
        id: u32,
        record: Record,
        lines: &[u8],
        content: Option<&[u8]>,
        out: &mut Output<'_>,
    ) {
        SECTIONS.with_borrow_mut(|[section, _]| {
            let date = out.time().date();
            if !section.is(self.encoder.version(), record, lines, date) {
                section.encode(record, lines, date, self.config.own_values(), &mut self.encoder);
            }
            let block = &section.block[..];
            if block.len() > FRAME_BYTES_MAX as usize {
                write_block(id, block, record.ends, self.frame_bytes_max.min(FRAME_BYTES_MAX), out);
                if let Some(content) = content {
                    write_short_body(id, content, true, out);
                }
                return;
            }
            let flags = flag::END_HEADERS | if record.ends { flag::END_STREAM } else { 0 };
            let head = FrameHead { length: block.len() as u32, kind: kind::HEADERS, flags, stream: id }.bytes();
            match content {
                None => out.write_pieces((&head, block)),
                Some(content) => {
                    let length = content.len() as u32;
                    let data = FrameHead { length, kind: kind::DATA, flags: flag::END_STREAM, stream: id }.bytes();
                    out.write_pieces((&head, block, &data, content));
                }
            }
        });
    }

    /// Our end of a stream was written. A client need not send the rest of a request that has its response (RFC 9113
    /// §8.1).
    fn end_stream(&mut self, key: StreamKey, out: &mut Output<'_>) {
        self.streams.end_locally(key);
        match self.role {
            Role::Server => self.abuse.credit_stream(key.id(), self.config.limits().abuse_credit_per_request),
            Role::Client => self.abuse.credit(self.config.limits().abuse_credit_per_request),
        }
        self.count_idle_from(out.now());
        let is_tunnel = self.has_flag(key, IS_TUNNEL);
        if self.role == Role::Server && !is_tunnel && !self.streams.has_peer_ended(key) {
            self.reset_unneeded(key.id(), out);
            if let Some(left) =
                self.streams.state(key).filter(|state| state.has(HAS_LENGTH)).map(|state| state.body_left)
            {
                self.reset.get_or_insert_default().expect(key.id(), left);
            }
            self.streams.stop_peer(key);
        }
    }

    /// Whether the peer has seen a stream. One that this side has given up before its head was written is idle for the peer,
    /// and a reset of it would be an error of the connection (RFC 9113 §6.4).
    pub(crate) fn is_known_to_peer(&mut self, key: StreamKey) -> bool {
        self.role == Role::Server || self.has_flag(key, HEAD_WRITTEN)
    }

    /// Resets a stream whose message has no end.
    #[cold]
    pub(crate) fn reset_unended(&mut self, key: StreamKey, out: &mut Output<'_>) {
        if !self.streams.has_ended_locally(key) {
            if self.is_known_to_peer(key) {
                self.write_reset_code(key.id(), ErrorCode::INTERNAL_ERROR, out);
            }
            self.streams.stop_peer(key);
            self.streams.end_locally(key);
        }
    }

    /// Writes a head or trailers.
    fn write_section(&mut self, key: StreamKey, record: Record, lines: &[u8], out: &mut Output<'_>) {
        SECTIONS.with_borrow_mut(|sections| {
            let section = &mut sections[usize::from(record.kind == RecordKind::Trailers)];
            let date = out.time().date();
            if !section.is(self.encoder.version(), record, lines, date) {
                section.encode(record, lines, date, self.config.own_values(), &mut self.encoder);
            }
            let frame_bytes_max = self.frame_bytes_max.min(FRAME_BYTES_MAX);
            write_block(key.id(), &section.block, record.ends, frame_bytes_max, out);
        });
        if record.kind == RecordKind::Request
            && let Some(state) = self.streams.state(key)
        {
            let is = |method: &[u8]| lines.strip_prefix(b":method: ").is_some_and(|rest| rest.starts_with(method));
            state.flags |= match () {
                () if is(b"HEAD\r") => IS_HEAD,
                () if is(b"CONNECT\r") => IS_CONNECT,
                () => 0,
            };
        }
        if let Some(state) = self.streams.state(key) {
            state.flags |= HEAD_WRITTEN;
            if state.has(IS_CONNECT) && (200..300).contains(&record.status) {
                state.flags |= IS_TUNNEL;
            }
        }
    }

    /// The response to a request whose head is too large: 431, without an application.
    #[cold]
    pub(crate) fn write_too_large(&mut self, id: u32, has_peer_ended: bool, out: &mut Output<'_>) {
        let status = Status::FIELDS_TOO_LARGE;
        self.config.stream().refusals().add(status);
        if let Some(note) = &self.on_refused {
            (note.0)(status);
        }
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        self.encoder.encode_status(status.code(), &mut block);
        self.encoder.encode(b"content-length", b"0", Indexing::Omitted, &mut block);
        write_block(id, &block, true, FRAME_BYTES_MAX, out);
        if !has_peer_ended {
            self.reset_unneeded(id, out);
        }
    }
}

/// Writes a field block as HEADERS, and CONTINUATION as far as one frame is not enough.
fn write_block(stream: u32, block: &[u8], ends: bool, frame_bytes_max: u32, out: &mut Output<'_>) {
    let mut flags = if ends { flag::END_STREAM } else { 0 };
    let (mut kind, mut rest) = (kind::HEADERS, block);
    loop {
        let (fragment, left) = rest.split_at(rest.len().min(frame_bytes_max as usize));
        if left.is_empty() {
            flags |= flag::END_HEADERS;
        }
        let head = FrameHead { length: fragment.len() as u32, kind, flags, stream };
        out.write_pieces((&head.bytes()[..], fragment, &[][..]));
        if left.is_empty() {
            return;
        }
        (kind, flags, rest) = (kind::CONTINUATION, 0, left);
    }
}

fn write_body(stream: u32, queue: &mut Outbound, length: u32, ends: bool, out: &mut Output<'_>) {
    let flags = if ends { flag::END_STREAM } else { 0 };
    out.write(&FrameHead { length, kind: kind::DATA, flags, stream }.bytes());
    if length > 0 {
        out.take_flushed_up_to(queue, length.into());
    }
}

/// The same for bytes that are cheaper to copy than to move.
fn write_short_body(stream: u32, content: &[u8], ends: bool, out: &mut Output<'_>) {
    let flags = if ends { flag::END_STREAM } else { 0 };
    let head = FrameHead { length: content.len() as u32, kind: kind::DATA, flags, stream };
    out.write_pieces((&head.bytes()[..], content, &[][..]));
}

/// Encodes lines of fields, which the codec of the stream has checked. Fields that concern one HTTP/1.1 connection are
/// left out (RFC 9113 §8.2.2).
fn encode_lines(encoder: &mut Encoder, mut lines: &[u8], block: &mut Vec<u8>) {
    while let Some((name, value, rest)) = split_line(lines) {
        lines = rest;
        if name.iter().any(u8::is_ascii_uppercase) {
            encode_field(encoder, &name.to_ascii_lowercase(), value, block);
        } else {
            encode_field(encoder, name, value, block);
        }
    }
}

#[inline]
fn encode_field(encoder: &mut Encoder, name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    let first = static_table::find_name(name);
    if !is_of_connection(first, name) {
        encoder.encode_known(first, name, value, indexing(first, name, value), block);
    }
}

/// Recurring fields enter the table; secrets must not. `first` is the first index of the name in the static table.
fn indexing(first: u32, name: &[u8], value: &[u8]) -> Indexing {
    match first {
        static_table::AUTHORIZATION | static_table::PROXY_AUTHORIZATION | static_table::SET_COOKIE => Indexing::Never,
        static_table::COOKIE if value.len() < SHORT_COOKIE_BYTES => Indexing::Never,
        static_table::PATH
        | static_table::AGE
        | static_table::CONTENT_LENGTH
        | static_table::CONTENT_RANGE
        | static_table::ETAG
        | static_table::IF_MODIFIED_SINCE
        | static_table::IF_NONE_MATCH
        | static_table::LAST_MODIFIED
        | static_table::LOCATION => Indexing::Omitted,
        0 if name == b"x-request-id" => Indexing::Omitted,
        _ if value.len() > INDEXED_BYTES_MAX => Indexing::Omitted,
        _ => Indexing::Allowed,
    }
}

/// Whether a field concerns one HTTP/1.1 connection.
fn is_of_connection(first: u32, name: &[u8]) -> bool {
    first == static_table::TRANSFER_ENCODING || (first == 0 && tidegate_http_stream::is_of_connection(name))
}

/// A longer value would evict most of the table.
const INDEXED_BYTES_MAX: usize = 200;

/// The length of the value of `Date` (RFC 9110 §5.6.7).
const DATE_BYTES: usize = 29;

/// Longer sections are not remembered.
const KEPT_BYTES_MAX: usize = 1024;

/// Up to this length it is cheaper to copy bytes of a body than to move them: they are sent in one piece with their head
/// and with other frames.
const SHORT_DATA_BYTES: u64 = 1024;
