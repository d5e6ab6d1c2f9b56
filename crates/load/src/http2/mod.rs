//! A load over HTTP/2: `handler.rs` keeps streams open on a connection, `codec.rs` opens them and checks responses.

mod codec;
mod handler;

pub(crate) use self::codec::Http2Codec;
pub(crate) use self::handler::StreamsConnection;
