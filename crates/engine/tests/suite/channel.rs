//! Channels, on real loops: over byte vectors with a clock that the test moves, or over sockets.

mod habits;
mod halves;
mod late;
mod pairs;
mod receiving;
mod sending;
mod support;
mod switching;
mod timing;
