//! From bytes to a request head: one strict pass (RFC 9112 §2.2 to §6.3).
//!
//! `parse` takes bytes that may contain a whole head, and finds the end by itself: a head that arrives whole is read
//! once. It does not check whether an incomplete head can still become valid, so that the response to a peer does not
//! depend on how its bytes were split into packets. `head_end` has the checks of an incomplete head.

use std::sync::LazyLock;

use tidegate_codec::Slice;
use tidegate_scan::{Field, FieldError, Scanner, Task};

use crate::error::{Error, Exceeded, Violation};
use crate::head::{
    CHUNKED, EXPECTS_CONTINUE, HTTP_2, HTTP_10, IRREGULAR, KEEP_ALIVE, Method, OPTIONS, RequestHead, Spans,
    UNTIL_CLOSE, UPGRADE, VERSION_BYTES, trim,
};
use crate::limits::{Config, HEAD_BYTES_CEILING, Limits};
use crate::runs;

/// Why parsing returned no head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParseStop {
    /// The bytes ended first.
    Partial,
    /// The bytes are no valid head.
    Broken(Error),
}

impl From<Violation> for ParseStop {
    #[cold]
    #[inline(never)]
    fn from(violation: Violation) -> Self {
        Self::Broken(Error::Peer(violation))
    }
}

impl From<Exceeded> for ParseStop {
    #[cold]
    #[inline(never)]
    fn from(exceeded: Exceeded) -> Self {
        Self::Broken(Error::Limit(exceeded))
    }
}

/// Parses the head at the start of `bytes`, and returns its spans and its length. Bytes beyond the largest head are
/// not read.
#[inline]
pub(crate) fn parse(bytes: &[u8], config: &Config) -> Result<(Spans, usize), ParseStop> {
    tidegate_scan::run(Parse { bytes, config, connects_to_paths: false })
}

impl RequestHead {
    /// A head that came by HTTP/2, as HTTP/1.1 text, its last empty line included. It is checked like any other head,
    /// so a request cannot change its meaning with the version. If the body has not `ended` with the head, it has the
    /// length that the head declares, or else any, and its framing is that of the other version. A CONNECT has no body.
    /// One with a path as its target is an extended one (RFC 8441), and `Upgrade` is its [`protocol`](Self::protocol).
    ///
    /// # Errors
    /// As for an HTTP/1.1 head.
    pub fn of_http2(text: Slice, has_ended: bool, config: &Config) -> Result<Self, Error> {
        let parse = Parse { bytes: &text, config, connects_to_paths: true };
        let (mut spans, length) = match tidegate_scan::run(parse) {
            Ok(parsed) => parsed,
            Err(ParseStop::Broken(error)) => return Err(error),
            Err(ParseStop::Partial) => return Err(Error::Limit(Exceeded::Head)),
        };
        debug_assert_eq!(length, text.len(), "one head");
        spans.flags |= HTTP_2 | KEEP_ALIVE;
        spans.body = match spans.body {
            _ if has_ended || spans.method == Method::Connect => 0,
            0 => CHUNKED,
            length => length,
        };
        Ok(Self { bytes: text, spans })
    }

    /// The same for a head that came by HTTP/3.
    ///
    /// # Errors
    /// As for an HTTP/1.1 head.
    pub fn of_http3(text: Slice, has_ended: bool, config: &Config) -> Result<Self, Error> {
        let mut head = Self::of_http2(text, has_ended, config)?;
        head.spans.flags |= HTTP_10;
        Ok(head)
    }

    /// A head of the same version with another text, which is checked: for a server that changes the fields of a request
    /// without a body.
    ///
    /// # Errors
    /// As for an HTTP/1.1 head.
    #[doc(hidden)]
    pub fn with_text(&self, text: Slice, config: &Config) -> Result<Self, Error> {
        if self.spans.flags & HTTP_2 != 0 {
            let mut head = Self::of_http2(text, true, config)?;
            head.spans.flags |= self.spans.flags & HTTP_10;
            return Ok(head);
        }
        match parse(&text, config) {
            Ok((mut spans, _)) => {
                spans.body = 0;
                Ok(Self { bytes: text, spans })
            }
            Err(ParseStop::Broken(error)) => Err(error),
            Err(ParseStop::Partial) => Err(Error::Limit(Exceeded::Head)),
        }
    }

