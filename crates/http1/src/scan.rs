//! Where runs of allowed bytes end, found sixteen bytes at a time.
//!
//! Three runs cover a head: the name of a field, the value of a field, and a request target. Each function gives the
//! first position, from `at` on, of a byte that does not belong, or the length of `bytes`. NUL belongs to none of the
//! runs, which is why a last short block can be filled up with it.

use wide::{i8x16, u8x16};

/// The end of a token (RFC 9110 §5.6.2): a method, or the name of a field.
#[inline(always)]
pub(crate) fn token_end(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = run_end(bytes, at, |block| !is_alphanumeric_or_dash(block));
        // The rarer characters of tokens are looked up; a colon, the usual end, is none of them.
        match bytes.get(at) {
            Some(b':') => return at,
            Some(&byte) if is_token(byte) => at += 1,
            _ => return at,
        }
    }
}

/// The end of a field's value: a control character other than the tabulator.
#[inline(always)]
pub(crate) fn value_end(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = run_end(bytes, at, is_control);
        match bytes.get(at) {
            Some(b'\t') => at += 1,
            _ => return at,
        }
    }
}

/// The end of a request target, and before it the end of its path, which is the first `?` or that of the target.
#[inline(always)]
pub(crate) fn target_ends(bytes: &[u8], at: usize) -> (usize, usize) {
    if let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<LANES>) {
        let block = u8x16::from(*block);
        let end = is_no_target(block).to_bitmask();
        if end != 0 {
            let path = end | block.simd_eq(u8x16::splat(b'?')).to_bitmask();
            return (at + path.trailing_zeros() as usize, at + end.trailing_zeros() as usize);
        }
    }
    let end = run_end(bytes, at, is_no_target);
    let path = bytes.get(at..end).and_then(|target| memchr::memchr(b'?', target));
    (path.map_or(end, |path| at + path), end)
}

/// Anything but visible ASCII, and `#`, with which a fragment would begin.
#[inline(always)]
fn is_no_target(block: u8x16) -> u8x16 {
    // Seen as signed, all that is not ASCII lies below the space too.
    !block.cast_signed().simd_gt(i8x16::splat(0x20)).cast_unsigned()
        | block.simd_eq(u8x16::splat(0x7f))
        | block.simd_eq(u8x16::splat(b'#'))
}

/// The end of what a registered name or an address may be made of (RFC 3986 §3.2.2), without colon and brackets, and
/// without the comma, with which somebody may have joined two hosts.
#[inline(always)]
pub(crate) fn host_end(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = run_end(bytes, at, |block| !is_alphanumeric_or_dash(block));
        match bytes.get(at) {
            Some(&byte) if CLASSES[byte as usize] & HOST != 0 => at += 1,
            _ => return at,
        }
    }
}

/// Whether `byte` may be part of a token.
#[inline]
pub(crate) const fn is_token(byte: u8) -> bool {
    CLASSES[byte as usize] & TOKEN != 0
}

/// What is known about the first sixteen bytes of a line, a bit for each: those that are neither letter, digit nor
/// dash, and those among them that are control characters. `None` if there are fewer bytes.
#[inline(always)]
pub(crate) fn line_start(bytes: &[u8], at: usize) -> Option<(u32, u32)> {
    let block = u8x16::from(*bytes.get(at..).and_then(<[u8]>::first_chunk::<LANES>)?);
    Some(((!is_alphanumeric_or_dash(block)).to_bitmask(), is_control(block).to_bitmask()))
}

#[inline(always)]
fn run_end(bytes: &[u8], at: usize, ends: impl Fn(u8x16) -> u8x16) -> usize {
    let (blocks, rest) = bytes.get(at..).unwrap_or_default().as_chunks::<LANES>();
    for (index, block) in blocks.iter().enumerate() {
        let found = ends(u8x16::from(*block)).to_bitmask();
        if found != 0 {
            return at + index * LANES + found.trailing_zeros() as usize;
        }
    }
    let mut block = [0; LANES];
    block[..rest.len()].copy_from_slice(rest);
    let found = ends(u8x16::from(block)).to_bitmask().trailing_zeros() as usize;
    at + blocks.len() * LANES + found.min(rest.len())
}

#[inline(always)]
fn is_control(block: u8x16) -> u8x16 {
    block.simd_le(u8x16::splat(0x1f)) | block.simd_eq(u8x16::splat(0x7f))
}

#[inline(always)]
fn is_alphanumeric_or_dash(block: u8x16) -> u8x16 {
    let letter = ((block | u8x16::splat(0x20)) - u8x16::splat(b'a')).simd_le(u8x16::splat(25));
    let digit = (block - u8x16::splat(b'0')).simd_le(u8x16::splat(9));
    letter | digit | block.simd_eq(u8x16::splat(b'-'))
}

const LANES: usize = 16;

const TOKEN: u8 = 1;
const HOST: u8 = 2;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let symbol = byte as u8;
        if symbol.is_ascii_alphanumeric() {
            classes[byte] = TOKEN | HOST;
        }
        byte += 1;
    }
    let (tokens, hosts) = (b"!#$%&'*+-.^_`|~", b"-._~!$&'()*+;=%");
    let mut index = 0;
    while index < tokens.len() {
        classes[tokens[index] as usize] |= TOKEN;
        index += 1;
    }
    index = 0;
    while index < hosts.len() {
        classes[hosts[index] as usize] |= HOST;
        index += 1;
    }
    classes
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte value, at every place of a block and of a short rest.
    fn ends_where(run: fn(&[u8], usize) -> usize, filler: u8, ends: impl Fn(u8) -> bool) {
        for length in [1, 5, 16, 17, 33, 40] {
            for place in 0..length {
                for byte in 0..=255 {
                    let mut bytes = vec![filler; length];
                    bytes[place] = byte;
                    let expected = if ends(byte) { place } else { length };
                    for at in 0..=place {
                        assert_eq!(run(&bytes, at), expected, "{byte:#x} at {place} of {length} from {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_token_ends_at_the_first_byte_that_is_none_of_its_characters() {
        let symbols = b"!#$%&'*+-.^_`|~";
        ends_where(token_end, b'x', |byte| !byte.is_ascii_alphanumeric() && !symbols.contains(&byte));
    }

    #[test]
    fn a_value_ends_at_a_control_character_but_not_at_a_tabulator() {
        ends_where(value_end, b' ', |byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f);
    }

    #[test]
    fn a_target_ends_at_anything_but_visible_ascii_without_number_sign() {
        ends_where(|bytes, at| target_ends(bytes, at).1, b'/', |byte| !byte.is_ascii_graphic() || byte == b'#');
    }

    #[test]
    fn a_path_ends_at_the_first_question_mark_or_with_its_target() {
        ends_where(
            |bytes, at| target_ends(bytes, at).0,
            b'/',
            |byte| !byte.is_ascii_graphic() || matches!(byte, b'#' | b'?'),
        );
        assert_eq!(target_ends(b"/a?b?c d?e", 0), (2, 6));
        assert_eq!(target_ends(b"/a b?c............", 0), (2, 2));
    }

    #[test]
    fn a_host_ends_at_colons_brackets_and_what_separates_targets() {
        let symbols = b"-._~!$&'()*+;=%";
        ends_where(host_end, b'x', |byte| !byte.is_ascii_alphanumeric() && !symbols.contains(&byte));
    }
}
