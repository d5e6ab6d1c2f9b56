//! What a sweep yields: a field by its places, or why there are no more.

/// A field line, `NAME:VALUE` CR LF, by its places in the bytes that were scanned.
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
        // SAFETY: `start <= name_end <= bytes.len()`, says who made this.
        unsafe { self.bytes.get_unchecked(self.start..self.name_end) }
    }

    /// The value as it stands there, with the white space around it.
    #[inline(always)]
    #[must_use]
    pub fn value(&self) -> &'b [u8] {
        // SAFETY: `name_end < value_end <= bytes.len()`, says who made this.
        unsafe { self.bytes.get_unchecked(self.name_end + 1..self.value_end) }
    }

    /// Where the line, and with it the name, begins.
    #[inline]
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// Where the colon is, directly behind the name.
    #[inline]
    #[must_use]
    pub const fn name_end(&self) -> usize {
        self.name_end
    }

    /// Where the value ends and CR LF begins.
    #[inline]
    #[must_use]
    pub const fn value_end(&self) -> usize {
        self.value_end
    }

    /// Where the next line begins.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> usize {
        self.value_end + 2
    }
}

/// Why a sweep has ended before the head did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stop<E> {
    /// The bytes ended first, and were good so far.
    Partial,
    /// They are not the fields of a head.
    Flawed(Flaw),
    /// Whoever was told of the fields did not want to go on.
    Refused(E),
}

/// What is wrong with a field line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Flaw {
    /// It begins with a space or a tabulator, and would go on with the line before (RFC 9112 §5.2).
    FoldedLine,
    /// It has no name, or a byte before the colon that cannot be in one.
    Name,
    /// It has a CR before any colon. If it is the first byte, then no LF follows, with which the head would end.
    NoColon,
    /// It ends with LF alone.
    BareLf,
    /// Its value has a CR without LF.
    BareCr,
    /// Its value has another control character.
    Control,
}

/// Why there is no name from `line` on: a byte that does not belong is at `name_end`, if there is one. A colon behind a
/// name is the last byte.
#[cold]
pub(crate) fn no_name<E>(bytes: &[u8], line: usize, name_end: usize) -> Stop<E> {
    Stop::Flawed(match bytes.get(name_end) {
        None => return Stop::Partial,
        Some(b'\r') if name_end == line && bytes.len() == name_end + 1 => return Stop::Partial,
        Some(b':') if name_end > line => return Stop::Partial,
        Some(b' ' | b'\t') if name_end == line => Flaw::FoldedLine,
        Some(b'\r') => Flaw::NoColon,
        Some(b'\n') => Flaw::BareLf,
        Some(_) => Flaw::Name,
    })
}

/// Why a value ends at `value_end`, where there is no CR LF.
#[cold]
pub(crate) fn no_line_end<E>(bytes: &[u8], value_end: usize) -> Stop<E> {
    Stop::Flawed(match bytes.get(value_end..).unwrap_or_default() {
        [] | [b'\r'] => return Stop::Partial,
        [b'\n', ..] => Flaw::BareLf,
        [b'\r', ..] => Flaw::BareCr,
        _ => Flaw::Control,
    })
}
