//! The tokio_runtime: crates of tokio in functions, tasks and callbacks of our loops, and our loops within programs of tokio.

mod database;
mod functions;
mod loops;
mod misuse;
mod programs;
mod requests;
