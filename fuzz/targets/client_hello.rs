//! `client_hello` for libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::client_hello(data));
