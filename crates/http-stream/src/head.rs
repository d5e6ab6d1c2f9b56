//! From decoded fields to the text of a head or of trailers, with the checks of RFC 9113 §8.
//!
//! The text has the form of HTTP/1.1, in one block: a first line from the pseudo-fields, then the fields. Everything
//! above the codec reads heads of both versions from such a block. The HTTP/1.1 parser checks the block once more, so
//! one place decides about targets, hosts and values, and a message cannot change its meaning on its way to a peer that
//! speaks the other version.

use tidegate_scan::{is_control, is_token};

use crate::config::{StreamConfig, Version};
use crate::frame_head::HEAD_BYTES;
use crate::priority::Priority;

/// A head or trailers in the making.
#[derive(Debug)]
pub struct HeadBuilder<'a> {
    parts: &'a mut HeadParts,
    kind: HeadKind,
    fields_left: u32,
    bytes_left: u32,
    fault: Option<HeadFault>,
    /// The pseudo-fields that have come, as bits.
    present: u8,
    has_fields: bool,
    has_host: bool,
    needs_host: bool,
    has_cookie: bool,
    /// `:protocol` is known.
    extends_connect: bool,
    is_connect: bool,
    is_head: bool,
    status: u16,
    priority: Option<Priority>,
    content_length: Option<u64>,
}

/// Memory for a head, which all connections of a thread use in turn.
#[derive(Debug, Default)]
pub struct HeadParts {
    /// The text, behind room for the head of a record.
    pub text: Vec<u8>,
    /// The pseudo-fields, by the places below.
    pseudo: [Vec<u8>; 6],
    /// The value of `Host`.
    host: Vec<u8>,
    /// The crumbs of a cookie.
    cookie: Vec<u8>,
}

/// The purpose of a field block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind {
    /// The head of a request.
    Request,
    /// The head of a response.
    Response,
    /// Trailers.
    Trailers,
}

/// Why a head cannot be used. The connection continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadFault {
    /// It is malformed (RFC 9113 §8.1.1).
    Malformed,
    /// It is too long, or has too many fields.
    TooLarge,
}

/// The facts of a head that the codec needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeadFacts {
    /// The declared length of the body, in bytes.
    pub content_length: Option<u64>,
    /// The status of a response, or 0.
    pub status: u16,
    /// The method is CONNECT, ordinary or extended.
    pub is_connect: bool,
    /// The method is HEAD.
    pub is_head: bool,
    /// The `Priority` field, if there is one.
    pub priority: Option<Priority>,
}

const METHOD: usize = 0;
const SCHEME: usize = 1;
const AUTHORITY: usize = 2;
const PATH: usize = 3;
const STATUS: usize = 4;
const PROTOCOL: usize = 5;

impl<'a> HeadBuilder<'a> {
    /// A head without fields. `parts` has its text afterwards, behind [`HEAD_BYTES`] for the head of a record.
    pub fn new(kind: HeadKind, config: &StreamConfig, parts: &'a mut HeadParts) -> Self {
        let limits = config.limits();
        parts.text.clear();
        // The head of the record, which comes once its length is known.
        parts.text.resize(HEAD_BYTES, 0);
        parts.host.clear();
        parts.cookie.clear();
        Self {
            parts,
            kind,
            fields_left: limits.headers_max,
            bytes_left: limits.head_bytes_max,
            fault: None,
            present: 0,
            has_fields: false,
            has_host: false,
            needs_host: kind == HeadKind::Request && config.version() == Version::Http3,
            has_cookie: false,
            extends_connect: config.extends_connect(),
            is_connect: false,
            is_head: false,
            status: 0,
            priority: None,
            content_length: None,
        }
    }

