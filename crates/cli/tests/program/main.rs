//! The program itself: started as a user starts it, talked to as the world talks to it, ended by its own number.
//!
//! Everything happens on loopback, at ports that the kernel chooses, or in a directory of its own. No test asserts how
//! long something takes; waiting is bounded by [`PATIENCE`](program::PATIENCE). Read first: `program.rs` and `peer.rs`.

mod backends;
mod bad_input;
mod breaks;
mod clients;
mod connections;
mod crowds;
mod experiment;
mod faults;
mod faults_on_uring;
mod load;
mod load_held;
mod memory;
mod panics;
mod peer;
mod process;
mod program;
mod rates;
mod serve;
mod suspension;
mod takeover;
