//! What a handler is told, and what its outcomes come to: on a real loop, over byte vectors or socket pairs.

#![forbid(unsafe_code)]

mod bounds;
mod closing;
mod errors;
mod events;
mod files;
mod flow;
mod memory;
mod support;
mod switch;
