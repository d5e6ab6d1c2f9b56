//! Packets of peers that a test writes itself: their protection (RFC 9001 §5), and variable-length integers.

use tidegate::tls::rustls::quic::Keys;

/// Protects a packet: `header` ends before its number, which has four bytes.
pub(crate) fn seal(keys: &Keys, header: Vec<u8>, number: u64, mut body: Vec<u8>) -> Vec<u8> {
    let mut packet = header;
    let number_at = packet.len();
    packet.extend((number as u32).to_be_bytes());
    let tag = keys.local.packet.encrypt_in_place(number, &packet, &mut body).unwrap();
    packet.extend(&body);
    packet.extend(tag.as_ref());
    let sample = packet[number_at + 4..number_at + 4 + keys.local.header.sample_len()].to_vec();
    let (first, rest) = packet.split_at_mut(1);
    keys.local.header.encrypt_in_place(&sample, &mut first[0], &mut rest[number_at - 1..number_at + 3]).unwrap();
    packet
}

/// Takes the protection off a header. Returns the bytes of the number that were sent, and how many they are.
pub(crate) fn open_header(keys: &Keys, number_at: usize, packet: &mut [u8]) -> Option<(u64, usize)> {
    let sample = packet.get(number_at + 4..number_at + 4 + keys.remote.header.sample_len())?.to_vec();
    let (first, rest) = packet.split_at_mut(1);
    let number_bytes = &mut rest[number_at - 1..number_at + 3];
    keys.remote.header.decrypt_in_place(&sample, &mut first[0], number_bytes).ok()?;
    let length = usize::from(first[0] & 3) + 1;
    Some((number_bytes[..length].iter().fold(0, |number, byte| number << 8 | u64::from(*byte)), length))
}

/// A variable-length integer (RFC 9000 §16).
pub(crate) fn varint(value: u64) -> Vec<u8> {
    match value {
        0..0x40 => vec![value as u8],
        0x40..0x4000 => (0x4000 | value as u16).to_be_bytes().to_vec(),
        0x4000..0x4000_0000 => (0x8000_0000 | value as u32).to_be_bytes().to_vec(),
        _ => (0xc000_0000_0000_0000 | value).to_be_bytes().to_vec(),
    }
}

/// Takes a value from the front.
pub(crate) fn take(rest: &mut &[u8]) -> u64 {
    let (value, length) = read_varint(rest);
    *rest = &rest[length..];
    value
}

pub(crate) fn skip(rest: &mut &[u8], count: u64) {
    for _ in 0..count {
        take(rest);
    }
}

/// A value, and how many bytes it has.
pub(crate) fn read_varint(bytes: &[u8]) -> (u64, usize) {
    let length = 1 << (bytes[0] >> 6);
    let first = u64::from(bytes[0] & 0x3f);
    (bytes[1..length].iter().fold(first, |value, byte| value << 8 | u64::from(*byte)), length)
}
