//! The tests of `tidegate-memcached` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod bad_input;
mod commands;
mod responses;
mod round_trips;