    /// A head of the same version and with the same body with other fields, whose number has no limit: for a server that
    /// changes the fields of a request. `text` has the request line, then the fields, then an empty line.
    ///
    /// # Errors
    /// As for an HTTP/1.1 head.
    #[doc(hidden)]
    pub fn with_other_fields(&self, text: Slice) -> Result<Self, Error> {
        static WIDE: LazyLock<Config> = LazyLock::new(|| {
            let (head_bytes_max, request_line_bytes_max) = (HEAD_BYTES_CEILING, HEAD_BYTES_CEILING - 1);
            Config::new(Limits { head_bytes_max, request_line_bytes_max, headers_max: u32::MAX, ..Limits::default() })
        });
        let other = self.with_text(text, &WIDE)?;
        Ok(Self { spans: Spans { body: self.spans.body, ..other.spans }, ..other })
    }

    /// The head with a text that is equal to one from which [`of_http2`](Self::of_http2) has made a head with this layout,
    /// with the same configuration and the same end. It is not checked once more.
    #[must_use]
    #[inline]
    pub fn with_layout(text: Slice, layout: HeadLayout) -> Self {
        Self { bytes: text, spans: layout.0 }
    }

    /// Where the parts of the head are.
    #[must_use]
    #[inline]
    pub fn layout(&self) -> HeadLayout {
        HeadLayout(self.spans)
    }
}

/// Where the parts of a head are; see [`RequestHead::with_layout`].
#[derive(Debug, Clone, Copy)]
pub struct HeadLayout(Spans);

struct Parse<'b> {
    bytes: &'b [u8],
    config: &'b Config,
    /// A CONNECT may have a path as its target.
    connects_to_paths: bool,
}

impl Task for Parse<'_> {
    type Output = Result<(Spans, usize), ParseStop>;

    #[inline(always)]
    fn run<S: Scanner>(self, scanner: S) -> Self::Output {
        let Self { bytes, config, connects_to_paths } = self;
        let limits = config.limits();
        let bytes = &bytes[..bytes.len().min(limits.head_bytes_max as usize)];
        let (method, target_start) = method(scanner, bytes)?;
        let TargetEnds { path_end, target_end, old, irregular } = target_ends(scanner, bytes, target_start, config)?;
        if bytes[target_start] != b'/' || (method == Method::Connect && !connects_to_paths) {
            check_target(method, &bytes[target_start..target_end])?;
        }
        let line_end = target_end + VERSION_BYTES - 2;
        if line_end > limits.request_line_bytes_max as usize {
            return Err(Exceeded::RequestLine.into());
        }
        let mut facts = Facts::default();
        let end = scanner.fields(bytes, line_end + 2, |field| facts.record_length(scanner, bytes, field));
        let end = end.map_err(stopped)?;
        if facts.count > limits.headers_max {
            return Err(Exceeded::Headers.into());
        }
        let (body, flags) = (facts.body(method, old, config)?, facts.flags(old)? | irregular);
        let spans = Spans {
            body,
            // `Limits` keeps heads below 64 KiB.
            target_start: target_start as u16,
            target_length: (target_end - target_start) as u16,
            path_length: (path_end - target_start) as u16,
            method,
            flags,
        };
        Ok((spans, end))
    }
}

/// Converts the scanner's reason into that of this crate.
#[cold]
pub(crate) fn stopped(stop: tidegate_scan::Stop<ParseStop>) -> ParseStop {
    match stop {
        tidegate_scan::Stop::Partial => ParseStop::Partial,
        tidegate_scan::Stop::Refused(stop) => stop,
        tidegate_scan::Stop::Flawed(flaw) => match flaw {
            FieldError::FoldedLine => Violation::FoldedLine.into(),
            FieldError::Name | FieldError::NoColon => Violation::FieldName.into(),
            FieldError::BareLf => Violation::BareLf.into(),
            _ => Violation::FieldValue.into(),
        },
    }
}

