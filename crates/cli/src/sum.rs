//! `Sum`: what /sum says of a body, so that a client can tell whether it arrived.

use std::fmt;

use crc32fast::Hasher;

/// The length of what was added, and its CRC-32, which is that of zlib and gzip (ITU-T V.42).
pub(crate) struct Sum {
    length: u64,
    remainder: Hasher,
}

impl Sum {
    pub(crate) fn new() -> Self {
        Self { length: 0, remainder: Hasher::new() }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.remainder.update(bytes);
    }
}

/// `LENGTH CRC`, the one decimal and the other hexadecimal.
impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {:08x}", self.length, self.remainder.clone().finalize())
    }
}

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
