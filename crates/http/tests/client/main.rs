//! The client of HTTP against servers of this crate, and against servers that break the rules.

#![forbid(unsafe_code)]

mod bodies;
mod support;
