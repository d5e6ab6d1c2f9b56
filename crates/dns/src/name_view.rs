//! `NameView`: a name within a message, read in place through its compression pointers.

use std::fmt;

use crate::error::DnsError;
use crate::name::{LABEL_BYTES_MAX, NAME_BYTES_MAX, Name, NameBuilder, write_labels};

/// A name within a message. It was checked when it was read, so its labels are within the message and its pointers end.
///
/// Comparison ignores the case of ASCII letters (RFC 4343).
#[derive(Clone, Copy)]
pub struct NameView<'a> {
    message: &'a [u8],
    at: u16,
}

/// Whether a name may be compressed where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    Allowed,
    Forbidden,
}

impl<'a> NameView<'a> {
    /// Reads the name at `at`; returns it with the position behind it.
    ///
    /// A pointer must point before the label at which the part that contains the pointer begins, so the positions
    /// decrease and no loop is possible. The pointers of a name are bounded as well: a chain of pointers to pointers
    /// would otherwise cost each name that points to it thousands of steps.
    pub(crate) fn read(message: &'a [u8], at: usize, compression: Compression) -> Result<(Self, usize), DnsError> {
        let start = u16::try_from(at).map_err(|_| DnsError::Truncated)?;
        let (mut position, mut part, mut end) = (at, at, None);
        let (mut length, mut pointers) = (1, 0);
        loop {
            let &first = message.get(position).ok_or(DnsError::Truncated)?;
            match first >> 6 {
                0 => {
                    let label = usize::from(first);
                    position += 1 + label;
                    if label == 0 {
                        return Ok((Self { message, at: start }, end.unwrap_or(position)));
                    }
                    length += 1 + label;
                    if length > NAME_BYTES_MAX {
                        return Err(DnsError::NameTooLong);
                    }
                }
                3 => {
                    if compression == Compression::Forbidden {
                        return Err(DnsError::CompressedName);
                    }
                    let &second = message.get(position + 1).ok_or(DnsError::Truncated)?;
                    let target = usize::from(u16::from_be_bytes([first & 0x3f, second]));
                    pointers += 1;
                    if target >= part || pointers > POINTERS_MAX {
                        return Err(DnsError::Pointer);
                    }
                    end = end.or(Some(position + 2));
                    (position, part) = (target, target);
                }
                _ => return Err(DnsError::Label),
            }
        }
    }

    /// The labels without the root, the leftmost first.
    pub fn labels(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (message, mut at) = (self.message, usize::from(self.at));
        std::iter::from_fn(move || {
            loop {
                let &first = message.get(at)?;
                let label = usize::from(first);
                if label > LABEL_BYTES_MAX {
                    at = usize::from(u16::from_be_bytes([first & 0x3f, *message.get(at + 1)?]));
                    continue;
                }
                if label == 0 {
                    return None;
                }
                let bytes = message.get(at + 1..at + 1 + label)?;
                at += 1 + label;
                return Some(bytes);
            }
        })
    }

    /// Whether this is the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.labels().next().is_none()
    }

    /// A copy with memory of its own, uncompressed.
    #[must_use]
    pub fn to_name(&self) -> Name {
        let mut builder = NameBuilder::default();
        for label in self.labels() {
            // `read` has checked each label and their sum.
            let _ = builder.label(label);
        }
        builder.finish()
    }

    /// Writes the uncompressed wire form into `buffer`; returns its length.
    pub(crate) fn write_wire(&self, buffer: &mut [u8; NAME_BYTES_MAX]) -> usize {
        let mut at = 0;
        for label in self.labels() {
            let end = at + 1 + label.len();
            buffer[at] = label.len() as u8;
            buffer[at + 1..end].copy_from_slice(label);
            at = end;
        }
        buffer[at] = 0;
        at + 1
    }

    /// Whether the names are equal byte by byte, the case of letters included.
    #[must_use]
    pub fn is_identical(&self, other: &Name) -> bool {
        self.labels().eq(other.labels())
    }
}

impl PartialEq for NameView<'_> {
    fn eq(&self, other: &NameView<'_>) -> bool {
        are_equal(self.labels(), other.labels())
    }
}

impl PartialEq<Name> for NameView<'_> {
    fn eq(&self, other: &Name) -> bool {
        are_equal(self.labels(), other.labels())
    }
}

impl Eq for NameView<'_> {}

fn are_equal<'a, 'b>(mut a: impl Iterator<Item = &'a [u8]>, mut b: impl Iterator<Item = &'b [u8]>) -> bool {
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some(a), Some(b)) if a.eq_ignore_ascii_case(b) => {}
            _ => return false,
        }
    }
}

impl fmt::Display for NameView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_labels(self.labels(), f)
    }
}

impl fmt::Debug for NameView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A name has at most 127 labels, and a useful pointer leads to one of them.
const POINTERS_MAX: usize = 127;
