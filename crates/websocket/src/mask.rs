//! Masking (RFC 6455 §5.3), and the keys of a client.
//!
//! The loops are plain code over arrays, which the compiler turns into vector instructions of the target.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// A key at a position of its payload.
pub(crate) type Mask = [u8; 4];

/// XORs `bytes` with `mask`, and turns the mask to the position behind them.
pub(crate) fn apply(bytes: &mut [u8], mask: &mut Mask) {
    let pattern = u64::from_ne_bytes([mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3]]);
    let (blocks, rest) = bytes.as_chunks_mut::<BLOCK_BYTES>();
    for block in blocks {
        for word in block.as_chunks_mut::<8>().0 {
            *word = (u64::from_ne_bytes(*word) ^ pattern).to_ne_bytes();
        }
    }
    let (words, tail) = rest.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ pattern).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(pattern.to_ne_bytes()) {
        *byte ^= key;
    }
    mask.rotate_left(bytes.len() % 4);
}

/// The same for a short payload as a whole.
#[inline]
pub(crate) fn apply_short(bytes: &mut [u8], mask: Mask) {
    let key = u32::from_ne_bytes(mask);
    let pattern = u64::from(key) << 32 | u64::from(key);
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ pattern).to_ne_bytes();
    }
    let (half, tail) = tail.as_chunks_mut::<4>();
    for half in half {
        *half = (u32::from_ne_bytes(*half) ^ key).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(mask) {
        *byte ^= key;
    }
}

/// Copies `from` to `to`, masked. Both have the same length.
pub(crate) fn copy(from: &[u8], to: &mut [u8], mask: &mut Mask) {
    to.copy_from_slice(from);
    apply(to, mask);
}

/// A key that a peer cannot predict from earlier ones: a keyed hash, SipHash, of a counter. The key of the hash comes
/// from the system, once a thread.
pub(crate) fn new_key() -> Mask {
    KEYS.with(|(keyed, counter)| {
        counter.set(counter.get().wrapping_add(1));
        (keyed.hash_one(counter.get()) as u32).to_ne_bytes()
    })
}

thread_local! {
    static KEYS: (RandomState, Cell<u64>) = (RandomState::new(), Cell::new(0));
}

/// Bytes of one round of the loop.
const BLOCK_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_every_split_is_masked_like_byte_by_byte() {
        let key = [0x12, 0xFE, 0x00, 0x81];
        for length in 0..200 {
            let plain: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let expected: Vec<u8> = plain.iter().enumerate().map(|(at, byte)| byte ^ key[at % 4]).collect();
            for split in 0..=length {
                let (mut bytes, mut mask) = (plain.clone(), key);
                let (first, second) = bytes.split_at_mut(split);
                apply(first, &mut mask);
                apply(second, &mut mask);
                assert_eq!(bytes, expected, "{length} bytes, split at {split}");
            }
        }
    }

    #[test]
    fn a_short_payload_is_masked_like_any_other() {
        for length in 0..126 {
            let plain: Vec<u8> = (0..length).collect();
            let (mut short, mut usual) = (plain.clone(), plain);
            apply_short(&mut short, [0x12, 0xFE, 0x00, 0x81]);
            apply(&mut usual, &mut [0x12, 0xFE, 0x00, 0x81]);
            assert_eq!(short, usual, "{length} bytes");
        }
    }

    #[test]
    fn keys_differ() {
        let keys: std::collections::HashSet<_> = (0..1_000).map(|_| new_key()).collect();
        assert!(keys.len() > 990, "{}", keys.len());
    }
}
