//! `Fields`: the extra fields of a message, serialised on creation.

use std::fmt;
use std::sync::Arc;

use crate::head::Headers;
use crate::runs;

/// Fields of a message beside those that the codec writes by itself. They are validated when they are added, and stored
/// as they are sent: encoding copies them in one piece, and a block from a static text is free to create.
///
/// `Upgrade` comes before all other fields, so the encoder detects it by the first bytes and writes
/// `Connection: upgrade` (RFC 9110 §7.8). A request uses [`Request::upgrade`](crate::Request::upgrade) instead. `Date` and
/// `Server` come next: a response that has one of them is sent with it, in place of the codec's own.
///
/// ```
/// use tidegate::http1::{Fields, InvalidField};
///
/// const CACHED: Fields = Fields::from_static("Cache-Control: max-age=60\r\n");
/// let mut fields = CACHED;
/// fields.push("ETag", b"\"7\"")?;
/// assert_eq!(fields.bytes(), b"Cache-Control: max-age=60\r\nETag: \"7\"\r\n");
/// assert_eq!(fields.push("Location", b"/\r\nSet-Cookie: a=b"), Err(InvalidField::Value));
/// # Ok::<(), InvalidField>(())
/// ```
#[derive(Clone)]
pub struct Fields {
    lines: Lines,
}

#[derive(Clone)]
enum Lines {
    Static(&'static str),
    Owned(Vec<u8>),
    Shared(Arc<[u8]>),
}

/// Why a field cannot be sent. Nothing was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InvalidField {
    /// The name is not a token.
    Name,
    /// The value has control characters.
    Value,
    /// The codec writes this field itself: `Connection`, `Content-Length`, `Expect`, `Host`, `Transfer-Encoding`; or does
    /// not support it: `TE`.
    Reserved,
}

impl Fields {
    /// Whether they own no memory, so that dropping them does nothing.
    #[inline]
    pub(crate) fn has_no_allocation(&self) -> bool {
        matches!(self.lines, Lines::Static(_))
    }

    /// No fields.
    #[must_use]
    pub const fn new() -> Self {
        Self { lines: Lines::Static("") }
    }

    /// Fields from whole lines, each with its line end: `Name: value\r\n`.
    ///
    /// # Panics
    /// If one cannot be sent, or if `Upgrade`, `Date` or `Server` comes after other fields. In a const context this fails at
    /// compile time.
    #[must_use]
    pub const fn from_static(lines: &'static str) -> Self {
        check_lines(lines.as_bytes());
        Self { lines: Lines::Static(lines) }
    }

