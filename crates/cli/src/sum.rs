//! `Sum`: what /sum says of a body, so that a client can tell whether it arrived.

use std::fmt;

/// The length of what was added, and its CRC-32, which is that of zlib and gzip (ITU-T V.42).
pub(crate) struct Sum {
    length: u64,
    /// Inverted, as it is while it grows.
    remainder: u32,
}

impl Sum {
    pub(crate) fn new() -> Self {
        Self { length: 0, remainder: !0 }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.remainder = bytes.iter().fold(self.remainder, |remainder, &byte| {
            (remainder >> 8) ^ REMAINDERS[((remainder ^ u32::from(byte)) & 0xff) as usize]
        });
    }
}

/// `LENGTH CRC`, the one decimal and the other hexadecimal.
impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {:08x}", self.length, !self.remainder)
    }
}

/// What each byte leaves.
const REMAINDERS: [u32; 256] = {
    let mut remainders = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 == 1 { (remainder >> 1) ^ POLYNOMIAL } else { remainder >> 1 };
            bit += 1;
        }
        remainders[byte] = remainder;
        byte += 1;
    }
    remainders
};

/// The polynomial with its bits reversed.
const POLYNOMIAL: u32 = 0xedb8_8320;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_that_of_zlib_however_it_was_added_up() {
        assert_eq!(Sum::new().to_string(), "0 00000000\n");
        for pieces in [&["123456789"][..], &["1234", "", "56789"]] {
            let mut sum = Sum::new();
            pieces.iter().for_each(|piece| sum.add(piece.as_bytes()));
            assert_eq!(sum.to_string(), "9 cbf43926\n");
        }
    }
}
