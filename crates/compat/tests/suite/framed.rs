//! Codecs over tokio streams: scripted ones, pairs in memory, and sockets.

mod ends;
mod flow;
mod lifecycle;
mod messages;
mod script;
mod sockets;
mod tasks;
mod time;
