//! `MessageWriter`: writes a message with compressed names.
//!
//! A table of bounded size finds the suffixes that the message already has, by a hash of their labels in lower case. A
//! name costs a bounded number of comparisons, so a message of many names has no quadratic cost, whatever their hashes.

use std::ops::Deref;

use bytes::Bytes;

use crate::edns::Edns;
use crate::error::DnsError;
use crate::header::{FIXED_BYTES, HEADER_BYTES, Header};
use crate::layout::{self, Field};
use crate::limits::MESSAGE_BYTES_MAX;
use crate::message_view::RecordView;
use crate::name::{LABEL_BYTES_MAX, NAME_BYTES_MAX, Name};
use crate::name_view::{Compression, NameView};
use crate::numbers::{Class, RecordType};
use crate::records::{Question, Rdata, Record};

/// A section of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Answers.
    Answer,
    /// Records of authority.
    Authority,
    /// Additional records.
    Additional,
}

/// Writes a message: the question, then the sections in their order.
///
/// ```
/// use tidegate::dns::{Header, MessageView, MessageWriter, Name, Rdata, Record, ResponseCode, Section};
///
/// let name: Name = "tides.example".parse()?;
/// let mut writer = MessageWriter::new(Header::query(7).response(ResponseCode::NOERROR));
/// for host in 1..=2 {
///     let record = Record::new(name.clone(), 60, Rdata::a([192, 0, 2, host].into()));
///     writer.record(Section::Answer, &record)?;
/// }
/// let wire = writer.finish();
/// // The second name is a pointer.
/// assert_eq!(wire.len(), 12 + (15 + 14) + (2 + 14));
/// assert_eq!(MessageView::parse(&wire)?.answers().count(), 2);
/// # Ok::<(), tidegate::dns::DnsError>(())
/// ```
#[derive(Debug)]
pub struct MessageWriter {
    bytes: Vec<u8>,
    bytes_max: usize,
    reserved: usize,
    header: Header,
    questions: u16,
    counts: [u16; 3],
    section: Section,
    suffixes: Suffixes,
}

impl MessageWriter {
    /// A message for a stream: of at most 65,535 bytes.
    #[must_use]
    pub fn new(header: Header) -> Self {
        Self::with_bytes_max(header, MESSAGE_BYTES_MAX)
    }

    /// A message of at most `bytes_max` bytes, but at least 512 and at most 65,535.
    #[must_use]
    pub fn with_bytes_max(header: Header, bytes_max: usize) -> Self {
        let mut bytes = Vec::with_capacity(INITIAL_BYTES);
        bytes.resize(HEADER_BYTES, 0);
        Self {
            bytes,
            bytes_max: bytes_max.clamp(usize::from(crate::limits::UDP_PAYLOAD_BYTES_MIN), MESSAGE_BYTES_MAX),
            reserved: 0,
            header,
            questions: 0,
            counts: [0; 3],
            section: Section::Answer,
            suffixes: Suffixes::default(),
        }
    }

    /// Keeps bytes free for the OPT record, which is written last: [`Edns::wire_bytes`].
    #[must_use]
    pub const fn reserve(mut self, bytes: usize) -> Self {
        self.reserved = bytes;
        self
    }

    /// Writes the question, with the case of its letters.
    ///
    /// # Errors
    /// [`DnsError::SectionOrder`] if there is a question or a record already.
    pub fn question(mut self, question: &Question) -> Result<Self, DnsError> {
        if self.bytes.len() != HEADER_BYTES {
            return Err(DnsError::SectionOrder);
        }
        self.name(question.name.wire(), true);
        self.bytes.extend_from_slice(&question.record_type.0.to_be_bytes());
        self.bytes.extend_from_slice(&question.class.0.to_be_bytes());
        self.questions = 1;
        Ok(self)
    }

    /// Writes a record.
    ///
    /// # Errors
    /// [`DnsError::Full`] if it does not fit: nothing of it was written. [`DnsError::SectionOrder`] if a later section has
    /// begun.
    pub fn record(&mut self, section: Section, record: &Record) -> Result<(), DnsError> {
        self.parts(section, record.name.wire(), record.class, record.ttl, &record.data)
    }

    /// Writes a record with another owner and another TTL in seconds.
    ///
    /// # Errors
    /// As for [`record`](Self::record).
    pub fn rdata(&mut self, section: Section, name: &Name, ttl: u32, data: &Rdata) -> Result<(), DnsError> {
        self.parts(section, name.wire(), Class::IN, ttl, data)
    }

