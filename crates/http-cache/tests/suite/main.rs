//! The tests of `tidegate-http-cache` through the facade: one program, a module for each noun.
//!
//! The cases of `freshness.rs` to `invalidation.rs` are by kind those of the public suite of http-tests/cache-tests.

#![forbid(unsafe_code)]

mod budget;
mod conditional;
mod disk;
mod freshness;
mod invalidation;
mod joined;
mod partial;
mod proxied;
mod stale;
mod status_field;
mod storing;
mod support;
mod vary;
