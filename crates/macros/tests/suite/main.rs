//! The tests of `tidegate-macros` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod attributes;
mod faults;
