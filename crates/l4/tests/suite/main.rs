//! The tests of `tidegate-l4` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod client_hello;
mod servers;
mod simulated_flows;
mod simulated_streams;
