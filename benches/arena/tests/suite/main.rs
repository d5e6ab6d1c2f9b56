//! The tests of the arena's server: one program, a module for each noun.

#![forbid(unsafe_code)]

mod checks;
mod database;
mod static_files;
