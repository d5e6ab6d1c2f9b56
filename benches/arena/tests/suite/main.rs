//! The tests of the arena's server: one program, a module for each noun.

#![forbid(unsafe_code)]

mod calls;
mod checks;
mod database;
mod edge;
mod held;
mod static_files;