/// The method, and the start of the target.
#[inline(always)]
fn method<S: Scanner>(scanner: S, bytes: &[u8]) -> Result<(Method, usize), ParseStop> {
    if bytes.first_chunk().is_some_and(|first| first == b"GET ") {
        return Ok((Method::Get, 4));
    }
    let end = scanner.token_end(bytes, 0);
    match bytes.get(end) {
        None => Err(ParseStop::Partial),
        Some(b' ') if end > 0 => Ok((Method::from_token(&bytes[..end]), end + 1)),
        Some(_) => Err(Violation::RequestLine.into()),
    }
}

/// The ends of a target and of its path, and whether the version after it is HTTP/1.0.
struct TargetEnds {
    path_end: usize,
    target_end: usize,
    old: bool,
    /// [`IRREGULAR`] or nothing.
    irregular: u8,
}

/// The ends of the target that begins at `at`. A target without `%` is read once.
#[inline(always)]
fn target_ends<S: Scanner>(scanner: S, bytes: &[u8], at: usize, config: &Config) -> Result<TargetEnds, ParseStop> {
    let path_end = scanner.plain_path_end(bytes, at);
    if let Some(old) = version(bytes, path_end) {
        return Ok(TargetEnds { path_end, target_end: path_end, old, irregular: 0 });
    }
    let target_end = scanner.plain_target_end(bytes, path_end);
    match version(bytes, target_end) {
        Some(old) => Ok(TargetEnds { path_end, target_end, old, irregular: 0 }),
        None => target_ends_slow_path(bytes, path_end, config.has_strict_targets()),
    }
}

/// The same for a target with `%` or with bytes that no URI has, or before a version other than HTTP/1.1 and HTTP/1.0.
/// All bytes before `at` belong to its path.
#[inline(never)]
fn target_ends_slow_path(bytes: &[u8], at: usize, is_strict: bool) -> Result<TargetEnds, ParseStop> {
    let (mut path_end, mut target_end) = tidegate_scan::run(Target { bytes, at });
    let mut found = version(bytes, target_end);
    if found.is_none() && !is_strict {
        (path_end, target_end) = lenient_target_ends(bytes, path_end, target_end);
        found = version(bytes, target_end);
    }
    let old = found.map_or_else(|| other_version(bytes, target_end), Ok)?;
    Ok(TargetEnds { path_end, target_end, old, irregular: IRREGULAR })
}

/// The ends of a path and of its target with bytes that user agents send although no URI has them: all but control
/// characters, the space, and `#`, with which a fragment begins. A `%` needs no digits, but a path has no `%00`. Up to
/// the given ends both are those of a URI.
#[cold]
fn lenient_target_ends(bytes: &[u8], mut path_end: usize, target_end: usize) -> (usize, usize) {
    if bytes.get(path_end) != Some(&b'?') {
        let is_path = |at: usize, byte: u8| {
            is_of_lenient_target(byte) && byte != b'?' && !(byte == b'%' && bytes[at..].starts_with(b"%00"))
        };
        path_end = (path_end..bytes.len()).find(|&at| !is_path(at, bytes[at])).unwrap_or(bytes.len());
        if bytes.get(path_end) != Some(&b'?') {
            return (path_end, path_end);
        }
    }
    let from = target_end.max(path_end);
    let length = bytes[from..].iter().position(|&byte| !is_of_lenient_target(byte));
    (path_end, length.map_or(bytes.len(), |length| from + length))
}

fn is_of_lenient_target(byte: u8) -> bool {
    byte > b' ' && byte != b'#' && byte != 0x7f
}

/// Finds the ends of a path that continues at `at`, and of its target.
struct Target<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Task for Target<'_> {
    type Output = (usize, usize);

    #[inline(always)]
    fn run<S: Scanner>(self, scanner: S) -> (usize, usize) {
        let Self { bytes, at } = self;
        let path_end = scanner.path_end(bytes, at);
        let has_query = bytes.get(path_end) == Some(&b'?');
        (path_end, if has_query { scanner.target_end(bytes, path_end) } else { path_end })
    }
}