    /// Writes a record of another message.
    ///
    /// # Errors
    /// As for [`record`](Self::record).
    pub fn view(&mut self, section: Section, record: &RecordView<'_>) -> Result<(), DnsError> {
        let mut name = [0; NAME_BYTES_MAX];
        let length = record.name().write_wire(&mut name);
        self.parts(section, &name[..length], record.class(), record.ttl(), &record.to_rdata())
    }

    /// Writes the OPT record into the bytes that [`reserve`](Self::reserve) kept free.
    ///
    /// # Errors
    /// As for [`record`](Self::record).
    pub fn edns(mut self, edns: &Edns) -> Result<Self, DnsError> {
        self.reserved = 0;
        let mut options = Vec::with_capacity(edns.wire_bytes());
        for (code, data) in &edns.options {
            options.extend_from_slice(&code.to_be_bytes());
            options.extend_from_slice(&u16::try_from(data.len()).map_err(|_| DnsError::Full)?.to_be_bytes());
            options.extend_from_slice(data);
        }
        let upper = u32::from(self.header.response_code.0 >> 4 & 0xff) << 24;
        let ttl = upper | if edns.wants_dnssec { 0x8000 } else { 0 };
        let data = Rdata::from_checked(RecordType::OPT, options.into());
        self.parts(Section::Additional, &[0], Class(edns.udp_payload_bytes), ttl, &data)?;
        Ok(self)
    }

    /// Bytes so far.
    #[must_use]
    pub const fn wire_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Sets TC: records are missing.
    pub const fn set_truncated(&mut self) {
        self.header.is_truncated = true;
    }

    /// The message.
    #[must_use]
    pub fn finish(mut self) -> EncodedMessage {
        self.bytes[..4].copy_from_slice(&self.header.bytes());
        self.bytes[4..6].copy_from_slice(&self.questions.to_be_bytes());
        for (index, count) in self.counts.iter().enumerate() {
            self.bytes[6 + 2 * index..8 + 2 * index].copy_from_slice(&count.to_be_bytes());
        }
        EncodedMessage(self.bytes.into())
    }

    fn parts(&mut self, section: Section, name: &[u8], class: Class, ttl: u32, data: &Rdata) -> Result<(), DnsError> {
        if section < self.section {
            return Err(DnsError::SectionOrder);
        }
        let count = self.counts[section as usize].checked_add(1).ok_or(DnsError::Full)?;
        let start = self.bytes.len();
        self.name(name, true);
        self.bytes.extend_from_slice(&data.record_type().0.to_be_bytes());
        self.bytes.extend_from_slice(&class.0.to_be_bytes());
        self.bytes.extend_from_slice(&ttl.to_be_bytes());
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.data(data, class);
        let length = self.bytes.len() - length_at - 2;
        if self.bytes.len() + self.reserved > self.bytes_max || length > usize::from(u16::MAX) {
            self.bytes.truncate(start);
            self.suffixes.forget_from(start);
            return Err(DnsError::Full);
        }
        self.bytes[length_at..length_at + 2].copy_from_slice(&(length as u16).to_be_bytes());
        self.section = section;
        self.counts[section as usize] = count;
        Ok(())
    }

    fn data(&mut self, data: &Rdata, class: Class) {
        let wire = data.wire();
        // Only OPT has no class of its own, and it has no names.
        let fields = layout::fields_of_class(data.record_type(), class).unwrap_or_default();
        let is_compressible = fields.contains(&Field::CompressedName);
        if !is_compressible || layout::check(fields, wire, 0, wire.len()).is_err() {
            self.bytes.extend_from_slice(wire);
            return;
        }
        let mut at = 0;
        for &field in fields {
            let Ok(end) = layout::field_end(field, wire, at, wire.len()) else { break };
            if field == Field::CompressedName {
                self.name(&wire[at..end], true);
            } else {
                self.bytes.extend_from_slice(&wire[at..end]);
            }
            at = end;
        }
    }

