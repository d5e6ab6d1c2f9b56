//! CRC-32C (RFC 4960, appendix B), of a header, whose own field counts as zero.

/// The checksum of some pieces, one after the other.
pub(crate) fn checksum(pieces: &[&[u8]]) -> u32 {
    let bytes = pieces.iter().flat_map(|piece| piece.iter());
    !bytes.fold(u32::MAX, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

/// The checksum of a header whose checksum field is at `at`.
pub(crate) fn of_header(header: &[u8], at: usize) -> u32 {
    checksum(&[&header[..at], &[0; 4], &header[at + 4..]])
}

static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x82F6_3B78 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_checksums() {
        assert_eq!(checksum(&[b"123456789"]), 0xE306_9283);
        assert_eq!(checksum(&[b"1234", b"", b"56789"]), 0xE306_9283);
        // RFC 3720, B.4.
        assert_eq!(checksum(&[&[0; 32]]), 0x8A91_36AA);
        assert_eq!(checksum(&[&[0xFF; 32]]), 0x62A8_AB43);
    }
}
