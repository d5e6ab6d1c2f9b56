//! Version 2: a signature, a command, a family, a length, addresses, and TLVs.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::crc32c;
use crate::error::{Error, Exceeded, Violation};
use crate::header::{Addresses, Header, Transport, UnixAddresses, Version};
use crate::policy::Limits;
use crate::tlv;

/// The first bytes of a header.
pub(crate) const START: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The bytes before the addresses.
pub(crate) const HEAD_BYTES: usize = 16;

/// A Unix address, padded with zeros.
pub(crate) const UNIX_ADDRESS_BYTES: usize = 108;

pub(crate) const LOCAL: u8 = 0x20;
pub(crate) const PROXY: u8 = 0x21;

/// The header at the beginning of `bytes`, which begin with the signature, and its length; `None` if it is incomplete.
/// The length is compared with its limit before the rest is awaited.
pub(crate) fn parse(bytes: &[u8], limits: &Limits) -> Result<Option<(Header, usize)>, Error> {
    let Some((head, _)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let [.., command, family, high, low] = *head;
    let length = HEAD_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if command >> 4 != 2 {
        return Err(Error::Peer(Violation::Version));
    }
    let is_local = match command {
        LOCAL => true,
        PROXY => false,
        _ => return Err(Error::Peer(Violation::Command)),
    };
    // A receiver ignores the family of LOCAL.
    let (family, transport) = if is_local { (0, Transport::Unspecified) } else { kinds(family)? };
    let address_bytes = ADDRESS_BYTES[usize::from(family)];
    if length < HEAD_BYTES + address_bytes {
        return Err(Error::Peer(Violation::AddressTruncated));
    }
    if length > usize::from(limits.header_bytes_max) {
        return Err(Error::Limit(Exceeded::HeaderBytes));
    }
    let Some(header) = bytes.get(..length) else { return Ok(None) };
    let (block, tlvs) = header[HEAD_BYTES..].split_at(address_bytes);
    // Bytes behind a header without addresses have no format.
    let tlvs = if address_bytes == 0 { &[] } else { tlvs };
    if let Some(at) = tlv::check(tlvs, limits.tlvs_max)? {
        let at = HEAD_BYTES + address_bytes + at;
        if header[at..at + 4] != crc32c::of_header(header, at).to_be_bytes() {
            return Err(Error::Peer(Violation::Checksum));
        }
    }
    let addresses = addresses(block);
    let tlvs = Box::from(tlvs);
    Ok(Some((Header { addresses, version: Version::Two, transport, is_local, tlvs }, length)))
}

/// The family, and the transport protocol. If one of them is unspecified, so are the addresses.
fn kinds(byte: u8) -> Result<(u8, Transport), Error> {
    let transport = match byte & 0xF {
        0 => Transport::Unspecified,
        1 => Transport::Stream,
        2 => Transport::Datagram,
        _ => return Err(Error::Peer(Violation::Transport)),
    };
    match byte >> 4 {
        0 => Ok((0, transport)),
        1..=3 if transport == Transport::Unspecified => Ok((0, transport)),
        family @ 1..=3 => Ok((family, transport)),
        _ => Err(Error::Peer(Violation::Family)),
    }
}

/// The bytes of both addresses and ports, for each family.
const ADDRESS_BYTES: [usize; 4] = [0, 12, 36, 2 * UNIX_ADDRESS_BYTES];

fn addresses(block: &[u8]) -> Addresses {
    let v4 = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&block[at..at + 4]).unwrap_or_default());
    let v6 = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&block[at..at + 16]).unwrap_or_default());
    let port = |at: usize| u16::from_be_bytes([block[at], block[at + 1]]);
    let unix = |at: usize| trimmed(&block[at..at + UNIX_ADDRESS_BYTES]).to_vec();
    match block.len() {
        12 => Addresses::v4(v4(0), v4(4), [port(8), port(10)]),
        36 => Addresses::v6(v6(0), v6(16), [port(32), port(34)]),
        216 => Addresses::Unix(Box::new(UnixAddresses { source: unix(0), destination: unix(UNIX_ADDRESS_BYTES) })),
        _ => Addresses::Unspecified,
    }
}

/// Without the zero bytes at its end.
fn trimmed(padded: &[u8]) -> &[u8] {
    let end = padded.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &padded[..end]
}