    /// Writes an uncompressed name.
    fn name(&mut self, wire: &[u8], is_compressed: bool) {
        let start = self.bytes.len();
        let (mut starts, mut hashes) = ([0_u8; LABELS_MAX], [0_u32; LABELS_MAX]);
        let (mut count, mut at) = (0, 0);
        while wire[at] != 0 && count < LABELS_MAX {
            starts[count] = at as u8;
            count += 1;
            at += 1 + usize::from(wire[at]);
        }
        if !is_compressed || count == 0 {
            self.bytes.extend_from_slice(wire);
            return;
        }
        let mut hash = 0x9e37_79b9;
        for index in (0..count).rev() {
            let label = usize::from(starts[index]);
            hash = hash_label(hash, &wire[label..=label + usize::from(wire[label])]);
            hashes[index] = hash;
        }
        let found = (0..count).find_map(|index| {
            let suffix = &wire[usize::from(starts[index])..];
            self.suffixes.find(hashes[index], &self.bytes, suffix).map(|target| (index, target))
        });
        let (kept, target) = found.map_or((count, None), |(index, target)| (index, Some(target)));
        let end = if kept == count { wire.len() - 1 } else { usize::from(starts[kept]) };
        self.bytes.extend_from_slice(&wire[..end]);
        match target {
            Some(target) => self.bytes.extend_from_slice(&(0xc000 | target).to_be_bytes()),
            None => self.bytes.push(0),
        }
        for index in 0..kept {
            self.suffixes.insert(hashes[index], start + usize::from(starts[index]));
        }
    }
}

/// A label with its length, and the hash of the labels behind it.
fn hash_label(hash: u32, label: &[u8]) -> u32 {
    label.iter().fold(hash, |hash, byte| (hash ^ u32::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0193))
}

/// The places of names in a message, by the hashes of their suffixes.
#[derive(Debug)]
struct Suffixes {
    slots: [(u32, u16); SLOTS],
}

impl Default for Suffixes {
    fn default() -> Self {
        Self { slots: [(0, 0); SLOTS] }
    }
}

impl Suffixes {
    fn probes(hash: u32) -> impl Iterator<Item = usize> {
        (0..PROBES_MAX).map(move |probe| (hash ^ hash >> 16) as usize + probe).map(|index| index % SLOTS)
    }

    fn find(&self, hash: u32, message: &[u8], suffix: &[u8]) -> Option<u16> {
        Self::probes(hash).map(|index| self.slots[index]).take_while(|(_, place)| *place != 0).find_map(|slot| {
            let (found, place) = slot;
            (found == hash && is_name_at(message, usize::from(place), suffix)).then_some(place)
        })
    }

    fn insert(&mut self, hash: u32, place: usize) {
        if place >= POINTER_END {
            return;
        }
        if let Some(index) = Self::probes(hash).find(|index| self.slots[*index].1 == 0) {
            self.slots[index] = (hash, place as u16);
        }
    }

    /// Forgets the names that are no longer in the message.
    fn forget_from(&mut self, start: usize) {
        for slot in &mut self.slots {
            if usize::from(slot.1) >= start {
                *slot = (0, 0);
            }
        }
    }
}

/// Whether the name at a place of the message is this uncompressed one. Case is ignored: a receiver gets the letters of
/// the name that the message had first.
fn is_name_at(message: &[u8], place: usize, suffix: &[u8]) -> bool {
    let Ok((found, _)) = NameView::read(message, place, Compression::Allowed) else { return false };
    let mut expected = crate::name::labels(suffix);
    found.labels().all(|label| expected.next().is_some_and(|expected| expected.eq_ignore_ascii_case(label)))
        && expected.next().is_none()
}

/// A message in wire form, of 12 to 65,535 bytes. A clone shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedMessage(Bytes);

impl EncodedMessage {
    /// A message that is known to be one.
    pub(crate) fn from_checked(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl Deref for EncodedMessage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&crate::Message> for EncodedMessage {
    /// A received message, to be sent as it is.
    fn from(message: &crate::Message) -> Self {
        Self(message.to_bytes())
    }
}

/// Names of 255 bytes have at most 127 labels.
const LABELS_MAX: usize = NAME_BYTES_MAX / 2;
/// Suffixes that are remembered; a message with more of them has later ones uncompressed.
const SLOTS: usize = 256;
/// Slots that one suffix may occupy.
const PROBES_MAX: usize = 4;
/// A pointer has 14 bits.
const POINTER_END: usize = 1 << 14;
/// Most messages are not longer.
const INITIAL_BYTES: usize = 256;

const _: () = assert!(HEADER_BYTES > 0 && LABEL_BYTES_MAX < 64 && FIXED_BYTES == 10);
