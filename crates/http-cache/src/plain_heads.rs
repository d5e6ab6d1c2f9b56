//! `PlainHeads`: which heads have no field that matters, for the heads that came lately.
//!
//! Requests of one client have the same fields, mostly. So the fields of a head are compared with those that were read before,
//! which costs less than to read them.

use crate::key;
use crate::rules::facts;

/// Heads without fields that matter, and the beginnings of their keys.
#[derive(Default)]
pub(crate) struct PlainHeads([PlainHead; HEADS]);

#[derive(Default)]
struct PlainHead {
    /// The lines of the fields.
    lines: Vec<u8>,
    is_secure: bool,
    /// Scheme and host, as a key has them.
    origin: Vec<u8>,
}

impl PlainHeads {
    /// Writes scheme and host of the key of a request with these fields. Returns whether none of them changes which stored
    /// response it gets, or how.
    #[inline]
    pub(crate) fn write_origin(&mut self, is_secure: bool, lines: &[u8], key: &mut Vec<u8>) -> bool {
        let head = &mut self.0[lines.len() % HEADS];
        if (head.lines != lines || head.is_secure != is_secure) && !head.read(is_secure, lines) {
            return false;
        }
        key.clear();
        key.extend_from_slice(&head.origin);
        true
    }
}

impl PlainHead {
    #[inline(never)]
    fn read(&mut self, is_secure: bool, lines: &[u8]) -> bool {
        self.lines.clear();
        let Some(host) = facts::host_of_plain(lines) else { return false };
        self.origin.clear();
        key::push_origin(&mut self.origin, is_secure, host);
        self.is_secure = is_secure;
        if lines.len() <= LINES_BYTES_MAX {
            self.lines.extend_from_slice(lines);
        }
        true
    }
}

/// How many heads are kept for each function of each loop.
const HEADS: usize = 8;

/// Longer fields are read each time.
const LINES_BYTES_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_and_others_in_its_place_are_read_again() {
        let mut heads = PlainHeads::default();
        let mut origin = |is_secure, lines: &str| {
            let mut key = b"before".to_vec();
            let is_plain = heads.write_origin(is_secure, format!("{lines}\r\n").as_bytes(), &mut key);
            is_plain.then(|| String::from_utf8(key).unwrap())
        };
        let long = format!("Host: sea\r\nX: {}\r\n", "x".repeat(5000));
        for _ in 0..2 {
            assert_eq!(origin(false, "Host: Sea\r\n").as_deref(), Some("http://sea\n"));
            assert_eq!(origin(false, "Host: Bay\r\n").as_deref(), Some("http://bay\n"));
            assert_eq!(origin(true, "Host: Bay\r\n").as_deref(), Some("https://bay\n"));
            assert_eq!(origin(false, "Host: sea\r\nRange: a\r\n"), None);
            assert_eq!(origin(false, "Host: sea\r\nLange: a\r\n").as_deref(), Some("http://sea\n"));
            assert_eq!(origin(false, &long).as_deref(), Some("http://sea\n"));
            // The fields of an HTTP/1.0 request may be none.
            assert_eq!(origin(false, ""), None);
        }
    }
}
