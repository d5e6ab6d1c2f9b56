//! `Name`: a domain name of its own memory, with any bytes in its labels.
//!
//! A name is its uncompressed wire form. Comparison, order and hashes ignore the case of ASCII letters (RFC 4343); the
//! case itself is kept. Presentation form is that of RFC 1035 §5.1: `\.` and `\DDD`.
//!
//! Read next: `name_view.rs`, names within a message.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::error::DnsError;

/// The most bytes of a name in wire form, the root's zero included (RFC 1035 §2.3.4).
pub const NAME_BYTES_MAX: usize = 255;

/// The most bytes of a label.
pub const LABEL_BYTES_MAX: usize = 63;

/// A domain name. It is absolute, has at most 255 bytes in wire form, and its labels have 1 to 63 bytes of any value.
///
/// ```
/// use tidegate::dns::Name;
///
/// let name: Name = r"Tide\.Gate.example".parse()?;
/// assert_eq!(name.labels().collect::<Vec<_>>(), [&b"Tide.Gate"[..], b"example"]);
/// assert_eq!(name.to_string(), r"Tide\.Gate.example.");
/// assert_eq!(name, r"tide\.gate.EXAMPLE.".parse()?);
/// assert!(name.is_within(&"example".parse()?));
/// # Ok::<(), tidegate::dns::DnsError>(())
/// ```
#[derive(Clone)]
pub struct Name {
    wire: Box<[u8]>,
}

impl Name {
    /// The root.
    #[must_use]
    pub fn root() -> Self {
        Self { wire: Box::new([0]) }
    }

    /// A name from its uncompressed wire form, which must be all of `wire`.
    ///
    /// # Errors
    /// [`DnsError::Label`], [`DnsError::NameTooLong`], [`DnsError::Truncated`] or [`DnsError::TrailingBytes`].
    pub fn from_wire(wire: &[u8]) -> Result<Self, DnsError> {
        let mut at = 0;
        loop {
            let &length = wire.get(at).ok_or(DnsError::Truncated)?;
            at += 1 + usize::from(length);
            if length == 0 {
                break;
            }
            if usize::from(length) > LABEL_BYTES_MAX {
                return Err(DnsError::Label);
            }
            if at >= NAME_BYTES_MAX {
                return Err(DnsError::NameTooLong);
            }
        }
        if at != wire.len() {
            return Err(DnsError::TrailingBytes);
        }
        Ok(Self { wire: wire.into() })
    }

    /// A name from labels, the leftmost first.
    ///
    /// # Errors
    /// [`DnsError::Label`] if a label is empty or has more than 63 bytes, [`DnsError::NameTooLong`].
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, DnsError> {
        let mut builder = NameBuilder::default();
        for label in labels {
            builder.label(label)?;
        }
        Ok(builder.finish())
    }

    /// A name that is written relative to `origin` unless it ends with a dot, as in a zone file; `@` is the origin.
    ///
    /// # Errors
    /// [`DnsError::NameText`] or [`DnsError::NameTooLong`].
    pub fn parse_relative(text: &str, origin: &Self) -> Result<Self, DnsError> {
        if text == "@" {
            return Ok(origin.clone());
        }
        let (mut builder, is_absolute) = parse_labels(text.as_bytes())?;
        if !is_absolute {
            for label in origin.labels() {
                builder.label(label)?;
            }
        }
        Ok(builder.finish())
    }

    /// The wire form, uncompressed, with the zero of the root.
    #[must_use]
    pub fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// The labels without the root, the leftmost first.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        labels(&self.wire)
    }

    /// How many labels there are, without the root.
    #[must_use]
    pub fn label_count(&self) -> usize {
        self.labels().count()
    }

    /// Whether this is the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.wire.len() == 1
    }

    /// Whether this name is `ancestor`, or below it.
    #[must_use]
    pub fn is_within(&self, ancestor: &Self) -> bool {
        suffix(&self.wire, ancestor.wire.len()).is_some_and(|suffix| suffix.eq_ignore_ascii_case(&ancestor.wire))
    }

    /// The name without its leftmost label; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let length = usize::from(self.wire[0]);
        (length > 0).then(|| Self { wire: self.wire[1 + length..].into() })
    }

    /// This name with the labels of `suffix` behind its own.
    ///
    /// # Errors
    /// [`DnsError::NameTooLong`].
    pub fn join(&self, suffix: &Self) -> Result<Self, DnsError> {
        let length = self.wire.len() - 1 + suffix.wire.len();
        if length > NAME_BYTES_MAX {
            return Err(DnsError::NameTooLong);
        }
        let mut wire = Vec::with_capacity(length);
        wire.extend_from_slice(&self.wire[..self.wire.len() - 1]);
        wire.extend_from_slice(&suffix.wire);
        Ok(Self { wire: wire.into() })
    }

    /// This name with `from`, which it is within, replaced by `to`: the substitution of a DNAME (RFC 6672 §2.2).
    ///
    /// # Errors
    /// [`DnsError::NameTooLong`]; [`DnsError::NameText`] if the name is not within `from`.
    pub fn replace_suffix(&self, from: &Self, to: &Self) -> Result<Self, DnsError> {
        if !self.is_within(from) {
            return Err(DnsError::NameText);
        }
        let kept = &self.wire[..self.wire.len() - from.wire.len()];
        if kept.len() + to.wire.len() > NAME_BYTES_MAX {
            return Err(DnsError::NameTooLong);
        }
        Ok(Self { wire: [kept, &to.wire].concat().into() })
    }

    /// The name with ASCII letters in lower case.
    #[must_use]
    pub fn to_lowercase(&self) -> Self {
        // Lengths are below `A`, so the whole wire form may be changed at once.
        Self { wire: self.wire.to_ascii_lowercase().into() }
    }

    pub(crate) const fn from_checked_wire(wire: Box<[u8]>) -> Self {
        Self { wire }
    }
}

