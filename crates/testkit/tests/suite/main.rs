//! The tests of `tidegate-testkit` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod contract;
mod embedded;
mod filters;
mod framings;
mod handshakes;
mod network;
mod streams;