    /// Adds a field. Once a fault is found, nothing more is kept.
    #[inline]
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        let cost = u32::try_from(name.len() + value.len() + 32).unwrap_or(u32::MAX);
        let is_pseudo = name.first() == Some(&b':');
        let is_crumb = self.has_cookie && name == b"cookie";
        let is_counted = !is_pseudo && !is_crumb;
        match (self.fields_left.checked_sub(u32::from(is_counted)), self.bytes_left.checked_sub(cost)) {
            (Some(fields), Some(bytes)) => (self.fields_left, self.bytes_left) = (fields, bytes),
            _ => self.fault = Some(HeadFault::TooLarge),
        }
        if self.fault.is_some() {
            return;
        }
        let added = if is_pseudo { self.add_pseudo(name, value) } else { self.add_field(name, value) };
        if added.is_none() {
            self.fault = Some(HeadFault::Malformed);
        }
    }

    /// RFC 9113 §8.3. `None` if the head is malformed.
    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        let (place, is_allowed) = match name {
            b":method" => (METHOD, !value.is_empty() && are_all(value, TOKEN)),
            b":scheme" => (SCHEME, is_scheme(value)),
            b":authority" => (AUTHORITY, !value.is_empty() && are_all(value, IN_AUTHORITY)),
            b":path" => (PATH, !value.is_empty() && are_all(value, IN_PATH)),
            b":protocol" => (PROTOCOL, self.extends_connect && is_protocol(value)),
            b":status" => (STATUS, value.len() == 3 && value.iter().all(u8::is_ascii_digit)),
            _ => return None,
        };
        let is_expected = match self.kind {
            HeadKind::Request => place != STATUS,
            HeadKind::Response => place == STATUS,
            HeadKind::Trailers => false,
        };
        if !is_allowed || !is_expected || self.has(place) || self.has_fields {
            return None;
        }
        self.present |= 1 << place;
        self.parts.pseudo[place].clear();
        self.parts.pseudo[place].extend_from_slice(value);
        Some(())
    }

    fn has(&self, place: usize) -> bool {
        self.present >> place & 1 != 0
    }

    /// RFC 9113 §8.2. `None` if the head is malformed.
    #[inline]
    fn add_field(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        if !self.has_fields {
            self.has_fields = true;
            self.write_first_line()?;
        }
        let is_name = !name.is_empty() && are_all(name, IN_NAME);
        let is_padded = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if !is_name || !are_all(value, IN_VALUE) || is_padded(value.first()) || is_padded(value.last()) {
            return None;
        }
        match name {
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => return None,
            b"te" if value != b"trailers" => return None,
            b"host" | b"content-length" | b"cookie" if self.kind == HeadKind::Trailers => return None,
            b"host" if self.kind == HeadKind::Request => {
                let scheme = if self.has(SCHEME) { &self.parts.pseudo[SCHEME][..] } else { b"" };
                let is_same = !self.has_host || is_same_host(&self.parts.host, value, scheme);
                if !self.has_host {
                    self.write_host(value);
                }
                return is_same.then_some(());
            }
            b"content-length" => {
                let length = decimal(value)?;
                return match self.content_length.replace(length) {
                    Some(before) => (before == length).then_some(()),
                    None => {
                        self.write(name, value);
                        Some(())
                    }
                };
            }
            b"priority" => self.priority = Some(Priority::parse(value)),
            b"cookie" => {
                // RFC 9113 §8.2.3.
                if std::mem::replace(&mut self.has_cookie, true) {
                    self.parts.cookie.extend_from_slice(b"; ");
                }
                self.parts.cookie.extend_from_slice(value);
                return Some(());
            }
            _ => {}
        }
        self.write(name, value);
        Some(())
    }

    fn write(&mut self, name: &[u8], value: &[u8]) {
        write_line(name, value, &mut self.parts.text);
    }

    fn write_host(&mut self, value: &[u8]) {
        self.has_host = true;
        write_line(b"host", value, &mut self.parts.text);
        self.parts.host.extend_from_slice(value);
    }

    /// Writes the first line, and the host, once all pseudo-fields have come. `None` if some are missing, or cannot be
    /// together.
    fn write_first_line(&mut self) -> Option<()> {
        let has = |place| self.has(place).then_some(place);
        let places = [has(METHOD), has(SCHEME), has(AUTHORITY), has(PATH), has(STATUS), has(PROTOCOL)];
        let HeadParts { text, pseudo, .. } = &mut *self.parts;
        let [method, scheme, authority, path, status, protocol] =
            places.map(|place| place.map(|place| &pseudo[place][..]));
        match self.kind {
            HeadKind::Trailers => return Some(()),
            HeadKind::Response => {
                let status = status?;
                self.status = status.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
                for piece in [b"HTTP/1.1 ", status, b" \r\n"] {
                    text.extend_from_slice(piece);
                }
                return (self.status >= 100 && self.status != 101).then_some(());
            }
            HeadKind::Request => {}
        }
        let method = method?;
        self.is_connect = method == b"CONNECT";
        self.is_head = method == b"HEAD";
        let origin_form = || path.filter(|path| path[0] == b'/');
        let target = match (self.is_connect, protocol) {
            // RFC 9113 §8.5.
            (true, None) if scheme.is_some() || path.is_some() => return None,
            (true, None) => authority?,
            // RFC 8441 §4.
            (true, Some(_)) => scheme.and(authority).and_then(|_| origin_form())?,
            (false, Some(_)) => return None,
            (false, None) => {
                scheme?;
                origin_form().or_else(|| path.filter(|path| *path == b"*" && method == b"OPTIONS"))?
            }
        };
        for piece in [method, b" ", target, b" HTTP/1.1\r\n"] {
            text.extend_from_slice(piece);
        }
        if let Some(protocol) = protocol {
            // No other field has this name, which HTTP/2 forbids.
            write_line(b"upgrade", protocol, text);
        }
        if authority.is_some() {
            let host = std::mem::take(&mut self.parts.pseudo[AUTHORITY]);
            self.write_host(&host);
            self.parts.pseudo[AUTHORITY] = host;
        }
        Some(())
    }

    /// Whether a request names the host that its scheme demands (RFC 9114 §4.3.1). HTTP/2 has no such rule: there it is a
    /// bad request, as over HTTP/1.1.
    fn names_a_host(&self) -> bool {
        let scheme = &self.parts.pseudo[SCHEME][..];
        let has_authority = self.has(SCHEME) && (scheme == b"https" || scheme == b"http");
        !has_authority || !self.parts.host.is_empty()
    }

    /// Ends the head. Its text is in the parts.
    ///
    /// # Errors
    /// [`HeadFault`]; the connection continues.
    pub fn finish(mut self) -> Result<HeadFacts, HeadFault> {
        if self.fault.is_none() && !self.has_fields && self.write_first_line().is_none() {
            self.fault = Some(HeadFault::Malformed);
        }
        if self.fault.is_none() && self.needs_host && !self.names_a_host() {
            self.fault = Some(HeadFault::Malformed);
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let HeadParts { text, cookie, .. } = &mut *self.parts;
        // An empty one says nothing.
        if !cookie.is_empty() {
            write_line(b"cookie", cookie, text);
        }
        if self.kind != HeadKind::Trailers {
            text.extend_from_slice(b"\r\n");
        }
        let Self { content_length, status, is_connect, is_head, priority, .. } = self;
        Ok(HeadFacts { content_length, status, is_connect, is_head, priority })
    }
}

