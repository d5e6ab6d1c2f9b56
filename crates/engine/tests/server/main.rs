//! A server on real sockets: where it listens, how many it serves, how it ends, and what peers cannot do to it.

#![forbid(unsafe_code)]

mod addresses;
mod connections;
mod ending;
mod posts;
mod spread;
mod support;
mod takeover;
mod trouble;