/// Whether the version after a target is HTTP/1.0; none if it is neither that nor HTTP/1.1.
#[inline(always)]
fn version(bytes: &[u8], target_end: usize) -> Option<bool> {
    let found = bytes.get(target_end..target_end.wrapping_add(VERSION_BYTES))?.first_chunk::<VERSION_BYTES>()?;
    // Compared in words: a pattern would compare byte by byte.
    let is = |end: &[u8; 4]| found.first_chunk() == Some(b" HTTP/1.") && found.last_chunk() == Some(end);
    if is(b".1\r\n") {
        Some(false)
    } else if is(b".0\r\n") {
        Some(true)
    } else {
        None
    }
}

/// Whether another version after a target is read as HTTP/1.0. A higher minor version is read as HTTP/1.1 (RFC 9110
/// §2.5).
#[cold]
fn other_version(bytes: &[u8], target_end: usize) -> Result<bool, ParseStop> {
    let rest = &bytes[target_end..];
    let violation = match rest {
        [b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor, b'\r', b'\n', ..] if minor.is_ascii_digit() => {
            return Ok(false);
        }
        [b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor, b'\r', b'\n', ..]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Violation::Version
        }
        [first, ..] if *first != b' ' => if_target(*first),
        _ => Violation::RequestLine,
    };
    Err(if rest.len() < VERSION_BYTES { ParseStop::Partial } else { violation.into() })
}

fn if_target(ended_by: u8) -> Violation {
    if matches!(ended_by, b'\r' | b'\n') { Violation::RequestLine } else { Violation::Target }
}

/// Checks a target that does not begin with a slash: absolute, an authority, or the asterisk (RFC 9112 §3.2.2 to
/// §3.2.4).
#[cold]
fn check_target(method: Method, target: &[u8]) -> Result<(), ParseStop> {
    let good = match method {
        Method::Connect => is_authority_with_port(target),
        Method::Options if target == b"*" => true,
        _ => target.windows(3).position(|three| three == b"://").is_some_and(|end| {
            let rest = &target[end + 3..];
            let authority_end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
            let scheme = &target[..end];
            scheme.first().is_some_and(u8::is_ascii_alphabetic)
                && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
                && is_authority(&rest[..authority_end])
        }),
    };
    if good { Ok(()) } else { Err(Violation::Target.into()) }
}

/// Whether a request with this method may have this target. The bytes that servers accept unless they are
/// [strict](Config::strict_targets) may be sent.
pub(crate) fn is_target(method: Method, target: &[u8]) -> bool {
    let (path_end, mut target_end) = tidegate_scan::run(Target { bytes: target, at: 0 });
    if target_end < target.len() {
        (_, target_end) = lenient_target_ends(target, path_end, target_end);
    }
    let is_whole = !target.is_empty() && target_end == target.len();
    let is_origin = target.first() == Some(&b'/') && method != Method::Connect;
    is_whole && (is_origin || check_target(method, target).is_ok())
}

/// Whether this is a host that is not empty (RFC 9110 §4.2.1), with an optional port.
fn is_authority(bytes: &[u8]) -> bool {
    !matches!(bytes, [] | [b':', ..]) && is_host(bytes)
}

/// Whether this is a target of CONNECT: a host and a port (RFC 9110 §9.3.6).
fn is_authority_with_port(bytes: &[u8]) -> bool {
    let Some(colon) = memchr::memrchr(b':', bytes) else { return false };
    let (host, port) = (&bytes[..colon], &bytes[colon + 1..]);
    let number = std::str::from_utf8(port).ok().and_then(|port| port.parse::<u16>().ok());
    let is_one = !host.contains(&b':') || host.ends_with(b"]");
    is_one && is_authority(host) && port.iter().all(u8::is_ascii_digit) && number.is_some_and(|number| number > 0)
}

