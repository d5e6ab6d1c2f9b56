//! The contract of a codec: the same messages at every split of the input, no panic, and refusal before memory is taken.

use {{crate_name}}::protocol::{ClientCodec, ProtocolError, Request, Response, ServerCodec};
use tidegate_testkit::{Embedded, contract};

#[test]
fn requests_are_the_same_at_every_split() {
    contract::check(
        ServerCodec::new,
        b"SET tide high water\r\nGET tide\nGET wind\n",
    );
    contract::check(ClientCodec::new, b"OK\nVALUE high water\nNONE\nFULL\n");
}

#[test]
fn no_input_makes_it_panic() {
    contract::never_panics(ServerCodec::new, b"SET tide high water\nGET tide\n", 1_000);
    contract::never_panics(ClientCodec::new, b"VALUE high water\nNONE\n", 1_000);
}

#[test]
fn a_line_without_an_end_is_refused() {
    contract::refuses_before_allocating(ServerCodec::new, &[b'x'; 8192]);
}
