//! The Huffman code of strings (RFC 7541 §5.2, RFC 9204 §4.1.2), both ways by tables.
//!
//! A decoder is a state machine that takes four bits at a time: a state is a node of the code's tree, and as no code is
//! shorter than five bits, four bits complete at most one byte. The compiler makes the machine's table from the code.

use crate::coding_error::CodingError;
use crate::huffman_codes::{CODES, LENGTHS};

/// Appends the decoded bytes of `coded` to `out`.
///
/// # Errors
/// [`CodingError::Huffman`] for the code of the end of a string, and for padding that is not its beginning or has more than
/// seven bits.
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), CodingError> {
    let start = out.len();
    // No code is shorter than five bits.
    out.resize(start + coded.len() * 8 / 5 + 1, 0);
    let (decoded, mut length) = (&mut out[start..], 0);
    let mut state = Transition { next: ROOT, byte: 0, flags: MAY_END };
    let mut fails = 0;
    for &byte in coded {
        for bits in [byte >> 4, byte & 15] {
            state = MACHINE[usize::from(state.next)][usize::from(bits)];
            // A byte that is not complete is overwritten by the next one.
            decoded[length] = state.byte;
            length += usize::from(state.flags & COMPLETES);
            fails |= state.flags & FAILS;
        }
    }
    out.truncate(start + length);
    if fails == 0 && state.flags & MAY_END != 0 { Ok(()) } else { Err(CodingError::Huffman) }
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

/// The effect of four bits in a state.
#[derive(Clone, Copy)]
struct Transition {
    next: u8,
    byte: u8,
    flags: u8,
}

/// A byte is complete.
const COMPLETES: u8 = 1;
/// The string may end here: the bits since the last byte are at most seven ones.
const MAY_END: u8 = 2;
/// No string has these bits.
const FAILS: u8 = 4;

/// The state before a byte.
const ROOT: u8 = 0;

/// A code of 257 symbols has 256 nodes with two branches each.
const NODES: usize = 256;

static MACHINE: [[Transition; 16]; NODES] = machine();

const fn machine() -> [[Transition; 16]; NODES] {
    let (tree, padding) = tree();
    let mut machine = [[Transition { next: 0, byte: 0, flags: FAILS }; 16]; NODES];
    let mut node = 0;
    while node < NODES {
        let mut bits = 0;
        while bits < 16 {
            machine[node][bits] = transition(&tree, &padding, node, bits);
            bits += 1;
        }
        node += 1;
    }
    machine
}

const fn transition(tree: &[[u16; 2]; NODES], padding: &[bool; NODES], node: usize, bits: usize) -> Transition {
    let (mut at, mut byte, mut flags, mut left) = (node, 0, 0, 4);
    while left > 0 {
        left -= 1;
        let branch = tree[at][bits >> left & 1];
        if branch == END {
            return Transition { next: 0, byte, flags: FAILS };
        }
        if branch & LEAF != 0 {
            byte = branch as u8;
            flags |= COMPLETES;
            at = ROOT as usize;
        } else {
            at = branch as usize;
        }
    }
    if padding[at] {
        flags |= MAY_END;
    }
    Transition { next: at as u8, byte, flags }
}

/// A branch that ends in a byte, which is in its lowest bits.
const LEAF: u16 = 0x8000;
/// The branch that ends in the end of a string.
const END: u16 = 0xffff;

/// The branches of each node, and whether a string may end there.
const fn tree() -> ([[u16; 2]; NODES], [bool; NODES]) {
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
    let mut padding = [false; NODES];
    let (mut at, mut depth) = (0, 0);
    while depth < 8 {
        padding[at] = true;
        at = tree[at][1] as usize;
        depth += 1;
    }
    (tree, padding)
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
        assert_eq!(decoded(&[]), Ok(Vec::new()));
    }

    proptest! {
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