/// Whether this is a host with an optional port (RFC 9110 §7.2). The host may be empty.
#[inline(never)]
pub(crate) fn is_host(bytes: &[u8]) -> bool {
    let host_end = match bytes {
        [b'[', address @ ..] => match address.iter().position(|&byte| byte == b']') {
            Some(end) if address[..end].iter().all(|byte| byte.is_ascii_hexdigit() || b":.v".contains(byte)) => end + 2,
            _ => return false,
        },
        _ => runs::host_end(bytes, 0),
    };
    bytes.len() == host_end || is_port(&bytes[host_end..])
}

/// Whether this may follow a host: a colon and optional digits.
#[inline(always)]
fn is_port(bytes: &[u8]) -> bool {
    matches!(bytes, [b':', port @ ..] if port.iter().all(u8::is_ascii_digit))
}

/// The name in a field line, which is given without its line end, if the line is valid.
pub(crate) fn field_name(line: &[u8]) -> Option<&[u8]> {
    let name_end = runs::token_end(line, 0);
    let is_good =
        name_end > 0 && line.get(name_end) == Some(&b':') && runs::value_end(line, name_end + 1) == line.len();
    is_good.then_some(&line[..name_end])
}

/// The facts about framing and connection in a head's fields.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    length: u64,
    /// How many seconds a peer announces that it keeps an idle connection, or [`NOT_ANNOUNCED`].
    pub(crate) kept_seconds: u16,
    /// How many fields there were.
    count: u32,
    seen: u8,
    /// `Connection` has an option other than `keep-alive`.
    has_options: bool,
}

impl Facts {
    #[inline(always)]
    fn record_length<S: Scanner>(&mut self, scanner: S, bytes: &[u8], field: Field<'_>) -> Result<(), ParseStop> {
        self.count += 1;
        let name = field.name();
        match name.len() {
            4 if is(name, b"host") => self.host(scanner, bytes, field),
            6 if is(name, b"expect") => self.expect(field.value()),
            7 if is(name, b"upgrade") => {
                self.upgrade(field.value());
                Ok(())
            }
            10 if is(name, b"connection") => {
                self.connection(field.value());
                Ok(())
            }
            14 if is(name, b"content-length") => self.content_length(field.value()),
            17 if is(name, b"transfer-encoding") => self.transfer_encoding(field.value()),
            _ => Ok(()),
        }
    }

    /// The facts of a response; `is_tunnel` if a tunnel begins after it.
    pub(crate) fn of_response(is_tunnel: bool) -> Self {
        Self { seen: if is_tunnel { TUNNEL } else { 0 }, kept_seconds: NOT_ANNOUNCED, ..Self::default() }
    }

