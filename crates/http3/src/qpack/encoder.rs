//! From fields to a field section (RFC 9204 §4.5).

use tidegate_http_stream::{huffman, integer};

use super::static_table::{self, Found};

/// Appends the prefix of a field section: a Required Insert Count of 0, and a base of 0.
pub fn encode_prefix(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Appends a field. The name is in lower case. A secret is never to be indexed, here and on every further hop (RFC 9204
/// §7.1.3).
pub fn encode(name: &[u8], value: &[u8], is_secret: bool, out: &mut Vec<u8>) {
    let never_indexed = u8::from(is_secret);
    match static_table::find(name, value) {
        Found::Field(index) => return integer::write(index, 6, 0xc0, out),
        Found::Name(index) => integer::write(index, 4, 0x50 | never_indexed << 5, out),
        Found::Nothing => write_string(name, 3, 0x20 | never_indexed << 4, out),
    }
    write_string(value, 7, 0, out);
}

/// Appends the status of a response.
pub fn encode_status(status: u16, out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    encode(b":status", digits.format(status).as_bytes(), false, out);
}

/// A string, in the shorter of its two forms. The bit in front of the length says whether it is coded.
fn write_string(string: &[u8], prefix_bits: u32, first: u8, out: &mut Vec<u8>) {
    let coded = huffman::encoded_bytes(string);
    if coded < string.len() {
        integer::write(coded as u32, prefix_bits, first | 1 << prefix_bits, out);
        huffman::encode(string, out);
    } else {
        integer::write(string.len() as u32, prefix_bits, first, out);
        out.extend_from_slice(string);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(name: &str, value: &str, is_secret: bool) -> Vec<u8> {
        let mut out = Vec::new();
        encode(name.as_bytes(), value.as_bytes(), is_secret, &mut out);
        out
    }

    #[test]
    fn fields_have_the_shortest_form() {
        assert_eq!(encoded(":method", "GET", false), [0xc0 | 17]);
        assert_eq!(encoded("x-frame-options", "sameorigin", false), [0xff, 98 - 63]);
        assert_eq!(encoded(":path", "{", false), [0x51, 1, b'{']);
        assert_eq!(encoded("age", "{", true), [0x72, 1, b'{']);
        assert_eq!(encoded("{", "}", false), [0x21, b'{', 1, b'}']);
        assert_eq!(encoded("{", "}", true), [0x31, b'{', 1, b'}']);
        assert_eq!(encoded("server", "{", false), [0x5f, 92 - 15, 1, b'{']);
    }

    #[test]
    fn a_status_is_one_of_the_table_or_a_literal() {
        let mut out = Vec::new();
        encode_status(200, &mut out);
        assert_eq!(out, [0xc0 | 25]);
        out.clear();
        encode_status(599, &mut out);
        assert_eq!(out[..2], [0x5f, 24 - 15]);
    }
}
