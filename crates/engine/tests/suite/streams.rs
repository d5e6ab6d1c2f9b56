//! Sessions and streams on real sockets: an application on a stream is an application on a connection.

mod basics;
mod support;
