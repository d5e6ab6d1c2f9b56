//! The tests of `tidegate-compat` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod byte_stream;
mod framed;
mod tokio_runtime;
