//! The layout of the connection ids that this side chooses: 8 bytes.
//!
//! | byte | content |
//! |---|---|
//! | 0 | random |
//! | 1 | in the low seven bits the place of the endpoint's socket among those at its address, XORed with byte 0 |
//! | 2 | the generation of the process, XORed with byte 3 |
//! | 3 to 7 | random |
//!
//! So a program that sees a datagram knows the process and the socket that it is for, and two ids of a connection do not show
//! at a glance that they have the same (RFC 9000 §5.1).

use tidegate_codec::EndpointPlace;
use tidegate_sys::Steering;

/// Places that an id can tell apart.
const PLACE_BITS: u8 = 0x7f;

/// The place of an endpoint, as ids have it.
pub(crate) fn origin(generation: u8, place: usize) -> EndpointPlace {
    EndpointPlace { generation, place: place as u8 & PLACE_BITS }
}

/// Marks an id of random bytes.
pub(crate) fn mark(origin: EndpointPlace, id: &mut [u8]) {
    if let [first, second, third, fourth, ..] = id {
        *second = *second & !PLACE_BITS | (origin.place ^ *first) & PLACE_BITS;
        *third = origin.generation ^ *fourth;
    }
}

/// The endpoint that chose an id.
pub(crate) fn origin_of(id: &[u8]) -> Option<EndpointPlace> {
    let [first, second, third, fourth, _, _, _, _] = id else { return None };
    Some(EndpointPlace { generation: third ^ fourth, place: (first ^ second) & PLACE_BITS })
}

/// The endpoint of a datagram, as far as its header names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketDestination<'a> {
    /// An id that a server has chosen names the endpoint.
    Endpoint(EndpointPlace),
    /// The packet may have an id that the client has chosen.
    Establishing(&'a [u8]),
    /// Nothing.
    Unknown,
}

/// Reads the header of the first packet in a datagram (RFC 9000 §17). All packets of a datagram have the same id (§12.2).
pub(crate) fn destination(payload: &[u8]) -> PacketDestination<'_> {
    let Some((first, rest)) = payload.split_first() else { return PacketDestination::Unknown };
    if first & LONG_HEADER == 0 {
        return rest.get(..LENGTH).and_then(origin_of).map_or(PacketDestination::Unknown, PacketDestination::Endpoint);
    }
    let Some((VERSION_1, [length, rest @ ..])) = rest.split_first_chunk::<4>() else {
        return PacketDestination::Unknown;
    };
    let Some(id) = rest.get(..usize::from(*length)) else { return PacketDestination::Unknown };
    match first & TYPE_BITS {
        INITIAL | ZERO_RTT => PacketDestination::Establishing(id),
        HANDSHAKE => origin_of(id).map_or(PacketDestination::Unknown, PacketDestination::Endpoint),
        _ => PacketDestination::Unknown,
    }
}

/// Where datagrams have the place of the socket: those with a short header (RFC 9000 §17.3), whose connection id begins
/// behind the first byte. The id in a long header may be one that the client chose.
pub(crate) const STEERING: Steering =
    Steering { only_if: Some((0, LONG_HEADER, 0)), xor_offset: Some(1), offset: 2, mask: PLACE_BITS };

/// The highest bit of a datagram (RFC 9000 §17.2).
const LONG_HEADER: u8 = 0x80;

/// The type of a packet with a long header (RFC 9000 §17.2).
const TYPE_BITS: u8 = 0x30;
const INITIAL: u8 = 0x00;
const ZERO_RTT: u8 = 0x10;
const HANDSHAKE: u8 = 0x20;

const VERSION_1: &[u8; 4] = &[0, 0, 0, 1];

/// The length of the ids that this side chooses, in bytes.
pub(crate) const LENGTH: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_header_has_the_place_where_the_rule_reads_it() {
        for place in [0, 3, 127] {
            let mut datagram = [0x40, 0x5a, 0, 1, 2, 3, 4, 5, 6];
            mark(origin(1, place), &mut datagram[1..]);
            assert_eq!(STEERING.number(&datagram), Some(place));
            assert_eq!(destination(&datagram), PacketDestination::Endpoint(origin(1, place)));
            assert_eq!(destination(&datagram[..8]), PacketDestination::Unknown);
            datagram[0] = 0xc0;
            assert_eq!(STEERING.number(&datagram), None);
        }
    }

    #[test]
    fn an_id_says_which_endpoint_chose_it() {
        for first in 0..=u8::MAX {
            for origin in [origin(0, 0), origin(255, 127), origin(17, 5)] {
                let mut id = [first, 0x80, 1, first, 3, 4, 5, 6];
                mark(origin, &mut id);
                assert_eq!(origin_of(&id), Some(origin));
                assert_eq!((id[0], id[1] & 0x80, id[3]), (first, 0x80, first));
            }
        }
        assert_eq!(origin_of(&[1]), None);
        assert_eq!(origin_of(&[1; 9]), None);
    }

    #[test]
    fn a_long_header_names_an_endpoint_once_the_server_has_chosen_the_id() {
        let mut id = [9; LENGTH];
        mark(origin(7, 2), &mut id);
        let header = |first: u8, length: u8| [&[first, 0, 0, 0, 1, length][..], &id].concat();
        assert_eq!(destination(&header(0xe0, 8)), PacketDestination::Endpoint(origin(7, 2)));
        for first in [0xc0, 0xd0] {
            assert_eq!(destination(&header(first, 8)), PacketDestination::Establishing(&id));
            assert_eq!(destination(&header(first, 9)), PacketDestination::Unknown, "it is cut off");
        }
        assert_eq!(destination(&header(0xf0, 8)), PacketDestination::Unknown, "a Retry");
        let mut other = header(0xe0, 8);
        other[4] = 2;
        assert_eq!(destination(&other), PacketDestination::Unknown, "another version");
        assert_eq!(destination(&[]), PacketDestination::Unknown);
        assert_eq!(destination(&[0xc0]), PacketDestination::Unknown);
    }
}
