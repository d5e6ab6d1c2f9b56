//! The Huffman code of strings (RFC 7541 §5.2, RFC 9204 §4.1.2), both ways by tables.
//!
//! A decoder looks up twelve bits at a time, which have the codes of two usual bytes: the letters, the digits and most signs of
//! fields have five or six bits. The few codes with more than twelve bits are found in the code's tree. The compiler makes both
//! tables from the code.

use crate::coding_error::CodingError;
use crate::huffman_codes::{CODES, LENGTHS};

/// Appends the decoded bytes of `coded` to `out`.
///
/// # Errors
/// [`CodingError::Huffman`] for the code of the end of a string, and for padding that is not its beginning or has more than
/// seven bits.
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), CodingError> {
    let start = out.len();
    // No code is shorter than five bits, and two bytes are written at a time.
    out.resize(start + coded.len() * 8 / 5 + 2, 0);
    let (decoded, mut length) = (&mut out[start..], 0);
    let mut bits = Bits { rest: coded, window: 0, count: 0 };
    let mut is_whole = true;
    while is_whole && bits.fill() >= PAIR_BITS {
        while bits.count >= PAIR_BITS {
            let Pair { bytes, first_bits, both_bits } = PAIRS[(bits.window >> (u64::BITS - PAIR_BITS)) as usize];
            if first_bits == 0 {
                match bits.take_long() {
                    Some(byte) => decoded[length] = byte,
                    None => is_whole = false,
                }
                length += usize::from(is_whole);
                break;
            }
            decoded[length..length + 2].copy_from_slice(&bytes);
            length += 1 + usize::from(both_bits > first_bits);
            bits.skip(both_bits.into());
        }
    }
    while is_whole && !bits.are_padding() {
        let Pair { bytes: [byte, _], first_bits, .. } = PAIRS[(bits.window >> (u64::BITS - PAIR_BITS)) as usize];
        is_whole = first_bits > 0 && u32::from(first_bits) <= bits.count;
        decoded[length] = byte;
        length += usize::from(is_whole);
        bits.skip(u32::from(first_bits).min(bits.count));
    }
    out.truncate(start + length);
    if is_whole { Ok(()) } else { Err(CodingError::Huffman) }
}

/// The bits of a coded string that are not decoded.
struct Bits<'a> {
    /// Bytes that are not in the window.
    rest: &'a [u8],
    /// The next bits, the first one in the highest place. Those behind them are zeros.
    window: u64,
    /// How many bits the window has.
    count: u32,
}

impl Bits<'_> {
    /// Has at least 32 bits in the window, or all that are left. Returns how many there are.
    #[inline]
    fn fill(&mut self) -> u32 {
        if self.count <= 32 {
            if let Some((next, rest)) = self.rest.split_first_chunk() {
                self.window |= u64::from(u32::from_be_bytes(*next)) << (32 - self.count);
                (self.rest, self.count) = (rest, self.count + 32);
            } else {
                for &byte in self.rest {
                    self.window |= u64::from(byte) << (56 - self.count);
                    self.count += 8;
                }
                self.rest = &[];
            }
        }
        self.count
    }

    #[inline]
    fn skip(&mut self, count: u32) {
        self.window <<= count;
        self.count -= count;
    }

    /// Whether all bits that are left are the beginning of the end of a string, and at most seven.
    fn are_padding(&self) -> bool {
        self.count < 8 && self.window == !(u64::MAX >> self.count)
    }

    /// The byte whose code is next, of any length.
    #[cold]
    fn take_long(&mut self) -> Option<u8> {
        // No code has more bits.
        let count = self.fill();
        let mut at = 0;
        for place in 0..count {
            match TREE[at][(self.window >> (63 - place) & 1) as usize] {
                END => return None,
                branch if branch & LEAF != 0 => {
                    self.skip(place + 1);
                    return Some(branch as u8);
                }
                branch => at = usize::from(branch),
            }
        }
        None
    }
}

/// How many bytes `bytes` have when they are coded.
#[must_use]
pub fn encoded_bytes(bytes: &[u8]) -> usize {
    let bits: usize = bytes.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the code of `bytes` to `out`.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0_u32);
    for &byte in bytes {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(CODES[usize::from(byte)]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        // Padding has the highest bits of the end of a string, which are ones.
        out.push((bits << (8 - count)) as u8 | (0xff >> count) as u8);
    }
}

/// The bytes whose codes are at the start of twelve bits.
#[derive(Clone, Copy)]
struct Pair {
    /// The first byte, and the second one if its code is whole as well.
    bytes: [u8; 2],
    /// The length of the first code; 0 if it is longer than twelve bits.
    first_bits: u8,
    /// The length of both codes, or of the first one.
    both_bits: u8,
}

/// The bits by which a pair is found.
const PAIR_BITS: u32 = 12;

static PAIRS: [Pair; 1 << PAIR_BITS] = pairs();

