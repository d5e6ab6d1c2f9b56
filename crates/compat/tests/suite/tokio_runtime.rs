//! The tokio_runtime: tokio crates in functions, tasks and callbacks of our loops, and our loops within tokio programs.

mod database;
mod functions;
mod loops;
mod misuse;
mod programs;
mod requests;
