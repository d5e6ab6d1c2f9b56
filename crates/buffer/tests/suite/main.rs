//! The tests of `tidegate-buffer` through its public interface: one program, a module for each noun.

mod input;
mod input_model;
mod model;
mod outbound;
mod outbound_memory;
mod outbound_owners;
mod outbound_parked;
mod properties;
mod support;
