//! What an event loop may rely on: a driver, driven through its seam over real sockets.
//!
//! Nothing here knows which driver it is. Everything happens on loopback, at ports that the kernel chooses, or in a
//! directory of its own. Read first: `harness.rs`.

mod accept;
mod close;
mod connect;
mod directory;
mod file;
mod harness;
mod hold;
mod quiet;
mod receive;
mod reset;
mod send;
mod token;
mod wake;
