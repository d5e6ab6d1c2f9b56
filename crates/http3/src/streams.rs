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

/// The pipeline of a stream that a client has opened, with data for the application, which reads it by
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
///
/// ```
/// use std::sync::Arc;
/// use std::time::{Instant, SystemTime};
/// use tidegate::codec::{Input, Outbound, Output, Pool, Stages, Step, Time};
/// use tidegate::http1::{Incoming, client};
/// use tidegate::http3::{self, Config};
///
/// let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
/// let config = Arc::new(Config::default());
/// let mut client = http3::client_stream(&config, Arc::default(), false);
/// let mut server = http3::server_stream(&config, ());
///
/// let mut queue = Outbound::new(&pool);
/// let request = client::Request::get("/tide")?.host("sea.example")?;
/// client.encode(request.into(), &mut Output::new(&mut queue, &pool, &time))?;
/// client.flush(&mut Output::new(&mut queue, &pool, &time))?;
/// assert!(client.filter().has_sent_end(), "FIN follows");
///
/// // QUIC carries the bytes of the stream.
/// queue.flush();
/// let mut input = Input::new();
/// while let Some(bytes) = queue.front() {
///     let count = bytes.len();
///     input.append(pool.copy(bytes), &pool);
///     queue.advance(count as u64);
/// }
/// let mut replies = Outbound::new(&pool);
/// let step = server.decode(&mut input, &mut Output::new(&mut replies, &pool, &time))?;
/// let Step::Message(Incoming::Head(head)) = step else { panic!("a head is complete") };
/// assert_eq!(head.target(), "/tide");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn client_stream(config: &Arc<Config>, limits: Arc<Limits>, extended_connect: bool) -> ClientStream {
    let codec = stream::ClientStream::new(limits, "https").version(Version::Http3);
    let codec = if extended_connect { codec.extended_connect() } else { codec };
    Over::new(RequestStream::client(config.clone()), codec)
}

/// An idle open stream stays small beside its QUIC state.
const _: () = assert!(size_of::<ServerStream>() <= 240);