    pub(crate) fn learn_of_response(&mut self, field: Field<'_>) -> Result<(), ParseStop> {
        let (name, value) = (field.name(), field.value());
        match name.len() {
            10 if is(name, b"connection") => {
                self.connection(value);
                Ok(())
            }
            10 if is(name, b"keep-alive") => {
                self.keep_alive(value);
                Ok(())
            }
            // A tunnel has no body, whatever these fields declare (RFC 9112 §6.3).
            14 | 17 if self.seen & TUNNEL != 0 => Ok(()),
            14 if is(name, b"content-length") => self.content_length_of_response(value),
            17 if is(name, b"transfer-encoding") => self.transfer_encoding(value),
            7 if is(name, b"upgrade") => {
                self.note(UPGRADES);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn host<S: Scanner>(&mut self, scanner: S, bytes: &[u8], field: Field<'_>) -> Result<(), ParseStop> {
        if !self.note(HOST) {
            return Err(Violation::HostRepeated.into());
        }
        // One space, a name or an address of four numbers, and perhaps a port.
        let is_plain = bytes.get(field.name_end() + 1) == Some(&b' ') && {
            // Scans all bytes and not the value alone: the scanner needs enough bytes to process many at a time.
            let host_end = scanner.host_end(bytes, field.name_end() + 2);
            host_end == field.value_end() || bytes.get(host_end..field.value_end()).is_some_and(is_port)
        };
        if is_plain || is_host(trim(field.value())) { Ok(()) } else { Err(Violation::HostInvalid.into()) }
    }

    #[inline(always)]
    fn connection(&mut self, value: &[u8]) {
        if is(value, b" keep-alive") {
            self.seen |= KEEP;
        } else {
            self.connection_options(value);
        }
    }

    /// `timeout` of a `Keep-Alive` field (RFC 2068 §19.7.1.1, and the practice of servers).
    #[inline(never)]
    fn keep_alive(&mut self, value: &[u8]) {
        for parameter in value.split(|&byte| byte == b',').map(trim) {
            let Some((name, seconds)) = parameter.split_at_checked(TIMEOUT.len()) else { continue };
            if name.eq_ignore_ascii_case(TIMEOUT) && !seconds.is_empty() && seconds.iter().all(u8::is_ascii_digit) {
                let add = |sum: u16, digit: &u8| sum.saturating_mul(10).saturating_add(u16::from(digit - b'0'));
                self.kept_seconds = seconds.iter().fold(0, add);
            }
        }
    }

    /// A client may send bytes of such a tunnel behind its request without waiting (RFC 9298, RFC 9484), and applications that
    /// the client does not trust may have chosen them. If the request is refused, they must not be read as requests (RFC 9931).
    #[cold]
    fn upgrade(&mut self, value: &[u8]) {
        let is_tunnel =
            |token: &[u8]| token.get(..CONNECT.len()).is_some_and(|first| first.eq_ignore_ascii_case(CONNECT));
        if value.split(|&byte| byte == b',').any(|token| is_tunnel(trim(token))) {
            self.seen |= CLOSE;
        }
    }

    #[inline(never)]
    fn connection_options(&mut self, value: &[u8]) {
        self.has_options = true;
        for option in value.split(|&byte| byte == b',') {
            let option = trim(option);
            if option.eq_ignore_ascii_case(b"close") {
                self.seen |= CLOSE;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.seen |= KEEP;
            }
        }
    }

    #[inline(never)]
    fn content_length(&mut self, value: &[u8]) -> Result<(), ParseStop> {
        if !self.note(LENGTH) {
            return Err(Violation::ContentLengthRepeated.into());
        }
        self.length = decimal(trim(value))?;
        Ok(())
    }

    #[inline(never)]
    fn content_length_of_response(&mut self, value: &[u8]) -> Result<(), ParseStop> {
        match decimal(trim(value)) {
            Ok(length) if self.note(LENGTH) => {
                self.length = length;
                Ok(())
            }
            _ => self.content_lengths_of_response(value),
        }
    }

    /// A response may have equal lengths several times, in one field or in several, which count as one (RFC 9110 §8.6).
    #[cold]
    fn content_lengths_of_response(&mut self, value: &[u8]) -> Result<(), ParseStop> {
        for member in value.split(|&byte| byte == b',') {
            let length = decimal(trim(member))?;
            if !self.note(LENGTH) && length != self.length {
                return Err(Violation::ContentLengthRepeated.into());
            }
            self.length = length;
        }
        Ok(())
    }

    #[inline(never)]
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), ParseStop> {
        let codings = || value.split(|&byte| byte == b',').map(trim);
        let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
        if !self.note(CODED) || codings().any(<[u8]>::is_empty) {
            return Err(Violation::TransferEncoding.into());
        }
        match (codings().count(), codings().filter(is_chunked).count()) {
            (1, 1) => Ok(()),
            (_, 1) if codings().next_back().as_ref().is_some_and(is_chunked) => Err(Violation::CodingUnknown.into()),
            _ => Err(Violation::ChunkedNotLast.into()),
        }
    }

    #[inline(never)]
    fn expect(&mut self, value: &[u8]) -> Result<(), ParseStop> {
        // Empty members of a list are ignored (RFC 9110 §5.6.1.2).
        for expectation in value.split(|&byte| byte == b',').map(trim).filter(|member| !member.is_empty()) {
            if !expectation.eq_ignore_ascii_case(b"100-continue") {
                return Err(Violation::ExpectationUnknown.into());
            }
            self.seen |= EXPECTS;
        }
        Ok(())
    }

    /// The length of the body (RFC 9112 §6.3).
    #[inline]
    fn body(&self, method: Method, old: bool, config: &Config) -> Result<u64, ParseStop> {
        if self.seen & (LENGTH | CODED) == 0 {
            let expected = config.requires_length() && matches!(method, Method::Post | Method::Put | Method::Patch);
            return if expected { Err(Violation::LengthRequired.into()) } else { Ok(0) };
        }
        if method == Method::Connect && (self.length > 0 || self.seen & CODED != 0) {
            return Err(Violation::ConnectBody.into());
        }
        if self.seen & CODED == 0 {
            return if self.length > config.limits().body_bytes_max {
                Err(Exceeded::Body.into())
            } else {
                Ok(self.length)
            };
        }
        if self.seen & LENGTH != 0 {
            return Err(Violation::LengthAndEncoding.into());
        }
        if old { Err(Violation::TransferEncoding.into()) } else { Ok(CHUNKED) }
    }

    /// The length of the body of a response, unless its request permits none (RFC 9112 §6.3).
    pub(crate) fn body_of_response(&self, code: u16, old: bool) -> Result<u64, ParseStop> {
        let (has_length, is_coded) = (self.seen & LENGTH != 0, self.seen & CODED != 0);
        match code {
            // The head ends these, whatever its fields declare.
            100..=199 | 204 | 304 => Ok(0),
            _ if is_coded && has_length => Err(Violation::LengthAndEncoding.into()),
            _ if is_coded && old => Err(Violation::TransferEncoding.into()),
            _ if is_coded => Ok(CHUNKED),
            _ if has_length => Ok(self.length),
            _ => Ok(UNTIL_CLOSE),
        }
    }

    pub(crate) fn flags_of_response(&self, code: u16, old: bool) -> u8 {
        // The peer may send the body that it declares, which would be read as the next response. The length in a 304 is
        // that of a 200 (RFC 9110 §8.6, RFC 9112 §6.1).
        let declares_body = self.seen & CODED != 0 || self.length > 0;
        let may_have_more = matches!(code, 100..=199 | 204) && declares_body;
        let keeps = if old { self.seen & (KEEP | CLOSE) == KEEP } else { self.seen & CLOSE == 0 };
        let keeps = keeps && !may_have_more;
        let upgrades = self.seen & UPGRADES != 0;
        [(old, HTTP_10), (keeps, KEEP_ALIVE), (upgrades, UPGRADE), (self.has_options, OPTIONS)]
            .iter()
            .map(|(is, flag)| u8::from(*is) * flag)
            .sum()
    }

    #[inline]
    fn flags(&self, old: bool) -> Result<u8, ParseStop> {
        if old {
            // In HTTP/1.0 an expectation is ignored (RFC 9110 §10.1.1), and closing is the default.
            let keep = self.seen & (KEEP | CLOSE) == KEEP;
            return Ok(HTTP_10 | if keep { KEEP_ALIVE } else { 0 });
        }
        if self.seen & HOST == 0 {
            return Err(Violation::HostMissing.into());
        }
        Ok((self.seen ^ CLOSE) & (KEEP_ALIVE | EXPECTS_CONTINUE))
    }

    /// Records a field that may occur once; returns whether this is its first occurrence.
    #[inline]
    fn note(&mut self, what: u8) -> bool {
        let first = self.seen & what == 0;
        self.seen |= what;
        first
    }
}

/// The number that is the value of a `Content-Length`.
fn decimal(digits: &[u8]) -> Result<u64, ParseStop> {
    if digits.is_empty() || digits.len() > LENGTH_DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Violation::ContentLengthInvalid.into());
    }
    Ok(digits.iter().fold(0, |length, digit| length * 10 + u64::from(digit - b'0')))
}

