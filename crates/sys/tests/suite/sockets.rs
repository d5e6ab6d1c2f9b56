//! Tests without a driver: addresses, socket options by name, and files of Unix sockets.

mod abstract_name;
mod address;
mod options;
mod unix_path;
