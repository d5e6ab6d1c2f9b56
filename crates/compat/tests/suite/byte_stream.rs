//! Channels as streams of bytes: over byte vectors with a clock that the test moves, and over real and simulated
//! sockets.

mod ends;
mod flow;
mod futures_traits;
mod reading;
mod support;
mod transfers;