fn write_line(name: &[u8], value: &[u8], text: &mut Vec<u8>) {
    text.reserve(name.len() + value.len() + 4);
    for piece in [name, b": ", value, b"\r\n"] {
        text.extend_from_slice(piece);
    }
}

/// Whether two hosts, each with a port or without one, are the same once they are normalized (RFC 9113 §8.3.1, RFC 3986
/// §6.2).
fn is_same_host(one: &[u8], other: &[u8], scheme: &[u8]) -> bool {
    if one == other {
        return true;
    }
    let [(one, one_port), (other, other_port)] = [one, other].map(|host| split_port(host, scheme));
    one.eq_ignore_ascii_case(other) && one_port == other_port
}

/// A host, and its port, or that of the scheme.
fn split_port<'a>(host: &'a [u8], scheme: &[u8]) -> (&'a [u8], &'a [u8]) {
    let digits = host.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (name, port) = match host.split_at(host.len() - digits) {
        ([name @ .., b':'], port) => (name, port),
        _ => (host, &[][..]),
    };
    match port {
        [] if scheme.eq_ignore_ascii_case(b"http") => (name, b"80"),
        [] if scheme.eq_ignore_ascii_case(b"https") => (name, b"443"),
        port => (name, port),
    }
}

/// RFC 3986 §3.1.
fn is_scheme(value: &[u8]) -> bool {
    value.first().is_some_and(u8::is_ascii_alphabetic) && are_all(value, IN_SCHEME)
}

