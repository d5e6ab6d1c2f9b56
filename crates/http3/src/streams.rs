//! The codec of a stream over its frames: the pipelines of both roles.

use std::sync::Arc;

use tidegate_codec::Over;
use tidegate_http_stream as stream;
use tidegate_http_stream::Version;
use tidegate_http1::client::Limits;

use crate::limits::Config;
use crate::request_stream::RequestStream;

/// The pipeline of one request stream of a server: the same messages as those of an HTTP/2 stream.
pub type ServerStream<T = ()> = Over<RequestStream, stream::ServerStream<T>>;

/// The pipeline of one request stream of a client.
pub type ClientStream = Over<RequestStream, stream::ClientStream>;

/// The pipeline of a stream that a client has opened, with something that the application finds again by
/// [`data`](tidegate_http_stream::ServerStream::data).
///
/// ```
/// use std::sync::Arc;
/// use tidegate::http3::{self, Config};
///
/// let stream = http3::server_stream(&Arc::new(Config::default()), "a connection's data");
/// assert_eq!(*stream.codec().data(), "a connection's data");
/// ```
#[must_use]
pub fn server_stream<T: 'static>(config: &Arc<Config>, data: T) -> ServerStream<T> {
    let codec = stream::ServerStream::with_data(config.stream().clone(), data);
    Over::new(RequestStream::server(config.clone()), codec)
}

/// The pipeline of a stream that a client opens, on a connection over TLS, which QUIC always has. With
/// `extended_connect`, which the server's settings have to allow, an upgrade is sent as extended CONNECT (RFC 9220).
#[must_use]
pub fn client_stream(config: &Arc<Config>, limits: Arc<Limits>, extended_connect: bool) -> ClientStream {
    let codec = stream::ClientStream::new(limits, "https").version(Version::Http3);
    let codec = if extended_connect { codec.extended_connect() } else { codec };
    Over::new(RequestStream::client(config.clone()), codec)
}

/// An open stream that waits costs little beside QUIC's state of it.
const _: () = assert!(size_of::<ServerStream>() <= 240);
