//! The tests of `tidegate-admin` through its public interface: one program, a module for each noun.

mod admin;