/// The name of a protocol, which may have a version (RFC 9110 §7.8).
fn is_protocol(value: &[u8]) -> bool {
    let is_name = |name: &[u8]| !name.is_empty() && are_all(name, TOKEN);
    let mut parts = value.split(|byte| *byte == b'/');
    parts.next().is_some_and(is_name) && parts.next().is_none_or(is_name) && parts.next().is_none()
}

/// Whether all bytes are of a class. It reads each, since most are: an exit at the first other byte would cost a branch for
/// each.
#[inline]
fn are_all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().fold(u8::MAX, |common, byte| common & CLASSES[usize::from(*byte)]) & class != 0
}

/// A character of a token (RFC 9110 §5.6.2).
const TOKEN: u8 = 1;
/// The same without upper case (RFC 9113 §8.2.1).
const IN_NAME: u8 = 1 << 1;
/// Anything but control characters (RFC 9110 §5.5).
const IN_VALUE: u8 = 1 << 2;
/// Bytes that split no line: neither a control character nor the space. The parser of heads refuses more.
const IN_PATH: u8 = 1 << 3;
/// Bytes of an authority without user information, which is not allowed here (RFC 9113 §8.3.1).
const IN_AUTHORITY: u8 = 1 << 4;
/// RFC 3986 §3.1.
const IN_SCHEME: u8 = 1 << 5;

/// The classes of each byte.
static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let (mut classes, mut byte) = ([0; 256], 0_u8);
    loop {
        let is_token = is_token(byte);
        let is_graphic = byte.is_ascii_graphic();
        let in_path = byte > b' ' && byte != 0x7f;
        let in_scheme = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let in_authority = is_graphic && !matches!(byte, b'@' | b'/' | b'?' | b'#');
        classes[byte as usize] = if is_token { TOKEN } else { 0 }
            | if is_token && !byte.is_ascii_uppercase() { IN_NAME } else { 0 }
            | if is_control(byte) { 0 } else { IN_VALUE }
            | if in_path { IN_PATH } else { 0 }
            | if in_authority { IN_AUTHORITY } else { 0 }
            | if in_scheme { IN_SCHEME } else { 0 };
        if byte == u8::MAX {
            return classes;
        }
        byte += 1;
    }
}

