//! The tests of `tidegate-http-auth` through the facade: one program, a module for each noun.

#![forbid(unsafe_code)]

mod claims;
mod forward;
mod key_sources;
mod secure;
mod support;
mod tokens;
