//! `qpack_tables` for libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::qpack_tables(data));
