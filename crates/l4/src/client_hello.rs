//! Reads the server name of a ClientHello, without TLS: RFC 8446 §4.1.2 and §5.1, RFC 6066 §3.
//!
//! The reader takes nothing: the upstream gets each byte as it came. A ClientHello may be split over 256 records,
//! and its bytes may come one by one.

use std::borrow::Cow;
use std::fmt;

/// The result of reading the first bytes of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientHello {
    /// More bytes have to come: at least so many in all.
    NeedMore(usize),
    /// The ClientHello is complete. It has a server name, in lower case, or none.
    Complete(Option<String>),
}

/// Why the first bytes of a connection are no ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HelloError {
    /// The first record is no TLS handshake record, or the first message no ClientHello.
    NotTls,
    /// A length does not fit into the one around it, or something stands twice.
    Malformed,
    /// The server name is no name of a host.
    Name,
    /// The ClientHello and the headers of its records are longer than the limit, or it comes in more than 256 records.
    TooLong,
}

/// Reads the ClientHello at the beginning of `bytes`, of at most `bytes_max` with the headers of its records.
///
/// ```
/// use tidegate::l4::{ClientHello, HelloError, read_client_hello};
///
/// assert_eq!(read_client_hello(b"\x16\x03", 16_384), Ok(ClientHello::NeedMore(5)));
/// assert_eq!(read_client_hello(b"GET / HTTP/1.1\r\n", 16_384), Err(HelloError::NotTls));
/// ```
///
/// # Errors
/// [`HelloError`], as soon as the bytes that there are suffice for it.
pub fn read_client_hello(bytes: &[u8], bytes_max: usize) -> Result<ClientHello, HelloError> {
    let mut message: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    let mut at = 0;
    // Each look begins anew, so their number bounds its time.
    for _ in 0..RECORDS_MAX {
        let rest = bytes.get(at..).unwrap_or_default();
        if let Some(end) = check_record(rest)? {
            let end = at + end;
            if end > bytes_max {
                return Err(HelloError::TooLong);
            }
            let Some(fragment) = bytes.get(at + RECORD_HEADER..end) else { return Ok(ClientHello::NeedMore(end)) };
            if message.is_empty() {
                message = Cow::Borrowed(fragment);
            } else {
                message.to_mut().extend_from_slice(fragment);
            }
            if let Some(body) = handshake(&message, bytes_max)? {
                return server_name(body).map(ClientHello::Complete);
            }
            at = end;
        } else if at + RECORD_HEADER > bytes_max {
            return Err(HelloError::TooLong);
        } else {
            return Ok(ClientHello::NeedMore(at + RECORD_HEADER));
        }
    }
    Err(HelloError::TooLong)
}

/// The length of the first record with its header; `None` if the header is not complete.
fn check_record(bytes: &[u8]) -> Result<Option<usize>, HelloError> {
    let is_handshake = bytes.first().is_none_or(|kind| *kind == HANDSHAKE);
    if !is_handshake || bytes.get(1).is_some_and(|major| *major != 3) {
        return Err(HelloError::NotTls);
    }
    let (Some(high), Some(low)) = (bytes.get(3), bytes.get(4)) else { return Ok(None) };
    match u16::from_be_bytes([*high, *low]) {
        // RFC 8446 §5.1: a fragment of a handshake message has a byte at least.
        0 => Err(HelloError::Malformed),
        length if length > RECORD_BYTES_MAX => Err(HelloError::Malformed),
        length => Ok(Some(RECORD_HEADER + usize::from(length))),
    }
}

/// The body of the ClientHello, once all of it has come.
fn handshake(message: &[u8], bytes_max: usize) -> Result<Option<&[u8]>, HelloError> {
    if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(HelloError::NotTls);
    }
    let Some(&[_, high, middle, low]) = message.first_chunk() else { return Ok(None) };
    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
    if length > bytes_max {
        return Err(HelloError::TooLong);
    }
    let body = message.get(HANDSHAKE_HEADER..).unwrap_or_default();
    // Another handshake message does not follow in the same record.
    if body.len() > length {
        return Err(HelloError::Malformed);
    }
    Ok((body.len() == length).then_some(body))
}

