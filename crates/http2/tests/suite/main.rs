//! The tests of `tidegate-http2` through its public interface: one program, a module for each noun.

mod answers;
mod attacks;
mod clients;
mod frames;
mod hpack;
mod keep_alive;
mod ledger;
mod messages;
mod support;
mod vectors;
