//! Loads of whole servers in this process: the figures that a load writes as JSON.

mod comparison;
mod redis;
mod sources;
mod support;
