//! Variable-length integers (RFC 9000 §16): the two highest bits of the first byte give the length.

/// Reads an integer at the start of `bytes`. Returns it and its length in bytes, or `None` if it is incomplete.
///
/// ```
/// use tidegate::http3::varint;
///
/// assert_eq!(varint::read(&[0x7b, 0xbd, 7]), Some((15_293, 2)));
/// assert_eq!(varint::read(&[0x7b]), None);
/// ```
#[must_use]
#[inline]
pub fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let &first = bytes.first()?;
    let length = 1_usize << (first >> 6);
    let whole = bytes.get(..length)?;
    let value = whole.iter().skip(1).fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

/// Bytes of the shortest form of `value`.
#[must_use]
pub const fn encoded_bytes(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Appends `value` in its shortest form. A value above [`MAX`] is written as [`MAX`].
pub fn write(value: u64, out: &mut Vec<u8>) {
    let (bytes, start) = encode(value);
    out.extend_from_slice(&bytes[start..]);
}

/// The shortest form of `value` is at the end of the array, from the index on.
pub(crate) fn encode(value: u64) -> ([u8; 8], usize) {
    let value = value.min(MAX);
    let length = encoded_bytes(value);
    let bytes = (value | (length.trailing_zeros() as u64) << (8 * length - 2)).to_be_bytes();
    (bytes, 8 - length)
}

/// The largest integer.
pub const MAX: u64 = (1 << 62) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard_hold() {
        for (wire, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_eq!(read(wire), Some((value, wire.len())));
            let mut out = Vec::new();
            write(value, &mut out);
            assert_eq!(out, wire);
        }
        assert_eq!(read(&[0x40, 0x25]), Some((37, 2)), "a longer form than necessary");
    }

    #[test]
    fn integers_of_every_length_are_read_as_written() {
        for value in (0..62).flat_map(|shift| [(1_u64 << shift) - 1, 1 << shift]).chain([MAX]) {
            let mut out = Vec::new();
            write(value, &mut out);
            assert_eq!((out.len(), read(&out)), (encoded_bytes(value), Some((value, out.len()))));
            for end in 0..out.len() {
                assert_eq!(read(&out[..end]), None);
            }
        }
        let mut out = Vec::new();
        write(u64::MAX, &mut out);
        assert_eq!(read(&out), Some((MAX, 8)));
    }
}
