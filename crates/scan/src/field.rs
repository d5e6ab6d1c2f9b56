//! The results of a sweep: the positions of a field, or the reason why it stopped.

/// A field line, `NAME:VALUE` CR LF, by its positions in the scanned bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Field<'b> {
    bytes: &'b [u8],
    start: usize,
    name_end: usize,
    value_end: usize,
}

impl<'b> Field<'b> {
    /// # Safety
    ///
    /// `start <= name_end < value_end <= bytes.len()`.
    #[inline(always)]
    pub(crate) unsafe fn new(bytes: &'b [u8], start: usize, name_end: usize, value_end: usize) -> Self {
        debug_assert!(start <= name_end && name_end < value_end && value_end <= bytes.len(), "places out of order");
        Self { bytes, start, name_end, value_end }
    }

    /// The name, which has at least one byte.
    #[inline(always)]
    #[must_use]
    pub fn name(&self) -> &'b [u8] {
        // SAFETY: `start <= name_end <= bytes.len()`, by the contract of `new`.
        unsafe { self.bytes.get_unchecked(self.start..self.name_end) }
    }

    /// The value as sent, with the white space around it.
    #[inline(always)]
    #[must_use]
    pub fn value(&self) -> &'b [u8] {
        // SAFETY: `name_end < value_end <= bytes.len()`, by the contract of `new`.
        unsafe { self.bytes.get_unchecked(self.name_end + 1..self.value_end) }
    }

    /// The start of the line, and so of the name.
    #[inline]
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// The position of the colon, directly behind the name.
    #[inline]
    #[must_use]
    pub const fn name_end(&self) -> usize {
        self.name_end
    }

    /// The end of the value, where CR LF begins.
    #[inline]
    #[must_use]
    pub const fn value_end(&self) -> usize {
        self.value_end
    }

    /// The start of the next line.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> usize {
        self.value_end + 2
    }
}

/// The reason why a sweep ended before the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stop<E> {
    /// The bytes ended first, and were valid so far.
    Partial,
    /// They are not the fields of a head.
    Flawed(FieldError),
    /// The callback refused a field.
    Refused(E),
}

/// The fault of a field line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FieldError {
    /// It begins with a space or a tabulator, as a continuation of the line before (RFC 9112 §5.2).
    FoldedLine,
    /// It has no name, or a byte before the colon that a name cannot contain.
    Name,
    /// It has a CR before any colon. If that is the first byte, the LF that would end the head is missing.
    NoColon,
    /// It ends with LF alone.
    BareLf,
    /// Its value has a CR without LF.
    BareCr,
    /// Its value has another control character.
    Control,
}

/// The reason why the line at `line` has no name: an invalid byte is at `name_end`, if there is one. A colon behind a
/// name is the last byte.
#[cold]
pub(crate) fn no_name<E>(bytes: &[u8], line: usize, name_end: usize) -> Stop<E> {
    Stop::Flawed(match bytes.get(name_end) {
        None => return Stop::Partial,
        Some(b'\r') if name_end == line && bytes.len() == name_end + 1 => return Stop::Partial,
        Some(b':') if name_end > line => return Stop::Partial,
        Some(b' ' | b'\t') if name_end == line => FieldError::FoldedLine,
        Some(b'\r') => FieldError::NoColon,
        Some(b'\n') => FieldError::BareLf,
        Some(_) => FieldError::Name,
    })
}

/// The reason why the value ends at `value_end` without CR LF.
#[cold]
pub(crate) fn no_line_end<E>(bytes: &[u8], value_end: usize) -> Stop<E> {
    Stop::Flawed(match bytes.get(value_end..).unwrap_or_default() {
        [] | [b'\r'] => return Stop::Partial,
        [b'\n', ..] => FieldError::BareLf,
        [b'\r', ..] => FieldError::BareCr,
        _ => FieldError::Control,
    })
}