/// Whether `found` is `name` in any case. `name` is in lower case and has four to twenty-four letters, dashes and
/// spaces. Compared in words: as many as fit, and one that ends with the last letter. Bit 5 is ignored. No byte that a
/// name or a value may have differs from one of these in that bit only, except a letter of the other case.
#[inline(always)]
fn is<const N: usize>(found: &[u8], name: &[u8; N]) -> bool {
    let Ok(found) = <&[u8; N]>::try_from(found) else { return false };
    let word = |at: usize| {
        let of = |bytes: &[u8; N]| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        (of(found) ^ of(name)) & !CASE
    };
    let half = |at: usize| {
        let of = |bytes: &[u8; N]| bytes[at..].first_chunk().map_or(0, |half| u32::from_le_bytes(*half));
        (of(found) ^ of(name)) & !(CASE as u32)
    };
    match N {
        ..8 => half(0) == 0 && half(N - 4) == 0,
        8..=16 => word(0) | word(N - 8) == 0,
        _ => word(0) | word(8) | word(N - 8) == 0,
    }
}

/// The bit in which the two cases of a letter differ.
const CASE: u64 = u64::from_le_bytes([0x20; 8]);

const TIMEOUT: &[u8] = b"timeout=";

const CONNECT: &[u8] = b"connect-";

