//! The tests of `tidegate-buffer` through its public interface: one program, a module for each noun.

mod input;
mod model;
mod outbound;
mod outbound_memory;
mod properties;
mod support;
