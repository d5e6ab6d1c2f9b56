//! Hostile input: random bytes, and mutations of valid ones.

use crate::random::Random;

/// The bytes of one round. Of four rounds one is random, one is random over the bytes that occur in `valid`, and two
/// are mutations of `valid`.
pub(super) fn bytes(round: usize, valid: &[u8], random: &mut Random) -> Vec<u8> {
    let length = random.below(RANDOM_BYTES_MAX);
    match round % 4 {
        0 => random.bytes(length),
        1 if !valid.is_empty() => (0..length).map(|_| *random.pick(valid)).collect(),
        _ => mutated(valid, random),
    }
}

fn mutated(valid: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for _ in 0..1 + random.below(MUTATIONS_MAX) {
        mutate(&mut bytes, random);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let end = at + random.below(bytes.len() - at + 1).min(SPAN_BYTES_MAX);
    match random.below(7) {
        // One byte becomes another, or a bit of it flips.
        0 if at < bytes.len() => bytes[at] = random.bits() as u8,
        1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        // A byte that means something to most parsers, as a value or as a part of a number.
        2 => bytes.insert(at, *random.pick(b"\0\x01\x7f\x80\xff\r\n \t:;,0f9-+\"")),
        3 => drop(bytes.drain(at..end)),
        // A span comes twice.
        4 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
        5 => bytes.truncate(at),
        // A span of large numbers.
        _ => bytes[at..end.min(at + 8)].fill(0xff),
    }
}

/// Bound of the number of random bytes, exclusive.
const RANDOM_BYTES_MAX: usize = 512;

/// Mutations of one round.
const MUTATIONS_MAX: usize = 4;

/// How many bytes one mutation removes or doubles at most.
const SPAN_BYTES_MAX: usize = 256;
