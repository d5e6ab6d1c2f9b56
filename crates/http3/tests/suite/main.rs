//! Tests of the public interface.

mod attacks;
mod connections;
mod early;
mod frames;
mod messages;
mod round_trips;
mod support;
mod vectors;