/// The name in a ClientHello.
fn server_name(body: &[u8]) -> Result<Option<String>, HelloError> {
    let mut hello = Fields(body);
    hello.take(VERSION_AND_RANDOM)?;
    if hello.vector8()?.len() > SESSION_ID_BYTES_MAX || hello.vector16()?.is_empty() || hello.vector8()?.is_empty() {
        return Err(HelloError::Malformed);
    }
    if hello.0.is_empty() {
        // TLS 1.2 without extensions.
        return Ok(None);
    }
    let mut extensions = Fields(hello.vector16()?);
    hello.end()?;
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let data = extensions.vector16()?;
        if kind == SERVER_NAME {
            if name.is_some() {
                return Err(HelloError::Malformed);
            }
            name = Some(host_name(data)?);
        }
    }
    Ok(name)
}

/// The only entry of the list in the extension `server_name`.
fn host_name(data: &[u8]) -> Result<String, HelloError> {
    let mut data = Fields(data);
    let mut list = Fields(data.vector16()?);
    data.end()?;
    if list.take(1)? != [HOST_NAME] {
        return Err(HelloError::Malformed);
    }
    let name = list.vector16()?;
    list.end()?;
    // Some clients, such as `hey`, send the port of the URL as well. nginx ignores it, too.
    let has_port = |port: &[u8]| !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    let name = match name.iter().position(|byte| *byte == b':') {
        Some(colon) if has_port(&name[colon + 1..]) => &name[..colon],
        _ => name,
    };
    let is_name_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.iter().all(is_name_byte) {
        return Err(HelloError::Name);
    }
    let name = String::from_utf8(name.to_ascii_lowercase()).map_err(|_| HelloError::Name)?;
    // No name ends with a dot (RFC 6066 §3), but some clients pass on that of a URL.
    Ok(name.strip_suffix('.').map(str::to_owned).unwrap_or(name))
}

/// Fields of a message that are left.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(HelloError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u16, HelloError> {
        let bytes = self.take(2)?;
        bytes.try_into().map(u16::from_be_bytes).map_err(|_| HelloError::Malformed)
    }

    fn vector8(&mut self) -> Result<&'a [u8], HelloError> {
        let length = self.take(1)?.first().copied().unwrap_or_default();
        self.take(length.into())
    }

    fn vector16(&mut self) -> Result<&'a [u8], HelloError> {
        let length = self.number()?;
        self.take(length.into())
    }

    fn end(&self) -> Result<(), HelloError> {
        if self.0.is_empty() { Ok(()) } else { Err(HelloError::Malformed) }
    }
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotTls => "the connection does not begin with a TLS ClientHello",
            Self::Malformed => "the ClientHello is malformed",
            Self::Name => "the server name of the ClientHello is no name of a host",
            Self::TooLong => "the ClientHello is longer than the limit",
        })
    }
}

impl std::error::Error for HelloError {}

/// The alert that refuses a server name: a fatal `unrecognized_name` (RFC 6066 §3).
pub(crate) const UNRECOGNIZED_NAME: &[u8] = &[21, 3, 1, 0, 2, 2, 112];

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const HOST_NAME: u8 = 0;
const SERVER_NAME: u16 = 0;
const RECORD_HEADER: usize = 5;
const HANDSHAKE_HEADER: usize = 4;
/// A ClientHello comes in at most so many records.
const RECORDS_MAX: usize = 256;
/// The longest fragment of a record without encryption.
const RECORD_BYTES_MAX: u16 = 1 << 14;
const VERSION_AND_RANDOM: usize = 34;
const SESSION_ID_BYTES_MAX: usize = 32;
const NAME_BYTES_MAX: usize = 255;
