//! Codecs over streams of tokio: scripted ones, pairs in memory, and sockets.

#![forbid(unsafe_code)]

mod ends;
mod flow;
mod lifecycle;
mod messages;
mod script;
mod sockets;
mod tasks;
mod time;
