//! Byte logs on connections: what they show, and that the connections do not notice.

#![forbid(unsafe_code)]

mod file;
mod hex;
mod pass_through;
mod support;
mod wireshark;
