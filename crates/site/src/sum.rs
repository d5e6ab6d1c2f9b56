//! `Sum`: the length and checksum that /sum returns, so that a client can verify that its body arrived intact.

use std::fmt;

use crc32fast::Hasher;

/// The length of the bytes added, and their CRC-32 as in zlib and gzip (ITU-T V.42).
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

/// `LENGTH CRC`: the length in decimal, the CRC in hexadecimal.
impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {:08x}", self.length, self.remainder.clone().finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_equals_zlibs_for_every_split() {
        assert_eq!(Sum::new().to_string(), "0 00000000\n");
        for pieces in [&["123456789"][..], &["1234", "", "56789"]] {
            let mut sum = Sum::new();
            pieces.iter().for_each(|piece| sum.add(piece.as_bytes()));
            assert_eq!(sum.to_string(), "9 cbf43926\n");
        }
    }
}
