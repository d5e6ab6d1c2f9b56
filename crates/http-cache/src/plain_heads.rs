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
    /// Whether the connection has TLS, and whether the peer is a trusted proxy.
    origin_facts: (bool, bool),
    /// Scheme and host, as a key has them.
    origin: Vec<u8>,
}

impl PlainHeads {
    /// Writes scheme and host of the key of a request with these fields. Returns whether none of them changes which stored
    /// response it gets, or how.
    #[inline]
    pub(crate) fn write_origin(&mut self, origin_facts: (bool, bool), lines: &[u8], key: &mut Vec<u8>) -> bool {
        let head = &mut self.0[lines.len() % HEADS];
        if (head.lines != lines || head.origin_facts != origin_facts) && !head.read(origin_facts, lines) {
            return false;
        }
        key.clear();
        key.extend_from_slice(&head.origin);
        true
    }
}

impl PlainHead {
    #[inline(never)]
    fn read(&mut self, origin_facts: (bool, bool), lines: &[u8]) -> bool {
        self.lines.clear();
        let Some(host) = facts::host_of_plain(lines) else { return false };
        self.origin.clear();
        let (is_secure, is_trusted) = origin_facts;
        if is_trusted {
            key::push_forwarded_origin(&mut self.origin, is_secure, host, fields_of(lines));
        } else {
            key::push_origin(&mut self.origin, is_secure, host);
        }
        self.origin_facts = origin_facts;
        if lines.len() <= LINES_BYTES_MAX {
            self.lines.extend_from_slice(lines);
        }
        true
    }
}

/// The fields of lines that a parser has accepted.
fn fields_of(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    lines.split(|&byte| byte == b'\n').filter_map(|line| {
        let end = line.iter().position(|&byte| byte == b':')?;
        Some((&line[..end], line[end + 1..].trim_ascii()))
    })
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
        let mut origin_of = |facts, lines: &str| {
            let mut key = b"before".to_vec();
            let is_plain = heads.write_origin(facts, format!("{lines}\r\n").as_bytes(), &mut key);
            is_plain.then(|| String::from_utf8(key).unwrap())
        };
        let mut origin = |is_secure, lines: &str| origin_of((is_secure, false), lines);
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
        for is_trusted in [true, false, true] {
            let scheme = if is_trusted { "https" } else { "http" };
            let origin = origin_of((false, is_trusted), "Host: sea\r\nX-Forwarded-Proto: https\r\n");
            assert_eq!(origin, Some(format!("{scheme}://sea\n")));
        }
    }
}
