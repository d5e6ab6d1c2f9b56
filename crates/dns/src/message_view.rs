//! `MessageView`: a message, read in place, and `Message`, the same with the bytes.
//!
//! Parsing walks all records once, and checks each name and each known field. So sections are iterated without errors
//! afterwards, and a count that lies, a pointer that loops or a second OPT record is found before any use.
//!
//! Read next: `record_data.rs`, the fields of a record.

use std::fmt;

use bytes::Bytes;
use tidegate_buffer::Slice;

use crate::edns::EdnsView;
use crate::error::DnsError;
use crate::header::{FIXED_BYTES, HEADER_BYTES, Header};
use crate::layout;
use crate::limits::{MESSAGE_BYTES_MAX, ProtocolLimits};
use crate::name_view::{Compression, NameView};
use crate::numbers::{Class, RecordType, ResponseCode};
use crate::record_data::RecordData;
use crate::records::{Question, Rdata, Record};

/// A message within bytes that another owns.
///
/// ```
/// use tidegate::dns::{Header, MessageView, MessageWriter, Question, RecordType};
///
/// let question = Question::new("tides.example".parse()?, RecordType::AAAA);
/// let wire = MessageWriter::new(Header::query(4_711)).question(&question)?.finish();
/// let message = MessageView::parse(&wire)?;
/// assert_eq!((message.header().id, message.answers().count()), (4_711, 0));
/// assert_eq!(message.question().expect("it has one").to_question(), question);
/// # Ok::<(), tidegate::dns::DnsError>(())
/// ```
#[derive(Clone, Copy)]
pub struct MessageView<'a> {
    bytes: &'a [u8],
    header: Header,
    sections: Sections,
}

/// Where the sections of a message begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sections {
    has_question: bool,
    answers: u16,
    authorities: u16,
    additionals: u16,
    end: u16,
    /// The position of the OPT record's fixed part; zero if there is none.
    opt: u16,
}

/// A question within a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuestionView<'a> {
    /// The name that is asked for.
    pub name: NameView<'a>,
    /// The type that is asked for.
    pub record_type: RecordType,
    /// The class that is asked for.
    pub class: Class,
}

impl QuestionView<'_> {
    /// A copy with memory of its own.
    #[must_use]
    pub fn to_question(&self) -> Question {
        Question { name: self.name.to_name(), record_type: self.record_type, class: self.class }
    }
}

/// A record within a message.
#[derive(Clone, Copy)]
pub struct RecordView<'a> {
    message: &'a [u8],
    name: NameView<'a>,
    /// The position of the type, behind the name.
    fixed: usize,
    end: usize,
}

