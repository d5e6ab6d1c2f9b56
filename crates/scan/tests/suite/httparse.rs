//! Another parser's opinion, on heads that are whole but for a few bytes. `support/opinion.rs` lists the differences.
//!
//! `TIDEGATE_HEADS` is how many heads there are. A hundred million take two minutes on one core:
//! `TIDEGATE_HEADS=100000000 cargo test --release -p tidegate-scan --test suite httparse -- --nocapture`.

use crate::support::opinion::{compare_fields, compare_request};
use crate::support::{From, agreed, check};

#[test]
fn a_browsers_head_is_the_same_for_both() {
    let browser = include_bytes!("support/browser.txt");
    let request = [b"GET /index.html?a=b HTTP/1.1\r\n", &browser[..]].concat();
    compare_request(&request);
    for length in 0..request.len() {
        compare_request(&request[..length]);
        check(From(&request[..length], 30));
        compare_fields(&agreed(From(&request[..length], 30)), From(&request[..length], 30));
    }
}

#[test]
fn mutated_heads_are_the_same_for_both() {
    let heads = std::env::var("TIDEGATE_HEADS").map_or(HEADS, |heads| heads.parse().expect("a number of heads"));
    let seed = std::env::var("TIDEGATE_SEED").map_or(2693, |seed| seed.parse().expect("a seed"));
    let mut random = Random(seed);
    let (mut whole, mut partial, mut bytes) = (0_u64, 0_u64, Vec::new());
    for _ in 0..heads {
        let at = random.draw(&mut bytes);
        if at == 0 {
            compare_request(&bytes);
        }
        let found = agreed(From(&bytes, at));
        compare_fields(&found, From(&bytes, at));
        whole += u64::from(found.end.is_ok());
        partial += u64::from(found.end == Err(tidegate_scan::Stop::Partial));
    }
    println!("{heads} heads: {whole} whole, {partial} partial, the others flawed; seed {seed}");
    assert!(whole > heads / 10 && partial > heads / 20, "{whole} whole and {partial} partial ones of {heads}");
}

/// Heads by chance; SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (((self.next() >> 32) * bound as u64) >> 32) as usize
    }

    fn pick<'c>(&mut self, choices: &[&'c [u8]]) -> &'c [u8] {
        choices[self.below(choices.len())]
    }

    /// Fills `bytes` with a head, and gives where its fields begin; 0 if there is a request line before them.
    fn draw(&mut self, bytes: &mut Vec<u8>) -> usize {
        bytes.clear();
        let begun = self.below(8);
        if begun == 0 {
            bytes.extend_from_slice(self.pick(REQUEST_LINES));
        } else {
            bytes.resize(begun - 1, b'.');
        }
        let fields = bytes.len();
        for _ in 0..self.below(6) {
            bytes.extend_from_slice(self.pick(LINES));
        }
        bytes.extend_from_slice(b"\r\n");
        if self.below(3) == 0 {
            bytes.extend_from_slice(b"GET / HTTP/1.1\r\nHost: next\r\n\r\n");
        }
        for _ in 0..self.below(4) {
            self.mutate(bytes, if begun == 0 { 0 } else { fields });
        }
        if begun == 0 { 0 } else { fields }
    }

    /// Changes something at or behind `from`.
    fn mutate(&mut self, bytes: &mut Vec<u8>, from: usize) {
        let place = from + self.below(bytes.len() - from + 1);
        let byte = if self.below(4) == 0 { self.next() as u8 } else { self.pick(&[BYTES])[self.below(BYTES.len())] };
        match self.below(6) {
            0 if place < bytes.len() => drop(bytes.remove(place)),
            1 => bytes.insert(place, byte),
            2 => bytes.truncate(place),
            3 => {
                // A run of a length that ends somewhere else in a window.
                let length = self.below(80);
                bytes.splice(place..place, std::iter::repeat_n(if byte < b' ' { b'x' } else { byte }, length));
            }
            _ if place < bytes.len() => bytes[place] = byte,
            _ => bytes.push(byte),
        }
    }
}

const REQUEST_LINES: &[&[u8]] = &[
    b"GET /plaintext HTTP/1.1\r\n",
    b"GET / HTTP/1.0\r\n",
    b"POST /a/rather/long/path/that/does/not/fit/into/a/block?and=a&query=string HTTP/1.1\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"X-Y http://a.example:80/?x HTTP/1.1\r\n",
    b"GET /%7Etide/%e2%82%ac?q=%00%20[]&r=100%25 HTTP/1.1\r\n",
];

const LINES: &[&[u8]] = &[
    b"Host: localhost\r\n",
    b"Host:a\r\n",
    b"a:\r\n",
    b"Accept: */*\r\n",
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n",
    b"Connection: keep-alive\r\n",
    b"Content-Length: 12345\r\n",
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0\r\n",
    b"X: \t spaces around \t \r\n",
    b"!#$%&'*+-.^_`|~0189AZaz: every symbol\r\n",
    b"X-Text: \xe4\xf6\xfc \xff\x80 obsolete\r\n",
    b"A-Name-That-Is-Longer-Than-A-Block-Of-Thirty-Two-Bytes-And-Even-A-Window-Of-Sixty-Four: x\r\n",
    b"If-None-Match: \"33a64df551425fcc55e4d42a148795d9f25f89d4\"\r\n",
];

/// Bytes that decide something.
const BYTES: &[u8] = b"\r\n\r\n:: \t\0\x7f\x1f\x80\xff#?/@[`{~!\"(,-a%%0";

const HEADS: u64 = 300_000;
