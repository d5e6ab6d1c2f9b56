//! HTTP datagrams in QUIC DATAGRAM frames (RFC 9297 §2.1): a quarter of the stream's number, then the payload.

use crate::error::{Error, Violation};
use crate::varint;

/// The number of the request stream, and the payload, of a QUIC datagram.
///
/// # Errors
/// [`Violation::Datagram`] if the number is missing or too large: the connection ends with H3_DATAGRAM_ERROR.
///
/// ```
/// use tidegate::http3::datagram;
///
/// let mut wire = Vec::new();
/// datagram::write(8, b"tide", &mut wire);
/// assert_eq!(datagram::read(&wire), Ok((8, &b"tide"[..])));
/// ```
pub fn read(datagram: &[u8]) -> Result<(u64, &[u8]), Error> {
    let (quarter, length) = varint::read(datagram).ok_or(Violation::Datagram)?;
    if quarter > varint::MAX / 4 {
        return Err(Violation::Datagram.into());
    }
    Ok((quarter * 4, &datagram[length..]))
}

/// Appends the datagram of a request stream.
pub fn write(stream: u64, payload: &[u8], out: &mut Vec<u8>) {
    varint::write(stream / 4, out);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_no_stream_has_is_refused() {
        assert_eq!(read(&[]), Err(Violation::Datagram.into()));
        assert_eq!(read(&[0xd0, 0, 0, 0, 0, 0, 0, 0]), Err(Violation::Datagram.into()), "2^60");
        assert_eq!(read(&[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), Ok(((1 << 62) - 4, &[][..])));
    }
}
