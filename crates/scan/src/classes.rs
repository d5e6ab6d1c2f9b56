//! The classes of bytes: as a table for one byte, and as two small tables that processors look up many bytes at a time.
//!
//! A processor looks up sixteen or thirty-two bytes at once, in a table of sixteen. So a byte is looked up twice, by
//! its lower four bits and by its upper four, and belongs to the sets that both results name: [`Nibbles`]. Its eight
//! sets are rectangles, lower halves times upper halves; a class is a union of rectangles.

/// Whether `byte` may be part of a token (RFC 9110 §5.6.2): a method, or the name of a field.
///
/// ```
/// assert!(tidegate_scan::is_token(b'-') && !tidegate_scan::is_token(b':'));
/// ```
#[inline]
#[must_use]
pub const fn is_token(byte: u8) -> bool {
    CLASSES[byte as usize] & TOKEN != 0
}

/// Whether `byte` may not be part of the value of a field (RFC 9110 §5.5): a control character other than the tabulator.
#[inline]
#[must_use]
pub const fn is_control(byte: u8) -> bool {
    CLASSES[byte as usize] & CONTROL != 0
}

/// Whether a request target may contain `byte` anywhere: the characters of a URI (RFC 3986 §2), without `#`, with which
/// a fragment begins, and without `%`, which needs two digits behind it.
///
/// RFC 3986 permits brackets only in an authority. Browsers send them unescaped in paths and queries, so this class
/// includes them.
#[inline]
pub(crate) const fn is_target(byte: u8) -> bool {
    CLASSES[byte as usize] & TARGET != 0
}

/// Whether the path of a request target may contain `byte` anywhere: the bytes of a target, without `?`.
#[inline]
pub(crate) const fn is_path(byte: u8) -> bool {
    CLASSES[byte as usize] & PATH != 0
}

/// Whether an escaped octet begins at `at`: `%` and two hexadecimal digits (RFC 3986 §2.1).
#[inline(always)]
pub(crate) fn is_escape(bytes: &[u8], at: usize) -> bool {
    bytes.get(at) == Some(&b'%') && escaped(bytes, at).is_some()
}

/// Whether an escaped octet that a path may contain begins at `at`. A path must not contain NUL, where a file name
/// would end (RFC 3986 §7.3); a query may, since some clients send binary data there.
#[inline(always)]
pub(crate) fn is_path_escape(bytes: &[u8], at: usize) -> bool {
    bytes.get(at) == Some(&b'%') && escaped(bytes, at).is_some_and(|digits| digits != b"00")
}

/// The end of a sequence of runs and of escaped octets that `is_escape` accepts; `run_end` returns the end of one run.
#[inline(always)]
pub(crate) fn escaped_run_end(
    bytes: &[u8],
    mut at: usize,
    is_escape: impl Fn(&[u8], usize) -> bool,
    run_end: impl Fn(usize) -> usize,
) -> usize {
    loop {
        at = run_end(at);
        if !is_escape(bytes, at) {
            return at;
        }
        at += ESCAPE_BYTES;
    }
}

/// The digits of the escaped octet whose `%` is at `at`.
#[inline]
fn escaped(bytes: &[u8], at: usize) -> Option<&[u8; 2]> {
    bytes.get(at + 1..)?.first_chunk().filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// Whether `byte` may be part of a registered name or an address (RFC 3986 §3.2.2), without colon and brackets, and
/// without the comma, which an intermediary may have used to join two hosts.
#[inline]
#[must_use]
pub const fn is_host(byte: u8) -> bool {
    CLASSES[byte as usize] & HOST != 0
}

/// An escaped octet: `%` and two digits.
const ESCAPE_BYTES: usize = 3;

const TOKEN: u8 = 1;
const CONTROL: u8 = 2;
const TARGET: u8 = 4;
const HOST: u8 = 8;
const PATH: u8 = 16;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let symbol = byte as u8;
        if symbol.is_ascii_alphanumeric() {
            classes[byte] = TOKEN | HOST;
        }
        if symbol.is_ascii_control() && symbol != b'\t' {
            classes[byte] |= CONTROL;
        }
        if symbol.is_ascii_graphic() {
            classes[byte] |= if symbol == b'?' { TARGET } else { TARGET | PATH };
        }
        byte += 1;
    }
    let (tokens, hosts, not_of_targets) = (b"!#$%&'*+-.^_`|~", b"-._~!$&'()*+;=%", b"\"#%<>\\^`{|}");
    let mut index = 0;
    while index < tokens.len() {
        classes[tokens[index] as usize] |= TOKEN;
        index += 1;
    }
    index = 0;
    while index < hosts.len() {
        classes[hosts[index] as usize] |= HOST;
        index += 1;
    }
    index = 0;
    while index < not_of_targets.len() {
        classes[not_of_targets[index] as usize] &= !(TARGET | PATH);
        index += 1;
    }
    classes
};

