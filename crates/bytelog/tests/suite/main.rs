//! Byte logs on connections: their records, and that they do not change the connection.

#![forbid(unsafe_code)]

mod file;
mod hex;
mod pass_through;
mod support;
mod wireshark;