const fn pairs() -> [Pair; 1 << PAIR_BITS] {
    let mut pairs = [Pair { bytes: [0; 2], first_bits: 0, both_bits: 0 }; 1 << PAIR_BITS];
    let mut byte = 0;
    while byte < 256 {
        let length = LENGTHS[byte] as u32;
        if length <= PAIR_BITS {
            let first = (CODES[byte] as usize) << (PAIR_BITS - length);
            let mut at = first;
            while at < first + (1 << (PAIR_BITS - length)) {
                pairs[at] = Pair { bytes: [byte as u8, 0], first_bits: length as u8, both_bits: length as u8 };
                at += 1;
            }
        }
        byte += 1;
    }
    let mut at = 0;
    while at < 1 << PAIR_BITS {
        let first_bits = pairs[at].first_bits;
        let second = pairs[at << first_bits & ((1 << PAIR_BITS) - 1)];
        if first_bits > 0 && second.first_bits > 0 && (first_bits + second.first_bits) as u32 <= PAIR_BITS {
            pairs[at].bytes[1] = second.bytes[0];
            pairs[at].both_bits = first_bits + second.first_bits;
        }
        at += 1;
    }
    pairs
}

/// A code of 257 symbols has 256 nodes with two branches each.
const NODES: usize = 256;

static TREE: [[u16; 2]; NODES] = tree();

/// A branch that ends in a byte, which is in its lowest bits.
const LEAF: u16 = 0x8000;
/// The branch that ends in the end of a string.
const END: u16 = 0xffff;

/// The branches of each node. The first one is the root.
const fn tree() -> [[u16; 2]; NODES] {
    let (mut tree, mut used) = ([[END; 2]; NODES], 1);
    let mut byte = 0;
    while byte < 256 {
        let (mut at, mut left) = (0, LENGTHS[byte]);
        while left > 1 {
            left -= 1;
            let bit = (CODES[byte] >> left & 1) as usize;
            if tree[at][bit] == END {
                tree[at][bit] = used;
                used += 1;
            }
            at = tree[at][bit] as usize;
        }
        tree[at][(CODES[byte] & 1) as usize] = LEAF | byte as u16;
        byte += 1;
    }
    tree
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, CodingError> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    #[test]
    fn the_example_of_the_standard_holds() {
        let wire = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        let mut out = Vec::new();
        encode(b"www.example.com", &mut out);
        assert_eq!(out, wire);
        assert_eq!(decoded(&wire).as_deref(), Ok(&b"www.example.com"[..]));
    }

    #[test]
    fn padding_is_at_most_seven_ones() {
        assert_eq!(decoded(&[0x1f]), Ok(b"a".to_vec()), "00011 and three ones");
        assert_eq!(decoded(&[0x18]), Err(CodingError::Huffman), "zeros");
        assert_eq!(decoded(&[0x1f, 0xff]), Err(CodingError::Huffman), "eleven ones");
        assert_eq!(decoded(&[0xff]), Err(CodingError::Huffman), "eight ones");
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(CodingError::Huffman), "the end of a string");
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xfc]), Err(CodingError::Huffman), "the same, and a zero");
        assert_eq!(decoded(&[]), Ok(Vec::new()));
    }

    /// Decodes bit by bit.
    fn decoded_slowly(coded: &[u8]) -> Result<Vec<u8>, CodingError> {
        let (mut bytes, mut code, mut length) = (Vec::new(), 0_u32, 0_u8);
        for place in 0..coded.len() * 8 {
            (code, length) = (code << 1 | u32::from(coded[place / 8] >> (7 - place % 8) & 1), length + 1);
            if let Some(byte) = (0..256).find(|byte| (LENGTHS[*byte], CODES[*byte]) == (length, code)) {
                bytes.push(byte as u8);
                (code, length) = (0, 0);
            }
            if length > 30 {
                return Err(CodingError::Huffman);
            }
        }
        if length < 8 && code == (1 << length) - 1 { Ok(bytes) } else { Err(CodingError::Huffman) }
    }

    #[test]
    fn each_byte_is_decoded_before_and_behind_each_other_one() {
        for first in 0..=255 {
            for second in 0..=255 {
                let mut coded = Vec::new();
                encode(&[first, second], &mut coded);
                assert_eq!(decoded(&coded), Ok(vec![first, second]));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_as_bit_by_bit(bytes: Vec<u8>, ones in 0_usize..8) {
            let coded = [&bytes[..], &vec![0xff; ones][..]].concat();
            prop_assert_eq!(decoded(&coded), decoded_slowly(&coded));
        }

        #[test]
        fn encoded_bytes_are_decoded(bytes: Vec<u8>) {
            let mut coded = Vec::new();
            encode(&bytes, &mut coded);
            prop_assert_eq!(coded.len(), encoded_bytes(&bytes));
            prop_assert_eq!(decoded(&coded), Ok(bytes));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes: Vec<u8>) {
            if let Ok(decoded) = decoded(&bytes) {
                let mut again = Vec::new();
                encode(&decoded, &mut again);
                prop_assert_eq!(again, bytes, "no string has two codes");
            }
        }
    }
}
