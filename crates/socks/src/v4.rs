//! Version 4, and its extension 4a: one request, one reply of eight bytes.
//!
//! ```text
//! request   4, command, port (2), IPv4 (4), user id, 0      4a: IPv4 is 0.0.0.x, and a name and 0 follow
//! reply     0, code, port (2), IPv4 (4)
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::error::{Error, Exceeded, Violation};
use crate::message::{Request, Version};
use crate::refusal::Refusal;
use crate::target::{Host, NAME_BYTES_MAX, Target};
use crate::v5::{CONNECT, Parsed};

pub(crate) const VERSION: u8 = 4;

/// The request at the beginning of `bytes`. A request has at most some 520 bytes, so one that arrives byte by byte may
/// be scanned from its beginning each time.
pub(crate) fn request(bytes: &[u8], user_id_bytes_max: usize) -> Result<Option<Parsed<Request>>, Error> {
    if let Some(&command) = bytes.get(1)
        && command != CONNECT
    {
        return Err(Violation::Command(command).into());
    }
    let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) else { return Ok(None) };
    let Some(user_id) = terminated(rest, user_id_bytes_max).map_err(|TooLong| Error::Limit(Exceeded::UserId))? else {
        return Ok(None);
    };
    let port = u16::from_be_bytes([head[2], head[3]]);
    let mut length = HEAD_BYTES + user_id.len() + 1;
    let host = match [head[4], head[5], head[6], head[7]] {
        [0, 0, 0, last] if last != 0 => {
            let rest = &bytes[length..];
            let name = terminated(rest, NAME_BYTES_MAX).map_err(|TooLong| Error::Limit(Exceeded::Name))?;
            let Some(name) = name else { return Ok(None) };
            length += name.len() + 1;
            Host::received(name).ok_or(Violation::Name)?
        }
        octets => Host::Ip(IpAddr::V4(octets.into())),
    };
    let request = Request { version: Version::Four, target: Target::of(host, port), user_id: user_id.into() };
    Ok(Some((request, length)))
}

struct TooLong;

/// The bytes before the zero byte, if it has come.
fn terminated(bytes: &[u8], bytes_max: usize) -> Result<Option<&[u8]>, TooLong> {
    match bytes.iter().take(bytes_max + 1).position(|&byte| byte == 0) {
        Some(end) => Ok(Some(&bytes[..end])),
        None if bytes.len() > bytes_max => Err(TooLong),
        None => Ok(None),
    }
}

/// The bytes of a request; the caller has checked that the version has this target.
pub(crate) fn write_request(target: &Target, user_id: &[u8]) -> Vec<u8> {
    let (ip, name) = match target.host() {
        Host::Ip(IpAddr::V4(ip)) => (*ip, None),
        Host::Ip(IpAddr::V6(_)) => unreachable!("the client refuses IPv6 in version 4"),
        Host::Name(name) => (NAME_FOLLOWS, Some(name)),
    };
    let mut bytes = vec![VERSION, CONNECT];
    bytes.extend_from_slice(&target.port().to_be_bytes());
    bytes.extend_from_slice(&ip.octets());
    bytes.extend_from_slice(user_id);
    bytes.push(0);
    if let Some(name) = name {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// The reply to a client.
pub(crate) fn write_reply(result: Result<SocketAddr, Refusal>) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    match result {
        Ok(bound) => {
            bytes[1] = GRANTED;
            bytes[2..4].copy_from_slice(&bound.port().to_be_bytes());
            if let IpAddr::V4(ip) = bound.ip() {
                bytes[4..].copy_from_slice(&ip.octets());
            }
        }
        Err(refusal) => bytes[1] = refusal.v4_code(),
    }
    bytes
}

/// The reply of a server, once it is complete.
pub(crate) fn reply(bytes: &[u8]) -> Result<Option<Parsed<Result<Target, Refusal>>>, Violation> {
    if let Some(&first) = bytes.first()
        && first != 0
    {
        return Err(Violation::Version(first));
    }
    let Some(&code) = bytes.get(1) else { return Ok(None) };
    if code != GRANTED {
        let refusal = Refusal::from_v4(code).ok_or(Violation::Code(code))?;
        return Ok(Some((Err(refusal), bytes.len().min(HEAD_BYTES))));
    }
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let ip = Ipv4Addr::new(head[4], head[5], head[6], head[7]);
    let bound = Target::of(Host::Ip(ip.into()), u16::from_be_bytes([head[2], head[3]]));
    Ok(Some((Ok(bound), HEAD_BYTES)))
}

/// A reply, and a request up to its user id.
const HEAD_BYTES: usize = 8;

const GRANTED: u8 = 90;

/// An address that cannot be reached, in place of one: the proxy resolves the name behind the user id.
const NAME_FOLLOWS: Ipv4Addr = Ipv4Addr::new(0, 0, 0, 1);