fn decimal(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.len() <= DIGITS_MAX && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| value.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// As for HTTP/1.1, whose lengths are below 10^19.
const DIGITS_MAX: usize = 19;

#[cfg(test)]
mod tests {
    use super::*;

    fn build(kind: HeadKind, fields: &[(&str, &str)]) -> Result<(String, HeadFacts), HeadFault> {
        let mut parts = HeadParts::default();
        let mut builder = HeadBuilder::new(kind, &StreamConfig::default().extended_connect(true), &mut parts);
        for (name, value) in fields {
            builder.add(name.as_bytes(), value.as_bytes());
        }
        let facts = builder.finish()?;
        Ok((String::from_utf8(parts.text.split_off(HEAD_BYTES)).expect("the fields are text"), facts))
    }

    fn request(more: &[(&str, &str)]) -> Result<(String, HeadFacts), HeadFault> {
        let start = [(":method", "GET"), (":scheme", "https"), (":path", "/tide"), (":authority", "sea")];
        build(HeadKind::Request, &[&start, more].concat())
    }

    #[test]
    fn crumbs_of_a_cookie_are_one_field_and_count_by_their_bytes() {
        let crumbs = vec![("cookie", "a=1"); 300];
        let fields = [&crumbs[..], &[("x", ""); 99]].concat();
        let (text, _) = request(&fields).expect("a hundred fields");
        assert!(text.contains(&["a=1"; 300].join("; ")));
        assert_eq!(request(&[&fields[..], &[("x", "")]].concat()).map(|_| ()), Err(HeadFault::TooLarge));
        for crumb in ["", "a=1"] {
            // 38 bytes each, without their values.
            assert_eq!(request(&vec![("cookie", crumb); 500]).map(|_| ()), Err(HeadFault::TooLarge));
        }
    }

    #[test]
    fn a_host_beside_the_authority_is_compared_normalized() {
        let build = |scheme: &str, authority: &str, host: &str| {
            let start = [(":method", "GET"), (":scheme", scheme), (":path", "/"), (":authority", authority)];
            let built = build(HeadKind::Request, &[&start[..], &[("host", host)]].concat());
            built.map(|(text, _)| text.lines().filter(|line| line.starts_with("host")).collect::<Vec<_>>().join("|"))
        };
        for (scheme, authority, host) in [
            ("https", "sea.example", "SEA.Example"),
            ("https", "sea.example", "sea.example:443"),
            ("http", "sea.example:80", "sea.example"),
            ("HTTP", "sea.example:80", "sea.example:"),
            ("https", "[2001:DB8::1]:443", "[2001:db8::1]"),
            ("ftp", "sea:21", "SEA:21"),
        ] {
            assert_eq!(build(scheme, authority, host), Ok(format!("host: {authority}")), "{authority} {host}");
        }
        for (scheme, authority, host) in [
            ("https", "sea.example", "land.example"),
            ("https", "sea.example", "sea.example:80"),
            ("http", "sea.example:443", "sea.example"),
            ("https", "sea.example", ""),
            ("https", "sea.example:443", ":443"),
            ("https", "[2001:db8::1]", "[2001:db8::"),
            ("ftp", "sea:21", "sea"),
        ] {
            assert_eq!(build(scheme, authority, host), Err(HeadFault::Malformed), "{authority} {host}");
        }
    }

    #[test]
    fn a_request_becomes_the_text_of_one() {
        let (text, facts) =
            request(&[("cookie", "a=1"), ("te", "trailers"), ("content-length", "7"), ("cookie", "b=2")])
                .expect("it is well-formed");
        assert_eq!(
            text,
            "GET /tide HTTP/1.1\r\nhost: sea\r\nte: trailers\r\ncontent-length: 7\r\ncookie: a=1; b=2\r\n\r\n"
        );
        assert_eq!(facts.content_length, Some(7));
        let (text, facts) =
            build(HeadKind::Request, &[(":method", "CONNECT"), (":authority", "sea:443")]).expect("it is well-formed");
        assert_eq!(text, "CONNECT sea:443 HTTP/1.1\r\nhost: sea:443\r\n\r\n");
        assert!(facts.is_connect);
    }

    #[test]
    fn malformed_heads_are_refused() {
        for (name, value) in [
            ("Upper", "case"),
            ("", "empty"),
            ("space in", "name"),
            ("colon:in", "name"),
            ("x", "line\r\nx: y"),
            ("x", "nul\0"),
            ("x", " leading"),
            ("x", "trailing\t"),
            ("connection", "close"),
            ("proxy-connection", "close"),
            ("keep-alive", "1"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("te", "gzip"),
            ("host", "land"),
            ("content-length", "+1"),
            ("content-length", ""),
            ("content-length", "18446744073709551616"),
            (":path", "/again"),
            (":status", "200"),
            (":protocol", "websocket"),
            (":tide", "high"),
        ] {
            assert_eq!(request(&[(name, value)]), Err(HeadFault::Malformed), "{name}: {value}");
        }
        assert_eq!(request(&[("x", "y"), (":authority", "sea")]), Err(HeadFault::Malformed), "pseudo behind others");
        assert_eq!(request(&[("content-length", "1"), ("content-length", "2")]), Err(HeadFault::Malformed));
        assert!(request(&[("content-length", "1"), ("content-length", "1"), ("host", "sea")]).is_ok());
    }

    #[test]
    fn pseudo_fields_have_to_be_complete_and_clean() {
        let get = [(":method", "GET"), (":scheme", "https"), (":path", "/")];
        for missing in 0..get.len() {
            let mut fields = get.to_vec();
            fields.remove(missing);
            assert_eq!(build(HeadKind::Request, &fields), Err(HeadFault::Malformed), "without {:?}", get[missing]);
        }
        for (place, value) in [
            (0, "GET /x HTTP/1.1\r\nx:"),
            (0, ""),
            (1, "ht tp"),
            (2, ""),
            (2, "tide"),
            (2, "*"),
            (2, "http://sea/"),
            (2, "/ HTTP/1.1\r\nx: y"),
            (2, "/a b"),
            (2, "/\0"),
        ] {
            let mut fields = get.to_vec();
            fields[place].1 = value;
            assert_eq!(build(HeadKind::Request, &fields), Err(HeadFault::Malformed), "{:?}", fields[place]);
        }
        for authority in ["", "user@sea", "sea\r\nx: y", "sea/"] {
            let fields = [&get[..], &[(":authority", authority)]].concat();
            assert_eq!(build(HeadKind::Request, &fields), Err(HeadFault::Malformed), "{authority}");
        }
        let connect = [(":method", "CONNECT"), (":scheme", "https"), (":path", "/"), (":authority", "sea")];
        assert_eq!(build(HeadKind::Request, &connect), Err(HeadFault::Malformed));
    }

    #[test]
    fn an_extended_connect_has_a_path_and_a_protocol() {
        let all = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/ws?tide=1"),
            (":authority", "sea"),
        ];
        let (text, facts) = build(HeadKind::Request, &all).expect("it is well-formed");
        assert_eq!(text, "CONNECT /ws?tide=1 HTTP/1.1\r\nupgrade: websocket\r\nhost: sea\r\n\r\n");
        assert!(facts.is_connect);
        for missing in 0..all.len() {
            let mut fields = all.to_vec();
            fields.remove(missing);
            assert_eq!(build(HeadKind::Request, &fields), Err(HeadFault::Malformed), "without {:?}", all[missing]);
        }
        for (place, value) in
            [(0, "GET"), (1, ""), (1, "a b"), (1, "a\r\nx: y"), (1, "a/b/c"), (1, "/a"), (3, "*"), (3, "ws")]
        {
            let mut fields = all.to_vec();
            fields[place].1 = value;
            assert_eq!(build(HeadKind::Request, &fields), Err(HeadFault::Malformed), "{:?}", fields[place]);
        }
        let twice = [&all[..2], &all[1..]].concat();
        assert_eq!(build(HeadKind::Request, &twice), Err(HeadFault::Malformed));
        let mut parts = HeadParts::default();
        let mut builder = HeadBuilder::new(HeadKind::Request, &StreamConfig::default(), &mut parts);
        all.iter().for_each(|(name, value)| builder.add(name.as_bytes(), value.as_bytes()));
        assert_eq!(builder.finish(), Err(HeadFault::Malformed), "unless it is enabled");
    }

    #[test]
    fn a_response_has_a_status_and_nothing_else() {
        let (text, facts) = build(HeadKind::Response, &[(":status", "204"), ("x", "y")]).expect("it is well-formed");
        assert_eq!((&*text, facts.status), ("HTTP/1.1 204 \r\nx: y\r\n\r\n", 204));
        for fields in [&[][..], &[(":status", "20")], &[(":status", "101")], &[(":status", "200"), (":path", "/")]] {
            assert_eq!(build(HeadKind::Response, fields), Err(HeadFault::Malformed), "{fields:?}");
        }
        assert_eq!(build(HeadKind::Trailers, &[(":status", "200")]), Err(HeadFault::Malformed));
        assert_eq!(build(HeadKind::Trailers, &[("x", "y")]).expect("trailers").0, "x: y\r\n");
    }

    #[test]
    fn fields_and_bytes_are_counted_with_their_overhead() {
        let fields = vec![("x", ""); 101];
        assert_eq!(request(&fields[..100]).map(|_| ()), Ok(()));
        assert_eq!(request(&fields).map(|_| ()), Err(HeadFault::TooLarge));
        let long = "a".repeat(16 * 1024 - 32);
        assert_eq!(request(&[("x", &long)]).map(|_| ()), Err(HeadFault::TooLarge));
    }
}