    /// Adds a field. `Date` and `Server` replace one of the same name, since a message has one of each.
    ///
    /// # Errors
    /// If the field cannot be sent; see [`InvalidField`].
    pub fn push(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidField> {
        let value = value.as_ref();
        if name.is_empty() || runs::token_end(name.as_bytes(), 0) != name.len() {
            return Err(InvalidField::Name);
        }
        if is_reserved(name.as_bytes()) {
            return Err(InvalidField::Reserved);
        }
        if !is_value(value) {
            return Err(InvalidField::Value);
        }
        self.push_valid(name, value);
        Ok(())
    }

    /// As [`push`](Self::push), without a check: for names and values of types that admit no others, and for fields that
    /// the codec does not write by itself. A field that is not valid would end the head early, or split the response.
    #[doc(hidden)]
    pub fn push_valid(&mut self, name: &str, value: &[u8]) {
        debug_assert!(runs::token_end(name.as_bytes(), 0) == name.len() && is_value(value), "{name} is no field");
        debug_assert!(!is_reserved(name.as_bytes()), "the codec writes {name}");
        if is_own(name.as_bytes()) {
            self.remove(name);
        }
        let lines = self.owned();
        if is_upgrade(name.as_bytes()) || is_own(name.as_bytes()) {
            insert_before_others(lines, name.as_bytes(), value);
            return;
        }
        lines.reserve(name.len() + value.len() + 4);
        for piece in [name.as_bytes(), b": ", value, b"\r\n"] {
            lines.extend_from_slice(piece);
        }
    }

    /// Adds `Date` to the fields of a request: the codec of a client writes none, and a signature of a request may cover it.
    /// It adds another one where [`push`](Self::push) replaces.
    ///
    /// ```
    /// use tidegate::http1::Fields;
    ///
    /// let mut fields = Fields::new();
    /// fields.push_request_date("Sun, 06 Nov 1994 08:49:37 GMT")?;
    /// # Ok::<(), tidegate::http1::InvalidField>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidField::Value`] if the value has control characters.
    pub fn push_request_date(&mut self, value: impl AsRef<[u8]>) -> Result<(), InvalidField> {
        let value = value.as_ref();
        if !is_value(value) {
            return Err(InvalidField::Value);
        }
        let lines = self.owned();
        for piece in [b"Date: ", value, b"\r\n"] {
            lines.extend_from_slice(piece);
        }
        Ok(())
    }

    /// Adds `TE: trailers` to the fields of an HTTP/2 request, which has no other value of this field (RFC 9113
    /// §8.2.2). Not for HTTP/1.1, where `Connection` has to name the field.
    pub fn push_te_trailers(&mut self) {
        self.owned().extend_from_slice(b"TE: trailers\r\n");
    }

    /// Makes room for as many bytes more; each field has four beside its name and value.
    pub fn reserve(&mut self, bytes: usize) {
        self.owned().reserve(bytes);
    }

    /// Adds those fields of a received head or trailer section that `keeps` chooses by their names, for a proxy. A parser has
    /// validated them, so this only copies. Fields that the codec writes itself, and `Upgrade`, are left out.
    ///
    /// ```
    /// use tidegate::http1::{Fields, RequestHead};
    ///
    /// fn passed_on(head: &RequestHead) -> Fields {
    ///     let mut fields = Fields::new();
    ///     fields.extend_from(head.headers(), |name| !name.eq_ignore_ascii_case(b"cookie"));
    ///     fields
    /// }
    /// ```
    pub fn extend_from(&mut self, received: Headers<'_>, keeps: impl FnMut(&[u8]) -> bool) {
        self.extend::<false>(received, keeps);
    }

    /// The same for a response, with its first `Date`, which a proxy does not change (RFC 9110 §6.6.1).
    pub fn extend_from_response(&mut self, received: Headers<'_>, keeps: impl FnMut(&[u8]) -> bool) {
        self.extend::<true>(received, keeps);
    }

    #[inline]
    fn extend<const DATE: bool>(&mut self, received: Headers<'_>, mut keeps: impl FnMut(&[u8]) -> bool) {
        let mut has_date = !DATE || self.own().date;
        let lines = self.owned();
        // Room for later fields, too.
        lines.reserve(received.bytes_left() + ROOM_BYTES);
        for (name, value) in received {
            if is_reserved(name) || is_upgrade(name) || !keeps(name) {
                continue;
            }
            debug_assert!(is_value(value) && runs::token_end(name, 0) == name.len(), "the parser has validated it");
            if is_own(name) {
                if !has_date && name.len() == "date".len() {
                    has_date = true;
                    insert_before_others(lines, b"Date", value);
                }
                continue;
            }
            push_line(lines, name, value);
        }
    }

    /// Removes all fields of this name. Case does not matter.
    pub fn remove(&mut self, name: &str) {
        let is_named = |found: &[u8]| found.eq_ignore_ascii_case(name.as_bytes());
        if !self.iter().any(|(found, _)| is_named(found)) {
            return;
        }
        let mut kept = Vec::with_capacity(self.bytes().len());
        for (found, value) in self.iter().filter(|(found, _)| !is_named(found)) {
            for piece in [found, b": ", value, b"\r\n"] {
                kept.extend_from_slice(piece);
            }
        }
        self.lines = Lines::Owned(kept);
    }

    /// Whether `Upgrade` is among them.
    #[inline]
    pub(crate) fn name_a_protocol(&self) -> bool {
        begins_with_upgrade(self.bytes())
    }

    /// Which fields that a server's codec writes by default are among those of a response.
    #[inline]
    pub(crate) fn own(&self) -> OwnFields {
        OwnFields::among(self.bytes())
    }

    /// The same fields in memory that clones share, so that a clone copies nothing.
    #[doc(hidden)]
    #[must_use]
    pub fn into_shared(self) -> Self {
        match self.lines {
            Lines::Owned(lines) => Self { lines: Lines::Shared(lines.into()) },
            lines => Self { lines },
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Whether all of them may be trailers.
    #[must_use]
    pub fn are_trailers(&self) -> bool {
        let lines = self.bytes();
        Headers::new(lines).all(|(name, _)| !is_forbidden_in_trailers(name))
    }

    /// All fields in their order, as pairs of name and value.
    #[must_use]
    pub fn iter(&self) -> Headers<'_> {
        Headers::new(self.bytes())
    }

    /// All lines.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.lines {
            Lines::Static(lines) => lines.as_bytes(),
            Lines::Owned(lines) => lines,
            Lines::Shared(lines) => lines,
        }
    }

