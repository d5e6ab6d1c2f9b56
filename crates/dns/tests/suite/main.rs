//! The tests of `tidegate-dns` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod generated;
mod hickory;
mod messages;
mod names;
mod streams;
mod support;
mod texts;
