//! Another parser as a second opinion: `httparse` accepts every head that this codec accepts, with the same meaning.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::support::{self, seen};

/// Pieces of heads, valid and malformed; a head is some of them in a row.
const PIECES: &[&str] = &[
    "GET",
    "POST",
    "X-Y",
    " ",
    " ",
    "/",
    "/a?b",
    "/%41?%00",
    "*",
    "http://a/",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    " HTTP/1.2\r\n",
    " HTTP/1.1\n",
    "\r\n",
    "\r\n",
    "\n",
    "\r",
    "\t",
    ":",
    ": ",
    "Host: a\r\n",
    "Host: a\r\n",
    "A",
    "Content-Length: 0\r\n",
    "Connection: close\r\n",
    "x: y z \t\r\n",
    "Transfer-Encoding: chunked\r\n",
    "0\r\n\r\n",
    "\0",
    "\x7f",
    "\u{e4}",
    ",",
    "\"",
    "1",
];

fn head() -> impl Strategy<Value = Vec<u8>> {
    let start = prop_oneof![Just(b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec()), Just(b"GET /".to_vec()), Just(Vec::new())];
    let pieces = proptest::collection::vec(proptest::sample::select(PIECES), 0..12);
    (start, pieces).prop_map(|(mut wire, pieces)| {
        wire.extend(pieces.concat().into_bytes());
        wire.extend_from_slice(b"\r\n\r\n");
        wire
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 20_000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(2693),
        ..ProptestConfig::default()
    })]

    #[test]
    fn accepted_heads_are_accepted_by_httparse_with_the_same_meaning(wire in head()) {
        let seen = seen(&wire);
        if let Some(request) = seen.requests.first() {
            support::agreement::of_request(request, &wire);
        }
    }

    #[test]
    fn fields_of_every_length_are_seen_as_they_are(fields in proptest::collection::vec(
        ("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,40}", "[ \t]{0,2}([!-~]([ -~\t]{0,40}[!-~])?)?[ \t]{0,2}"), 0..6))
    {
        let mut wire = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
        let mut expected = vec![("Host".to_owned(), "a".to_owned())];
        for (name, value) in fields {
            wire.extend_from_slice(format!("X{name}:{value}\r\n").as_bytes());
            expected.push((format!("X{name}"), value.trim_matches([' ', '\t']).to_owned()));
        }
        wire.extend_from_slice(b"\r\n");
        let seen = seen(&wire);
        prop_assert_eq!(seen.error, None);
        prop_assert_eq!(&seen.requests[0].headers, &expected);
    }
}
