//! The codec and the connections of a load over HTTP/3.

mod client;
mod codec;
mod connection;

pub(crate) use self::client::Http3Client;
pub(crate) use self::connection::Http3Requests;
