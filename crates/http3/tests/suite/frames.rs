//! The frames of a peer that a test plays. The tests of the server and of the client use them as well.

use tidegate::http3::{qpack, varint};

pub(crate) const DATA: u64 = 0;
pub(crate) const HEADERS: u64 = 1;

pub(crate) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    varint::write(kind, &mut wire);
    varint::write(payload.len() as u64, &mut wire);
    wire.extend_from_slice(payload);
    wire
}

/// A HEADERS frame.
pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    qpack::encode_prefix(&mut section);
    for (name, value) in fields {
        qpack::encode(name.as_bytes(), value.as_bytes(), false, &mut section);
    }
    frame(HEADERS, &section)
}