    #[inline]
    fn owned(&mut self) -> &mut Vec<u8> {
        if !matches!(self.lines, Lines::Owned(_)) {
            self.copy_lines();
        }
        match &mut self.lines {
            Lines::Owned(lines) => lines,
            Lines::Static(_) | Lines::Shared(_) => unreachable!("made owned above"),
        }
    }

    #[inline(never)]
    fn copy_lines(&mut self) {
        self.lines = Lines::Owned(self.bytes().to_vec());
    }
}

impl Default for Fields {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fields(\"{}\")", self.bytes().escape_ascii())
    }
}

impl std::error::Error for InvalidField {}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "the name of a field is not a token",
            Self::Value => "the value of a field has control characters",
            Self::Reserved => "the field is written by the codec",
        })
    }
}

/// Whether `value` can be the value of a field.
pub(crate) fn is_value(value: &[u8]) -> bool {
    runs::value_end(value, 0) == value.len()
}

/// The same as `is_value`, at compile time.
pub(crate) const fn is_static_value(value: &[u8]) -> bool {
    let mut index = 0;
    while index < value.len() {
        if is_control(value[index]) {
            return false;
        }
        index += 1;
    }
    true
}

const fn is_control(byte: u8) -> bool {
    byte != b'\t' && byte.is_ascii_control()
}

/// `[u8]::eq_ignore_ascii_case`, which is const from Rust 1.89 on.
const fn is_named(name: &[u8], wanted: &[u8]) -> bool {
    let mut index = 0;
    while index < name.len() && index < wanted.len() && name[index].eq_ignore_ascii_case(&wanted[index]) {
        index += 1;
    }
    name.len() == wanted.len() && index == name.len()
}

const fn is_upgrade(name: &[u8]) -> bool {
    is_named(name, b"upgrade")
}

#[inline]
fn begins_with_upgrade(lines: &[u8]) -> bool {
    lines.first_chunk::<8>().is_some_and(|start| start.eq_ignore_ascii_case(b"upgrade:"))
}

#[inline(always)]
fn push_line(lines: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    lines.extend_from_slice(name);
    lines.extend_from_slice(b": ");
    lines.extend_from_slice(value);
    lines.extend_from_slice(b"\r\n");
}

/// Adds a line behind those of `Upgrade`, and before all others.
fn insert_before_others(lines: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let (at, end) = (upgrades_end(lines), lines.len());
    push_line(lines, name, value);
    if at < end {
        let length = lines.len() - end;
        lines[at..].rotate_right(length);
    }
}

/// The end of the `Upgrade` lines, which come first.
fn upgrades_end(lines: &[u8]) -> usize {
    let mut end = 0;
    while begins_with_upgrade(&lines[end..]) {
        end += memchr::memchr(b'\n', &lines[end..]).map_or(0, |at| at + 1);
    }
    end
}

/// Whether the fields of a response have `Date` or `Server`, which a server's codec writes by itself otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnFields {
    /// `Date` is among them.
    pub date: bool,
    /// `Server` is among them.
    pub server: bool,
}

impl OwnFields {
    /// Those among lines that begin with the bytes of [`Fields`].
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn among(lines: &[u8]) -> Self {
        match lines.first() {
            Some(b'D' | b'd' | b'S' | b's' | b'U' | b'u') => Self::leading(lines),
            _ => Self::default(),
        }
    }

    /// Whether it is one of them at least.
    #[must_use]
    #[inline]
    pub fn is_any(self) -> bool {
        self.date | self.server
    }