impl<'a> MessageView<'a> {
    /// Parses a message with the usual limits.
    ///
    /// # Errors
    /// [`DnsError`]. The header may be read anyway, by [`MessageView::header_of`], to answer with FORMERR.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DnsError> {
        Self::parse_with(bytes, &ProtocolLimits::default())
    }

    /// Parses a message.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn parse_with(bytes: &'a [u8], limits: &ProtocolLimits) -> Result<Self, DnsError> {
        let header = Header::read(bytes).ok_or(DnsError::Truncated)?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(DnsError::MessageTooLong { bytes_max: MESSAGE_BYTES_MAX });
        }
        let count = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        let (questions, counts) = (count(4), [count(6), count(8), count(10)]);
        if questions > 1 {
            return Err(DnsError::QuestionCount);
        }
        if counts.iter().sum::<usize>() > limits.records_max {
            return Err(DnsError::TooManyRecords { records_max: limits.records_max });
        }
        let mut at = HEADER_BYTES;
        if questions == 1 {
            at = NameView::read(bytes, at, Compression::Allowed)?.1 + 4;
        }
        let (mut starts, mut opt) = ([0; 4], 0);
        for (section, count) in counts.into_iter().enumerate() {
            starts[section] = at as u16;
            for _ in 0..count {
                let record = RecordView::read(bytes, at)?;
                if record.record_type() == RecordType::OPT {
                    if section != ADDITIONAL || opt != 0 || !record.name.is_root() {
                        return Err(DnsError::Opt);
                    }
                    opt = record.fixed as u16;
                }
                record.check(limits)?;
                at = record.end;
            }
        }
        match at.cmp(&bytes.len()) {
            std::cmp::Ordering::Less => return Err(DnsError::TrailingBytes),
            std::cmp::Ordering::Greater => return Err(DnsError::Truncated),
            std::cmp::Ordering::Equal => {}
        }
        let [answers, authorities, additionals, _] = starts;
        let sections =
            Sections { has_question: questions == 1, answers, authorities, additionals, end: at as u16, opt };
        Ok(Self { bytes, header, sections })
    }

    /// The header of bytes that may not be a whole message; `None` if they are shorter than a header.
    #[must_use]
    pub fn header_of(bytes: &[u8]) -> Option<Header> {
        Header::read(bytes)
    }

    /// The wire form.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The question, unless the message has none.
    #[must_use]
    pub fn question(&self) -> Option<QuestionView<'a>> {
        if !self.sections.has_question {
            return None;
        }
        let (name, at) = NameView::read(self.bytes, HEADER_BYTES, Compression::Allowed).ok()?;
        let [a, b, c, d] = *self.bytes.get(at..at + 4)? else { return None };
        let (record_type, class) = (RecordType(u16::from_be_bytes([a, b])), Class(u16::from_be_bytes([c, d])));
        Some(QuestionView { name, record_type, class })
    }

    /// The question in wire form, with its type and its class; empty if the message has none.
    pub(crate) fn question_wire(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..usize::from(self.sections.answers)]
    }

    /// The answer section.
    pub fn answers(&self) -> impl Iterator<Item = RecordView<'a>> + use<'a> {
        records(self.bytes, self.sections.answers, self.sections.authorities)
    }

    /// The authority section.
    pub fn authorities(&self) -> impl Iterator<Item = RecordView<'a>> + use<'a> {
        records(self.bytes, self.sections.authorities, self.sections.additionals)
    }

    /// The additional section, the OPT record included.
    pub fn additionals(&self) -> impl Iterator<Item = RecordView<'a>> + use<'a> {
        records(self.bytes, self.sections.additionals, self.sections.end)
    }

    /// The content of the OPT record, if there is one.
    #[must_use]
    pub fn edns(&self) -> Option<EdnsView<'a>> {
        (self.sections.opt != 0).then(|| EdnsView::read(self.bytes, usize::from(self.sections.opt))).flatten()
    }

    /// The response code, with the bits of the OPT record.
    #[must_use]
    pub fn response_code(&self) -> ResponseCode {
        let upper = self.edns().map_or(0, |edns| u16::from(edns.extended_response_code));
        ResponseCode(upper << 4 | self.header.response_code.0)
    }

    /// How many seconds a response holds: the least TTL of its answers and of the SOA record of a denial, or the MINIMUM of that
    /// if it is less (RFC 2308 §5). `None` for one without both, such as an error.
    #[must_use]
    pub fn seconds_to_live(&self) -> Option<u32> {
        let negative = || {
            self.authorities().find_map(|record| match record.data() {
                RecordData::Soa(soa) => Some(record.ttl().min(soa.minimum)),
                _ => None,
            })
        };
        // An alias may be denied at its end: both parts have to hold.
        self.answers().map(|record| record.ttl()).chain(negative()).min()
    }
}

const ADDITIONAL: usize = 2;

fn records(bytes: &[u8], start: u16, end: u16) -> impl Iterator<Item = RecordView<'_>> {
    let (mut at, end) = (usize::from(start), usize::from(end));
    std::iter::from_fn(move || {
        let record = (at < end).then(|| RecordView::read(bytes, at).ok()).flatten()?;
        at = record.end;
        Some(record)
    })
}

impl fmt::Debug for MessageView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageView")
            .field("header", &self.header)
            .field("question", &self.question())
            .field("answers", &self.answers().collect::<Vec<_>>())
            .field("authorities", &self.authorities().collect::<Vec<_>>())
            .field("additionals", &self.additionals().collect::<Vec<_>>())
            .finish()
    }
}

impl<'a> RecordView<'a> {
    fn read(message: &'a [u8], at: usize) -> Result<Self, DnsError> {
        let (name, fixed) = NameView::read(message, at, Compression::Allowed)?;
        let length = message.get(fixed + 8..fixed + FIXED_BYTES).ok_or(DnsError::Truncated)?;
        let end = fixed + FIXED_BYTES + usize::from(u16::from_be_bytes([length[0], length[1]]));
        if end > message.len() {
            return Err(DnsError::Truncated);
        }
        Ok(Self { message, name, fixed, end })
    }

