//! Tests without a driver: addresses, socket options by name, and files of Unix sockets.

mod abstract_name;
mod address;
#[path = "../support/directory.rs"]
mod directory;
mod options;
mod unix_path;