const _: () = assert!(LABEL_BYTES_MAX < b'A' as usize);

/// The part of an uncompressed name that has `length` bytes and begins with a label.
fn suffix(wire: &[u8], length: usize) -> Option<&[u8]> {
    let start = wire.len().checked_sub(length)?;
    let mut at = 0;
    while at < start {
        at += 1 + usize::from(wire[at]);
    }
    (at == start).then(|| &wire[start..])
}

/// The labels of an uncompressed wire form.
pub(crate) fn labels(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = wire;
    std::iter::from_fn(move || {
        let (&length, behind) = rest.split_first()?;
        if length == 0 {
            return None;
        }
        let (label, next) = behind.split_at_checked(usize::from(length))?;
        rest = next;
        Some(label)
    })
}

/// Texts with a length byte each, of any length: one of no bytes does not end them.
pub(crate) fn labels_of_any_length(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = wire;
    std::iter::from_fn(move || {
        let (&length, behind) = rest.split_first()?;
        let (text, next) = behind.split_at_checked(usize::from(length))?;
        rest = next;
        Some(text)
    })
}

/// Labels that become a name.
#[derive(Debug, Default)]
pub(crate) struct NameBuilder {
    wire: Vec<u8>,
}

impl NameBuilder {
    pub(crate) fn label(&mut self, label: &[u8]) -> Result<(), DnsError> {
        if label.is_empty() || label.len() > LABEL_BYTES_MAX {
            return Err(DnsError::Label);
        }
        if self.wire.len() + 1 + label.len() >= NAME_BYTES_MAX {
            return Err(DnsError::NameTooLong);
        }
        self.wire.push(label.len() as u8);
        self.wire.extend_from_slice(label);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Name {
        self.wire.push(0);
        Name { wire: self.wire.into() }
    }
}

/// The labels of a text, and whether it ends with a dot.
fn parse_labels(text: &[u8]) -> Result<(NameBuilder, bool), DnsError> {
    let mut builder = NameBuilder::default();
    if text == b"." {
        return Ok((builder, true));
    }
    let (mut label, mut at) = (Vec::new(), 0);
    if text.is_empty() {
        return Err(DnsError::NameText);
    }
    while at < text.len() {
        match text[at] {
            b'.' => {
                builder.label(&label).map_err(text_error)?;
                label.clear();
                at += 1;
            }
            b'\\' => {
                let (byte, length) = unescape(&text[at..]).ok_or(DnsError::NameText)?;
                label.push(byte);
                at += length;
            }
            byte => {
                label.push(byte);
                at += 1;
            }
        }
        if label.len() > LABEL_BYTES_MAX {
            return Err(DnsError::NameText);
        }
    }
    let is_absolute = label.is_empty();
    if !is_absolute {
        builder.label(&label).map_err(text_error)?;
    }
    Ok((builder, is_absolute))
}

const fn text_error(error: DnsError) -> DnsError {
    if matches!(error, DnsError::Label) { DnsError::NameText } else { error }
}

/// The byte of an escape at the start of `text`, `\X` or `\DDD`, and the length of the escape.
pub(crate) fn unescape(text: &[u8]) -> Option<(u8, usize)> {
    match text {
        [b'\\', a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', ..] => {
            let number = [a, b, c].iter().fold(0_u16, |number, digit| number * 10 + u16::from(**digit - b'0'));
            u8::try_from(number).ok().map(|byte| (byte, 4))
        }
        [b'\\', b'0'..=b'9', ..] | [b'\\'] => None,
        [b'\\', byte, ..] => Some((*byte, 2)),
        _ => None,
    }
}

/// Writes labels in presentation form, with a dot behind each.
pub(crate) fn write_labels<'a>(
    labels: impl Iterator<Item = &'a [u8]>,
    f: &mut impl fmt::Write,
) -> Result<(), fmt::Error> {
    let mut is_root = true;
    for label in labels {
        is_root = false;
        for &byte in label {
            match byte {
                b'.' | b'\\' | b'"' | b'(' | b')' | b';' | b'@' | b'$' => write!(f, "\\{}", byte as char)?,
                0x21..=0x7e => f.write_char(byte as char)?,
                _ => write!(f, "\\{byte:03}")?,
            }
        }
        f.write_char('.')?;
    }
    if is_root { f.write_char('.') } else { Ok(()) }
}

impl FromStr for Name {
    type Err = DnsError;

    /// Reads presentation form. The final dot may be missing; the name is absolute anyway.
    fn from_str(text: &str) -> Result<Self, DnsError> {
        parse_labels(text.as_bytes()).map(|(builder, _)| builder.finish())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_labels(self.labels(), f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.wire.eq_ignore_ascii_case(&other.wire)
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = &mut lower[..self.wire.len()];
        lower.copy_from_slice(&self.wire);
        lower.make_ascii_lowercase();
        state.write(lower);
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    /// The canonical order of RFC 4034 §6.1: by labels from the right, in lower case.
    fn cmp(&self, other: &Self) -> Ordering {
        let mut ours: Vec<&[u8]> = self.labels().collect();
        let mut theirs: Vec<&[u8]> = other.labels().collect();
        loop {
            match (ours.pop(), theirs.pop()) {
                (None, None) => return Ordering::Equal,
                (None, Some(_)) => return Ordering::Less,
                (Some(_), None) => return Ordering::Greater,
                (Some(a), Some(b)) => {
                    let order = a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase());
                    if order.is_ne() {
                        return order;
                    }
                }
            }
        }
    }
}
