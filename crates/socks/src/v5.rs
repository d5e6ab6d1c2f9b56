//! Version 5 (RFC 1928) and its authentication by user name and password (RFC 1929).
//!
//! ```text
//! client                                                    server
//! 5, count, methods                                         5, method
//! 1, length, user name, length, password                    1, 0 or another byte
//! 5, command, 0, type, address, port (2)                    5, code, 0, type, address, port (2)
//! ```
//!
//! Every length is one byte, so no message has more than 513 bytes, and one that arrives byte by byte may be read from
//! its beginning each time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::error::Violation;
use crate::message::{Credentials, Request, Version};
use crate::refusal::Refusal;
use crate::target::{Host, Target};

pub(crate) const VERSION: u8 = 5;
pub(crate) const CONNECT: u8 = 1;

/// Methods of authentication.
pub(crate) const METHOD_NONE: u8 = 0;
pub(crate) const METHOD_PASSWORD: u8 = 2;
pub(crate) const NO_METHOD: u8 = 0xFF;

/// The version of the exchange of RFC 1929.
pub(crate) const PASSWORD_VERSION: u8 = 1;

/// A parsed value, and its length on the wire.
pub(crate) type Parsed<T> = (T, usize);

/// The methods that a client offers.
pub(crate) fn greeting(bytes: &[u8]) -> Result<Option<Parsed<&[u8]>>, Violation> {
    let mut reader = Reader::new(bytes);
    reader.version(VERSION)?;
    let Some(methods) = reader.counted() else { return Ok(None) };
    Ok(Some((methods, reader.at)))
}

/// A user name and a password. Either may be empty: the application decides.
pub(crate) fn credentials(bytes: &[u8]) -> Result<Option<Parsed<Credentials>>, Violation> {
    let mut reader = Reader::new(bytes);
    reader.version(PASSWORD_VERSION)?;
    let Some(user) = reader.counted() else { return Ok(None) };
    let Some(password) = reader.counted() else { return Ok(None) };
    Ok(Some((Credentials { user: user.into(), password: password.into() }, reader.at)))
}

/// A client's request.
pub(crate) fn request(bytes: &[u8]) -> Result<Option<Parsed<Request>>, Violation> {
    let mut reader = Reader::new(bytes);
    reader.version(VERSION)?;
    match reader.byte() {
        None => return Ok(None),
        Some(CONNECT) => {}
        Some(command) => return Err(Violation::Command(command)),
    }
    let Some(target) = reader.reserved_and_address()? else { return Ok(None) };
    Ok(Some((Request { version: Version::Five, target, user_id: Box::default() }, reader.at)))
}

/// The method that a server selects.
pub(crate) fn method(bytes: &[u8]) -> Result<Option<Parsed<u8>>, Violation> {
    let mut reader = Reader::new(bytes);
    reader.version(VERSION)?;
    Ok(reader.byte().map(|method| (method, reader.at)))
}

/// Whether a server accepts the credentials.
pub(crate) fn verdict(bytes: &[u8]) -> Result<Option<Parsed<bool>>, Violation> {
    let mut reader = Reader::new(bytes);
    reader.version(PASSWORD_VERSION)?;
    Ok(reader.byte().map(|status| (status == 0, reader.at)))
}

/// The reply of a server. One that refuses is complete with its code, since nothing follows it.
pub(crate) fn reply(bytes: &[u8]) -> Result<Option<Parsed<Result<Target, Refusal>>>, Violation> {
    let mut reader = Reader::new(bytes);
    reader.version(VERSION)?;
    match reader.byte() {
        None => return Ok(None),
        Some(0) => {}
        Some(code) => return Ok(Some((Err(Refusal::from_v5(code)), reader.at))),
    }
    let Some(bound) = reader.reserved_and_address()? else { return Ok(None) };
    Ok(Some((Ok(bound), reader.at)))
}

/// The bytes of a request.
pub(crate) fn write_request(target: &Target) -> Vec<u8> {
    let mut bytes = vec![VERSION, CONNECT, 0];
    write_address(target, &mut bytes);
    bytes
}

/// The bytes of the credentials; the caller has checked their lengths.
pub(crate) fn write_credentials(credentials: &Credentials) -> Vec<u8> {
    let mut bytes = vec![PASSWORD_VERSION];
    for part in [&credentials.user, &credentials.password] {
        bytes.push(part.len() as u8);
        bytes.extend_from_slice(part);
    }
    bytes
}

/// The reply to a client.
pub(crate) fn write_reply(result: Result<SocketAddr, Refusal>) -> Vec<u8> {
    let (code, bound) = match result {
        Ok(bound) => (0, bound),
        Err(refusal) => (refusal.v5_code(), SocketAddr::from(([0; 4], 0))),
    };
    let mut bytes = vec![VERSION, code, 0];
    write_address(&bound.into(), &mut bytes);
    bytes
}

fn write_address(target: &Target, bytes: &mut Vec<u8>) {
    match target.host() {
        Host::Ip(IpAddr::V4(ip)) => {
            bytes.push(TYPE_IPV4);
            bytes.extend_from_slice(&ip.octets());
        }
        Host::Ip(IpAddr::V6(ip)) => {
            bytes.push(TYPE_IPV6);
            bytes.extend_from_slice(&ip.octets());
        }
        Host::Name(name) => {
            // A `Host` has names of at most 255 bytes.
            bytes.extend_from_slice(&[TYPE_NAME, name.len() as u8]);
            bytes.extend_from_slice(name.as_bytes());
        }
    }
    bytes.extend_from_slice(&target.port().to_be_bytes());
}

/// Reads fields from the front; `None` means that the bytes end within one.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at + count)?;
        self.at += count;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    /// Checks the version, if it is there.
    fn version(&mut self, expected: u8) -> Result<(), Violation> {
        match self.byte() {
            Some(byte) if byte != expected => Err(Violation::Version(byte)),
            _ => Ok(()),
        }
    }

    /// A length of one byte, and so many bytes.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let count = self.byte()?;
        self.take(count.into())
    }

    /// The fields from the reserved byte to the port. Each is checked as soon as it is there.
    fn reserved_and_address(&mut self) -> Result<Option<Target>, Violation> {
        match self.byte() {
            None => return Ok(None),
            Some(0) => {}
            Some(_) => return Err(Violation::Reserved),
        }
        let host = match self.byte() {
            None => return Ok(None),
            Some(TYPE_IPV4) => self.array().map(|octets: [u8; 4]| Host::Ip(Ipv4Addr::from(octets).into())),
            Some(TYPE_IPV6) => self.array().map(|octets: [u8; 16]| Host::Ip(Ipv6Addr::from(octets).into())),
            Some(TYPE_NAME) => match self.counted() {
                None => None,
                Some(name) => Some(Host::received(name).ok_or(Violation::Name)?),
            },
            Some(kind) => return Err(Violation::AddressType(kind)),
        };
        let Some(host) = host else { return Ok(None) };
        Ok(self.array().map(|port| Target::of(host, u16::from_be_bytes(port))))
    }
}

const TYPE_IPV4: u8 = 1;
const TYPE_NAME: u8 = 3;
const TYPE_IPV6: u8 = 4;
