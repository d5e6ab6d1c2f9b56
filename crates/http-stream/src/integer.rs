//! Integers with a prefix (RFC 7541 §5.1, RFC 9204 §4.1.1).

use crate::coding_error::CodingError;

/// Reads an integer whose first byte has `prefix_bits`, and removes it from `bytes`.
///
/// # Errors
/// [`CodingError::Truncated`], or [`CodingError::Integer`] if it is larger than [`INTEGER_MAX`] or longer than
/// [`BYTES_MAX`] bytes.
#[inline]
pub fn read(bytes: &mut &[u8], prefix_bits: u32) -> Result<u32, CodingError> {
    let (&first, rest) = bytes.split_first().ok_or(CodingError::Truncated)?;
    *bytes = rest;
    let most = (1_u32 << prefix_bits) - 1;
    let prefix = u32::from(first) & most;
    if prefix < most { Ok(prefix) } else { read_rest(bytes, most) }
}

fn read_rest(bytes: &mut &[u8], prefix: u32) -> Result<u32, CodingError> {
    let mut value = u64::from(prefix);
    for (index, &byte) in bytes.iter().enumerate().take(BYTES_MAX - 1) {
        value += u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return u32::try_from(value).ok().filter(|value| *value <= INTEGER_MAX).ok_or(CodingError::Integer);
        }
    }
    Err(if bytes.len() < BYTES_MAX - 1 { CodingError::Truncated } else { CodingError::Integer })
}

/// Writes an integer whose first byte has `prefix_bits`, with `first` in its other bits.
#[inline]
pub fn write(value: u32, prefix_bits: u32, first: u8, out: &mut Vec<u8>) {
    let most = (1_u32 << prefix_bits) - 1;
    if value < most {
        out.push(first | value as u8);
        return;
    }
    out.push(first | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The largest integer that is read. Nothing in a field section is as long.
pub const INTEGER_MAX: u32 = 1 << 28;

/// The most bytes of an integer, its first one included: five bytes have more than `INTEGER_MAX`, and an encoder that
/// pads with zero bits has one or two to spare.
pub const BYTES_MAX: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard_hold() {
        for (value, prefix_bits, wire) in [(10, 5, &[10_u8][..]), (1337, 5, &[31, 154, 10]), (42, 8, &[42])] {
            let mut out = Vec::new();
            write(value, prefix_bits, 0, &mut out);
            assert_eq!(out, wire);
            assert_eq!(read(&mut &wire[..], prefix_bits), Ok(value));
        }
    }

    #[test]
    fn integers_of_every_length_are_read_as_written() {
        for prefix_bits in 1..=8 {
            for value in (0..29).flat_map(|shift| [(1_u32 << shift) - 1, 1 << shift]) {
                let mut out = Vec::new();
                write(value, prefix_bits, 0, &mut out);
                assert_eq!(read(&mut &out[..], prefix_bits), Ok(value));
                for end in 0..out.len() {
                    assert_eq!(read(&mut &out[..end], prefix_bits), Err(CodingError::Truncated));
                }
            }
        }
    }

    #[test]
    fn an_integer_without_end_is_an_error() {
        assert_eq!(read(&mut &[0xff; 100][..], 7), Err(CodingError::Integer));
        assert_eq!(read(&mut &[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00][..], 7), Err(CodingError::Integer));
        assert_eq!(read(&mut &[0x7f, 0xff, 0xff, 0xff, 0xff, 0x7f][..], 7), Err(CodingError::Integer));
        assert_eq!(read(&mut &[0x7f, 0x80, 0x80, 0x00][..], 7), Ok(127));
    }
}
