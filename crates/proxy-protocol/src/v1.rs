//! Version 1: one line of text.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::{Error, Violation};
use crate::header::{Addresses, Header, Transport, Version};

/// The first bytes of a line.
pub(crate) const START: &[u8] = b"PROXY ";

/// The longest line, its end included.
pub(crate) const LINE_BYTES_MAX: usize = 107;

/// The header at the beginning of `bytes`, and its length with the line end; `None` if the line is incomplete. `seen`
/// bytes are known to have no line end.
pub(crate) fn parse(bytes: &[u8], seen: &mut u8) -> Result<Option<(Header, usize)>, Error> {
    let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let from = usize::from(*seen);
    let Some(end) = window[from..].iter().position(|byte| matches!(byte, b'\r' | b'\n')).map(|at| from + at) else {
        *seen = window.len() as u8;
        return if window.len() == LINE_BYTES_MAX { Err(Error::Peer(Violation::LineTooLong)) } else { Ok(None) };
    };
    match window[end..] {
        [b'\r', b'\n', ..] => {
            let header = parse_line(&window[..end]).ok_or(Error::Peer(Violation::Line))?;
            Ok(Some((header, end + 2)))
        }
        [b'\r'] if window.len() == LINE_BYTES_MAX => Err(Error::Peer(Violation::LineTooLong)),
        [b'\r'] => {
            *seen = end as u8;
            Ok(None)
        }
        _ => Err(Error::Peer(Violation::LineEnd)),
    }
}

/// A line without its end.
fn parse_line(line: &[u8]) -> Option<Header> {
    let line = str::from_utf8(line).ok()?.strip_prefix("PROXY ")?;
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        // The rest of the line is ignored, as specified.
        return Some(header(Addresses::Unspecified, Transport::Unspecified));
    }
    let mut words = line.split(' ');
    let mut next = || words.next();
    let (family, source, destination) = (next()?, next()?, next()?);
    let ports = [port(next()?)?, port(next()?)?];
    if next().is_some() {
        return None;
    }
    let addresses = match family {
        "TCP4" => Addresses::v4(v4(source)?, v4(destination)?, ports),
        "TCP6" => Addresses::v6(v6(source)?, v6(destination)?, ports),
        _ => return None,
    };
    Some(header(addresses, Transport::Stream))
}

fn header(addresses: Addresses, transport: Transport) -> Header {
    Header { addresses, version: Version::One, transport, is_local: false, tlvs: Box::default() }
}

/// Four decimal numbers without leading zeros.
fn v4(text: &str) -> Option<Ipv4Addr> {
    text.parse().ok()
}

/// With the last 32 bits in either notation: proxies write a mapped IPv4 address as one.
fn v6(text: &str) -> Option<Ipv6Addr> {
    text.parse().ok()
}

/// A decimal number without leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_canonical = text == "0" || !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_canonical { text.parse().ok() } else { None }
}

const _: () = assert!(LINE_BYTES_MAX <= u8::MAX as usize);