    #[inline(never)]
    fn leading(lines: &[u8]) -> Self {
        let (mut own, mut rest) = (Self::default(), &lines[upgrades_end(lines)..]);
        loop {
            let begins_with =
                |name: &[u8]| rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
            match rest.first() {
                Some(b'D' | b'd') if begins_with(b"date:") => own.date = true,
                Some(b'S' | b's') if begins_with(b"server:") => own.server = true,
                _ => return own,
            }
            rest = memchr::memchr(b'\n', rest).map_or(&[], |at| &rest[at + 1..]);
        }
    }
}

/// A field of which a server's codec has one of its own.
const fn is_own(name: &[u8]) -> bool {
    is_named(name, b"date") || is_named(name, b"server")
}

const fn is_reserved(name: &[u8]) -> bool {
    match name.len() {
        2 => is_named(name, b"te"),
        4 => is_named(name, b"host"),
        6 => is_named(name, b"expect"),
        10 => is_named(name, b"connection"),
        14 => is_named(name, b"content-length"),
        17 => is_named(name, b"transfer-encoding"),
        _ => false,
    }
}

/// Whether a field of this name affects the framing, routing, authorisation or meaning of a message, and so must come
/// before the body (RFC 9110 §6.5.1).
pub(crate) fn is_forbidden_in_trailers(name: &[u8]) -> bool {
    is_reserved(name)
        || may_be_no_trailer(name.len())
            && NO_TRAILERS.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden.as_bytes()))
}

/// Whether a name among [`NO_TRAILERS`] has this length. Most names of trailers differ from all of them in that.
const fn may_be_no_trailer(length: usize) -> bool {
    const LENGTHS: u32 = {
        let (mut lengths, mut index) = (0, 0);
        while index < NO_TRAILERS.len() {
            lengths |= 1 << NO_TRAILERS[index].len();
            index += 1;
        }
        lengths
    };
    length < u32::BITS as usize && LENGTHS & 1 << length != 0
}

/// How many bytes [`Fields::extend_from`] reserves beyond its copy.
const ROOM_BYTES: usize = 192;

/// Fields that cannot be trailers either, beside those that frame a message.
const NO_TRAILERS: [&str; 24] = [
    "authorization",
    "cache-control",
    "content-encoding",
    "content-range",
    "content-type",
    "cookie",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "location",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "set-cookie",
    "te",
    "trailer",
    "upgrade",
    "vary",
    "www-authenticate",
];

const fn check_lines(mut rest: &[u8]) {
    let (mut is_behind_own, mut is_behind_others) = (false, false);
    while !rest.is_empty() {
        let mut name_end = 0;
        while name_end < rest.len() && tidegate_scan::is_token(rest[name_end]) {
            name_end += 1;
        }
        assert!(name_end > 0 && name_end < rest.len() && rest[name_end] == b':', "a field is a name and a colon");
        let name = rest.split_at(name_end).0;
        assert!(!is_reserved(name), "this field is written by the codec");
        assert!(!(is_behind_own && is_upgrade(name)), "`Upgrade` comes before other fields");
        assert!(!(is_behind_others && is_own(name)), "`Date` and `Server` come before other fields");
        is_behind_own |= !is_upgrade(name);
        is_behind_others |= !is_upgrade(name) && !is_own(name);
        let mut end = name_end + 1;
        while end < rest.len() && !is_control(rest[end]) {
            end += 1;
        }
        assert!(end + 1 < rest.len() && rest[end] == b'\r' && rest[end + 1] == b'\n', "a field ends with CR LF");
        rest = rest.split_at(end + 2).1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_date_of_a_received_response_comes_before_the_fields_that_were_before_it() {
        let received = "A: 1\r\nServer: sea\r\ndate: now\r\nHost: sea\r\nB: 2\r\nDate: then\r\n\r\n";
        let text = |extend: fn(&mut Fields, Headers<'_>)| {
            let mut fields = Fields::new();
            fields.push("Upgrade", "tide").expect("a field");
            extend(&mut fields, Headers::new(received.as_bytes()));
            String::from_utf8(fields.bytes().to_vec()).expect("text")
        };
        let of_response = text(|fields, received| fields.extend_from_response(received, |_| true));
        assert_eq!(of_response, "Upgrade: tide\r\nDate: now\r\nA: 1\r\nB: 2\r\n");
        let of_others = text(|fields, received| fields.extend_from(received, |_| true));
        assert_eq!(of_others, "Upgrade: tide\r\nA: 1\r\nB: 2\r\n");
    }
}
