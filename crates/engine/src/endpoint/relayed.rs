//! A datagram in bytes, for another process: a header of fixed length, and the payload.
//!
//! Both processes run on the same machine, and have the same version of the handover.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU16;

use bytes::Bytes;
use tidegate_buffer::{Datagram, Ecn, LocalAddress};

use super::steered::ForwardedDatagram;

/// Appends a datagram.
pub(super) fn encode(datagram: &Datagram, into: &mut Vec<u8>) {
    let (scope, flow) = match datagram.source {
        SocketAddr::V4(_) => (0, 0),
        SocketAddr::V6(source) => (source.scope_id(), source.flowinfo()),
    };
    into.extend((datagram.payload.len() as u32).to_be_bytes());
    encode_ip(Some(datagram.source.ip()), into);
    into.extend(datagram.source.port().to_be_bytes());
    into.extend(scope.to_be_bytes());
    into.extend(flow.to_be_bytes());
    encode_ip(datagram.local.address, into);
    into.extend(datagram.local.interface.to_be_bytes());
    into.extend([datagram.ecn.bits(), u8::from(datagram.ttl.is_some()), datagram.ttl.unwrap_or(0)]);
    into.extend(datagram.segment_size.map_or(0, NonZeroU16::get).to_be_bytes());
    into.extend_from_slice(&datagram.payload);
}

/// The datagrams of a message; those before a malformed one.
pub(super) fn decode(message: &Bytes) -> Vec<ForwardedDatagram> {
    let mut rest = message.clone();
    let mut datagrams = Vec::new();
    while let Some(datagram) = decode_one(&mut rest) {
        datagrams.push(datagram);
    }
    datagrams
}

fn decode_one(rest: &mut Bytes) -> Option<ForwardedDatagram> {
    let mut header = rest.get(..HEADER_BYTES)?;
    let length = u32::from_be_bytes(take(&mut header)?) as usize;
    let source = decode_ip(&mut header)??;
    let port = u16::from_be_bytes(take(&mut header)?);
    let (scope, flow) = (u32::from_be_bytes(take(&mut header)?), u32::from_be_bytes(take(&mut header)?));
    let address = decode_ip(&mut header)?;
    let interface = u32::from_be_bytes(take(&mut header)?);
    let [ecn, has_ttl, ttl] = take(&mut header)?;
    let segment_size = NonZeroU16::new(u16::from_be_bytes(take(&mut header)?));
    let source = match source {
        IpAddr::V4(ip) => SocketAddr::from((ip, port)),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, flow, scope).into(),
    };
    let end = HEADER_BYTES.checked_add(length).filter(|end| *end <= rest.len())?;
    let payload = rest.split_to(end).slice(HEADER_BYTES..);
    Some(ForwardedDatagram {
        payload,
        source,
        local: LocalAddress { address, interface },
        ecn: Ecn::from_traffic_class(ecn),
        ttl: (has_ttl > 0).then_some(ttl),
        segment_size,
        truncated: false,
        ancillary: None,
    })
}

fn take<const N: usize>(header: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = header.split_first_chunk()?;
    *header = rest;
    Some(*taken)
}

/// The family of an address, and 16 bytes.
fn encode_ip(ip: Option<IpAddr>, into: &mut Vec<u8>) {
    let (family, octets) = match ip {
        None => (0, [0; 16]),
        Some(IpAddr::V4(ip)) => (4, ip.to_ipv6_mapped().octets()),
        Some(IpAddr::V6(ip)) => (6, ip.octets()),
    };
    into.push(family);
    into.extend(octets);
}

fn decode_ip(header: &mut &[u8]) -> Option<Option<IpAddr>> {
    let [family] = take(header)?;
    let octets = Ipv6Addr::from(take::<16>(header)?);
    match family {
        0 => Some(None),
        4 => octets.to_ipv4_mapped().map(|ip| Some(ip.into())),
        6 => Some(Some(octets.into())),
        _ => None,
    }
}

/// The length; the address of the source, its port, scope and flow; the local address and its interface; the mark of
/// congestion, the hop limit, and the length of the segments of a run.
const HEADER_BYTES: usize = 4 + (17 + 2 + 4 + 4) + (17 + 4) + 3 + 2;

#[cfg(test)]
mod tests {
    use tidegate_buffer::Pool;

    use super::*;

    #[test]
    fn a_datagram_keeps_everything_and_a_malformed_one_ends_the_message() {
        let pool = Pool::new();
        let v6 = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7, 3, 9);
        let sources = [SocketAddr::from(([192, 0, 2, 7], 4433)), v6.into()];
        let locals = [Some(IpAddr::from([10, 0, 0, 1])), Some(Ipv6Addr::LOCALHOST.into()), None];
        let mut message = Vec::new();
        let mut expected = Vec::new();
        for (number, (source, address)) in
            sources.iter().flat_map(|source| locals.map(|local| (*source, local))).enumerate()
        {
            let datagram = Datagram {
                local: LocalAddress { address, interface: 4 },
                ecn: Ecn::Congested,
                ttl: (number % 2 == 0).then_some(64),
                segment_size: NonZeroU16::new(number as u16),
                ..Datagram::new(pool.copy(&vec![number as u8; 100 * number]), source)
            };
            encode(&datagram, &mut message);
            expected.push(datagram);
        }
        let decoded = decode(&Bytes::from(message.clone()));
        assert_eq!(decoded.len(), expected.len());
        for (is, was) in decoded.iter().zip(&expected) {
            assert_eq!((&is.payload[..], is.source, is.local), (&was.payload[..], was.source, was.local));
            assert_eq!((is.ecn, is.ttl, is.segment_size), (was.ecn, was.ttl, was.segment_size));
        }
        for cut in 0..message.len() {
            assert!(decode(&Bytes::copy_from_slice(&message[..cut])).len() < expected.len());
        }
        message[4] = 5;
        assert!(decode(&Bytes::from(message)).is_empty(), "no such family");
    }
}
