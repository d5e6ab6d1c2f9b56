//! The tests of `tidegate-backplane` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod bad_input;
mod brokers;
mod disturbances;
mod kicks;
mod members;
mod processes;
mod simulation;
mod subscribers;
mod users;
mod work;
