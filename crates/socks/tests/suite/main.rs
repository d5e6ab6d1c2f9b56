//! The tests of `tidegate-socks` through its public interface: one program, a module for each noun.

mod handshakes;
mod roles;