/// In place of the seconds for which a peer keeps an idle connection.
pub(crate) const NOT_ANNOUNCED: u16 = u16::MAX;

const HOST: u8 = 1;
/// The same bit as [`KEEP_ALIVE`], inverted.
const CLOSE: u8 = KEEP_ALIVE;
const EXPECTS: u8 = EXPECTS_CONTINUE;
const KEEP: u8 = 8;
const LENGTH: u8 = 16;
const CODED: u8 = 32;
const UPGRADES: u8 = 64;
const TUNNEL: u8 = 128;

/// Nineteen digits cannot overflow, nor reach [`CHUNKED`].
const LENGTH_DIGITS_MAX: usize = 19;

/// Whether a request line may begin with these bytes. A peer that speaks another protocol, such as TLS, is refused at
/// its first bytes: it would never send the empty line that ends a head, and both sides would wait.
fn may_begin_method(bytes: &[u8]) -> bool {
    let end = runs::token_end(bytes, 0);
    // A CR may be the first byte of an empty line; an LF is refused later, as a bare LF.
    matches!((&bytes[end..], end), ([], _) | ([b' ', ..], 1..) | ([b'\n', ..], _) | ([b'\r'], 0))
}

/// How many bytes of a method are checked early.
const METHOD_BYTES_CHECKED: usize = 32;

/// If a request line is too long, a method longer than this is to blame, otherwise the target. Registered methods have
/// at most 17 bytes.
const METHOD_BYTES_MAX: usize = 32;

/// Searches for the end of a head that did not arrive at once. Each byte is scanned once, in however many packets it
/// arrives. A refusal depends on the bytes alone, not on their splits.
pub(crate) fn head_end(bytes: &[u8], seen: usize, limits: &Limits) -> Result<Option<usize>, Error> {
    if seen < METHOD_BYTES_CHECKED && !may_begin_method(&bytes[..bytes.len().min(METHOD_BYTES_CHECKED)]) {
        return Err(Error::Peer(Violation::RequestLine));
    }
    let line_max = limits.request_line_bytes_max as usize + 2;
    if seen < line_max && bytes.len() >= line_max && memchr::memchr(b'\n', &bytes[..line_max]).is_none() {
        let method_max = METHOD_BYTES_MAX.min(line_max - 2);
        let has_long_method = !bytes[..=method_max].contains(&b' ');
        return Err(Error::Limit(if has_long_method { Exceeded::Method } else { Exceeded::RequestLine }));
    }
    empty_line(bytes, seen, limits.head_bytes_max as usize)
}

/// Searches for the empty line that ends a head, from where the last search ended.
pub(crate) fn empty_line(bytes: &[u8], seen: usize, head_max: usize) -> Result<Option<usize>, Error> {
    let window = &bytes[..bytes.len().min(head_max)];
    for end in memchr::memchr_iter(b'\n', &window[seen.min(window.len())..]) {
        let line = &window[..seen + end];
        if line.last() != Some(&b'\r') {
            return Err(Error::Peer(Violation::BareLf));
        }
        if line.ends_with(b"\r\n\r") {
            return Ok(Some(line.len() + 1));
        }
    }
    if bytes.len() >= head_max { Err(Error::Limit(Exceeded::Head)) } else { Ok(None) }
}
