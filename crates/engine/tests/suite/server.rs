//! A server on real sockets: its addresses, its limits, its end, and misbehaving peers.

mod addresses;
mod admission;
mod connections;
mod datagrams;
mod ending;
mod generations;
mod listeners;
mod passed;
mod posts;
mod spread;
pub(crate) mod support;
mod takeover;
mod trouble;