/// Sets of rectangles, sixteen by the lower half of a byte, and sixteen by its upper half.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Nibbles {
    pub(crate) lower: [u8; 16],
    pub(crate) upper: [u8; 16],
}

impl Nibbles {
    /// The rectangles that `byte` lies in.
    pub(crate) const fn of(&self, byte: u8) -> u8 {
        self.lower[(byte & 15) as usize] & self.upper[(byte >> 4) as usize]
    }

    const EMPTY: Self = Self { lower: [0; 16], upper: [0; 16] };

    /// A rectangle for each row of ASCII that has more than control characters.
    const fn of_class(class: u8) -> Self {
        let rows = Self::EMPTY.with_row(1, 2, class).with_row(2, 3, class).with_row(4, 4, class);
        rows.with_row(8, 5, class).with_row(16, 6, class).with_row(32, 7, class)
    }

    /// Adds to rectangle `sign` the bytes of `class` with this upper half.
    const fn with_row(mut self, sign: u8, upper: u8, class: u8) -> Self {
        let mut lower = 0;
        while lower < 16 {
            if CLASSES[(upper << 4 | lower) as usize] & class != 0 {
                self.lower[lower as usize] |= sign;
            }
            lower += 1;
        }
        self.upper[upper as usize] |= sign;
        self
    }
}

/// The result for a byte of a field line, as signed: 0 for a byte that is no control character and cannot be in a name;
/// more than [`CONTROL_ABOVE`] for a control character; other values up to it, or negative ones, for a token character.
pub(crate) static FIELD: Nibbles = FIELDS;

const FIELDS: Nibbles = {
    // Row 6 has no gaps, so the signs of two other rows together stand for it, which leaves one sign for DEL.
    let rows = Nibbles::EMPTY.with_row(1, 2, TOKEN).with_row(2, 3, TOKEN).with_row(4, 4, TOKEN).with_row(8, 5, TOKEN);
    let mut rows = rows.with_row(0x80, 7, TOKEN).with_row(0x10, 0, CONTROL).with_row(0x40, 7, CONTROL);
    rows.upper[6] = 2 | 4;
    rows.upper[1] = 0x10 | 0x20;
    // The lower half of the tabulator, which is a control character in the row below its own.
    rows.lower[9] |= 0x20;
    rows
};

/// See [`FIELD`].
pub(crate) const CONTROL_ABOVE: i8 = 0x0f;

/// The result for a byte of a host: 0 for all bytes outside the class.
pub(crate) static HOSTS: Nibbles = Nibbles::of_class(HOST);

/// The result for a byte of a request target: 0 for all bytes outside the class, and for `%`.
pub(crate) static TARGETS: Nibbles = Nibbles::of_class(TARGET);

/// The result for a byte of a path: 0 for all bytes outside the class, and for `%`.
pub(crate) static PATHS: Nibbles = Nibbles::of_class(PATH);

const _: () = {
    let mut byte = 0;
    while byte < 256 {
        let (symbol, field) = (byte as u8, FIELDS.of(byte as u8).cast_signed());
        assert!(is_control(symbol) == (field > CONTROL_ABOVE));
        assert!(is_token(symbol) == (field != 0 && field <= CONTROL_ABOVE));
        assert!(is_host(symbol) == (Nibbles::of_class(HOST).of(symbol) != 0));
        assert!(is_target(symbol) == (Nibbles::of_class(TARGET).of(symbol) != 0));
        assert!(is_path(symbol) == (Nibbles::of_class(PATH).of(symbol) != 0));
        byte += 1;
    }
    // A short block is padded with NUL, which must end every search.
    assert!(is_control(0) && !is_token(0) && !is_target(0) && !is_host(0));
};
