//! HEADERS frames of this side: from the lines of a record to a field section.
//!
//! With tables of 0 bytes the same head is the same section on every connection, so the last one is kept, and most heads
//! are not encoded again (decision 90).

use std::cell::RefCell;

use tidegate_codec::Output;
use tidegate_http_stream::{Record, RecordKind, is_of_connection, is_secret, split_line};
use tidegate_http1::OwnFields;

use crate::frame::{FrameHead, kind};
use crate::qpack;

thread_local! {
    /// The last head, and the last trailers, that were written.
    static SECTIONS: RefCell<[Section; 2]> = RefCell::default();
}

/// A head or trailers, and their HEADERS frame.
#[derive(Default)]
struct Section {
    /// The kind and the status of the record; `None` if the section is not kept.
    record: Option<(RecordKind, u16)>,
    date: [u8; DATE_BYTES],
    server: Vec<u8>,
    lines: Vec<u8>,
    section: Vec<u8>,
    /// The frame's head.
    head: Vec<u8>,
}

impl Section {
    fn is(&self, record: Record, lines: &[u8], server: &str, date: &[u8; DATE_BYTES]) -> bool {
        self.record == Some((record.kind, record.status))
            && self.lines == lines
            && self.server == server.as_bytes()
            && self.date == *date
    }

    fn encode(&mut self, record: Record, lines: &[u8], server: &str, date: &[u8; DATE_BYTES]) {
        self.record = None;
        let section = &mut self.section;
        section.clear();
        qpack::encode_prefix(section);
        if record.kind == RecordKind::Response {
            qpack::encode_status(record.status, section);
            if record.status >= 200 {
                let own = OwnFields::among(lines);
                if !server.is_empty() && !own.server {
                    qpack::encode(b"server", server.as_bytes(), false, section);
                }
                if !own.date {
                    qpack::encode(b"date", date, false, section);
                }
            }
        }
        encode_lines(lines, section);
        self.head.clear();
        FrameHead { kind: kind::HEADERS, length: self.section.len() as u64 }.write(&mut self.head);
        if lines.len() <= KEPT_BYTES_MAX {
            (self.record, self.date) = (Some((record.kind, record.status)), *date);
            self.lines.clear();
            self.lines.extend_from_slice(lines);
            self.server.clear();
            self.server.extend_from_slice(server.as_bytes());
        }
    }
}

/// Writes the HEADERS frame of a record: a head, or trailers. A response gets `Server` and `Date`, unless it has them.
pub(crate) fn write(record: Record, lines: &[u8], server: &str, out: &mut Output<'_>) {
    with_section(record, lines, server, out, |head, section, out| out.write_pieces((head, section)));
}

/// The same with the bytes of a DATA frame behind it.
pub(crate) fn write_before(
    (frame_head, content): (&[u8], &[u8]),
    record: Record,
    lines: &[u8],
    server: &str,
    out: &mut Output<'_>,
) {
    with_section(record, lines, server, out, |head, section, out| {
        out.write_pieces((head, section, frame_head, content));
    });
}

/// Passes the head and the payload of the HEADERS frame of a record to `write`.
#[inline]
fn with_section<'o>(
    record: Record,
    lines: &[u8],
    server: &str,
    out: &mut Output<'o>,
    write: impl FnOnce(&[u8], &[u8], &mut Output<'o>),
) {
    SECTIONS.with_borrow_mut(|sections| {
        let section = &mut sections[usize::from(record.kind == RecordKind::Trailers)];
        let date = out.time().date();
        if !section.is(record, lines, server, date) {
            section.encode(record, lines, server, date);
        }
        write(&section.head, &section.section, out);
    });
}

/// Writes the HEADERS frame of a response that this crate gives without an application.
#[cold]
pub(crate) fn write_empty_response(status: u16, out: &mut Output<'_>) {
    let mut section = Vec::new();
    qpack::encode_prefix(&mut section);
    qpack::encode_status(status, &mut section);
    qpack::encode(b"content-length", b"0", false, &mut section);
    let mut frame = Vec::new();
    FrameHead { kind: kind::HEADERS, length: section.len() as u64 }.write(&mut frame);
    frame.extend_from_slice(&section);
    out.write(&frame);
}

/// Encodes lines of fields, which the codec of the stream has checked. Fields that concern one HTTP/1.1 connection are
/// left out (RFC 9114 §4.2).
fn encode_lines(mut lines: &[u8], section: &mut Vec<u8>) {
    while let Some((name, value, rest)) = split_line(lines) {
        lines = rest;
        if name.iter().any(u8::is_ascii_uppercase) {
            encode_field(&name.to_ascii_lowercase(), value, section);
        } else {
            encode_field(name, value, section);
        }
    }
}

fn encode_field(name: &[u8], value: &[u8], section: &mut Vec<u8>) {
    if !is_of_connection(name) {
        qpack::encode(name, value, is_secret(name, value), section);
    }
}

/// The length of the value of `Date` (RFC 9110 §5.6.7).
const DATE_BYTES: usize = 29;

/// Longer sections are not remembered.
const KEPT_BYTES_MAX: usize = 1024;
