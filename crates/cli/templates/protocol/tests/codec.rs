//! The contract of a codec: the same messages at every split of the input, no panic, and refusal before memory is taken.

use {{crate_name}}::protocol::{ClientCodec, ServerCodec};
use tidegate_testkit::contract;

#[test]
fn requests_are_the_same_at_every_split() {
    contract::check(
        ServerCodec::default,
        b"SET tide high water\r\nGET tide\nGET wind\n",
    );
    contract::check(ClientCodec::default, b"OK\nVALUE high water\nNONE\nFULL\n");
}

#[test]
fn no_input_makes_it_panic() {
    contract::never_panics(
        ServerCodec::default,
        b"SET tide high water\nGET tide\n",
        1_000,
    );
    contract::never_panics(ClientCodec::default, b"VALUE high water\nNONE\n", 1_000);
}

#[test]
fn a_line_without_an_end_is_refused() {
    contract::refuses_before_allocating(ServerCodec::default, &[b'x'; 8192]);
}
