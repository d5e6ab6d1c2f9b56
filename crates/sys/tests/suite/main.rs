//! The tests of `tidegate-sys` through its public interface: one program, a module for each noun.

mod directory;
mod driver;
mod sockets;
