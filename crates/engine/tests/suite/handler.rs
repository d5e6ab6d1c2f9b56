//! The calls of a handler, and the effects of its outcomes: on a real loop, over byte vectors or socket pairs.

mod bounds;
mod closing;
mod errors;
mod events;
mod files;
mod flow;
mod memory;
mod support;
mod switch;
mod tasks;