    fn check(&self, limits: &ProtocolLimits) -> Result<(), DnsError> {
        let start = self.fixed + FIXED_BYTES;
        if self.record_type() == RecordType::OPT {
            layout::check(&[layout::Field::Options], self.message, start, self.end)?;
            let count = EdnsView::read(self.message, self.fixed).map_or(0, |edns| edns.options().count());
            if count > limits.options_max {
                return Err(DnsError::TooManyOptions { options_max: limits.options_max });
            }
            return Ok(());
        }
        match layout::fields_of_class(self.record_type(), self.class()) {
            // The message before `end` is all that a name of this record may refer to.
            Some(fields) => layout::check(fields, &self.message[..self.end], start, self.end),
            None => Ok(()),
        }
    }

    /// Where the TTL is in the message.
    pub(crate) const fn ttl_at(&self) -> usize {
        self.fixed + 4
    }

    fn number(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.message[self.fixed + at], self.message[self.fixed + at + 1]])
    }

    /// The owner.
    #[must_use]
    pub const fn name(&self) -> NameView<'a> {
        self.name
    }

    /// The type.
    #[must_use]
    pub fn record_type(&self) -> RecordType {
        RecordType(self.number(0))
    }

    /// The class.
    #[must_use]
    pub fn class(&self) -> Class {
        Class(self.number(2))
    }

    /// The time to live in seconds. A value with the highest bit set is zero (RFC 2181 §8).
    #[must_use]
    pub fn ttl(&self) -> u32 {
        let ttl = u32::from(self.number(4)) << 16 | u32::from(self.number(6));
        if ttl > i32::MAX as u32 { 0 } else { ttl }
    }

    /// The data as they are in the message, with compressed names.
    #[must_use]
    pub fn raw_data(&self) -> &'a [u8] {
        &self.message[self.fixed + FIXED_BYTES..self.end]
    }

    /// The fields of the data.
    #[must_use]
    pub fn data(&self) -> RecordData<'a> {
        let range = self.fixed + FIXED_BYTES..self.end;
        if layout::fields_of_class(self.record_type(), self.class()).is_none() {
            return RecordData::Opaque(&self.message[range]);
        }
        RecordData::read(self.record_type(), self.message, range)
    }

    /// The data with memory of their own, uncompressed.
    #[must_use]
    pub fn to_rdata(&self) -> Rdata {
        let mut wire = Vec::new();
        self.write_rdata(&mut wire);
        Rdata::from_checked(self.record_type(), wire.into())
    }

    /// Appends the data, uncompressed.
    pub(crate) fn write_rdata(&self, out: &mut Vec<u8>) {
        let fields = layout::fields_of_class(self.record_type(), self.class());
        crate::record_data::expand(fields, self.message, self.fixed + FIXED_BYTES..self.end, out);
    }

    /// A copy with memory of its own.
    #[must_use]
    pub fn to_record(&self) -> Record {
        Record { name: self.name.to_name(), class: self.class(), ttl: self.ttl(), data: self.to_rdata() }
    }
}

impl fmt::Debug for RecordView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {} {}", self.name, self.ttl(), self.class(), self.record_type(), self.to_rdata())
    }
}

/// A received message with its bytes. A clone shares them.
#[derive(Clone)]
pub struct Message {
    wire: Slice,
    header: Header,
    sections: Sections,
}

impl Message {
    /// Parses a message and keeps its bytes.
    ///
    /// # Errors
    /// As for [`MessageView::parse`].
    pub fn parse(wire: Slice, limits: &ProtocolLimits) -> Result<Self, DnsError> {
        let MessageView { header, sections, .. } = MessageView::parse_with(&wire, limits)?;
        Ok(Self { wire, header, sections })
    }

    /// The message.
    #[must_use]
    pub fn view(&self) -> MessageView<'_> {
        MessageView { bytes: &self.wire, header: self.header, sections: self.sections }
    }

    /// The wire form.
    #[must_use]
    pub fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// The wire form as bytes that any thread may hold.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.wire.to_bytes()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}
