//! Tests of the public interface.

mod attacks;
mod connections;
mod messages;
mod round_trips;
mod support;
mod vectors;
