//! The tests of `tidegate-scan` through its public interface: one program, a module for each noun.

mod fields;
mod httparse;
mod support;
