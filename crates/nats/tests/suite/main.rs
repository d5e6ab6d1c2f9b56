//! The tests of `tidegate-nats` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod broker;
mod client;
mod faults;
mod mailbox;
mod nats_py;
mod nats_server;
mod operations;
mod scripted;
mod support;
