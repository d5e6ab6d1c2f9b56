//! `ClientLimits`: the limits of a client, in one place.

use std::time::Duration;

use tidegate_engine as engine;
#[cfg(feature = "http3")]
use tidegate_http_upstream::Http3Config;
use tidegate_http_upstream::{ConnectLimits, PoolLimits};
use tidegate_http1::client as http1;
use tidegate_http2 as http2;

/// Limits that protect a client from its servers, and the servers from the client. Every default protects.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientLimits {
    /// Connections of the pool, to all origins together, in use or idle. 512. A request beyond it closes an idle
    /// connection to another origin, or waits.
    pub connections_max: usize,
    /// Connections to one origin, in use or idle. 64; with HTTP/2 there is one, which requests share. A request beyond it
    /// waits.
    pub connections_per_origin_max: usize,
    /// Requests at a time on one HTTP/2 connection, also if the server permits more; a request beyond it waits. 1,000.
    pub streams_per_connection_max: usize,
    /// Requests that wait for a connection; a request beyond it fails with [`ClientError::PoolFull`]. 4,096.
    ///
    /// [`ClientError::PoolFull`]: crate::ClientError::PoolFull
    pub waiting_max: usize,
    /// How long a connection stays open between two requests. 60 seconds: less than most servers wait, since a request
    /// may fail if the server closes the connection at the same time.
    pub idle_timeout: Duration,
    /// How long a request may wait for a connection. 30 seconds.
    pub pool_timeout: Duration,
    /// How long resolving a name may take. 5 seconds.
    pub resolve_timeout: Duration,
    /// How long the first request to an origin waits for its HTTPS records; later answers are for later requests. 50
    /// milliseconds, as long as for the addresses of a second family (RFC 8305 §3). It stops a resolver that drops such
    /// questions from delaying requests.
    pub https_records_wait: Duration,
    /// Addresses of a name that are tried; further ones are ignored. 16. It stops a name with a thousand addresses.
    pub addresses_max: usize,
    /// How long connecting may take, over all addresses. 10 seconds.
    pub connect_timeout: Duration,
    /// How long QUIC connects alone where an origin has HTTP/3 beside TCP; then TCP begins as well, and the first connection
    /// counts. 250 milliseconds, as long as one address has before the next (RFC 8305 §8). It bounds the delay of requests in a
    /// network that drops UDP.
    pub http3_head_start: Duration,
    /// From the end of a request to the end of its response's head. 60 seconds. It stops a server that never answers,
    /// and one that sends a head slowly.
    pub head_timeout: Duration,
    /// From the beginning of a request, with its redirects, to the end of the body of its response. No limit, since an
    /// event stream has no end: the other limits stop a server that sends nothing.
    pub request_timeout: Option<Duration>,
    /// How long a request that expects `100 Continue` waits for it before it sends its body (RFC 9110 §10.1.1). 1 second.
    pub continue_timeout: Duration,
    /// Bytes of a head. 32 KiB.
    pub head_bytes_max: u32,
    /// Fields of a head. 100.
    pub headers_max: u32,
    /// Interim responses to a request. 16. It stops a server that sends them for ever.
    pub interim_max: u8,
    /// Bytes of a response's body that is read piece by piece. No limit: nothing of it is kept.
    pub body_bytes_max: u64,
    /// Bytes of a body that [`Response::bytes`], [`Response::text`] and [`Response::json`] collect. 16 MiB. It bounds the
    /// memory of a response.
    ///
    /// [`Response::bytes`]: crate::Response::bytes
    /// [`Response::text`]: crate::Response::text
    /// [`Response::json`]: crate::Response::json
    pub collected_body_bytes_max: usize,
    /// The longest gap between two pieces of a response's body; with a least rate, how far the body may fall behind it.
    /// 60 seconds.
    pub body_timeout: Duration,
    /// The least rate of a response's body, in bytes per second; 0 means that any byte restarts `body_timeout`. 0, since
    /// event streams and long polls send little for a long time.
    pub body_rate_min: u32,
    /// How much an HTTP/2 connection may send that brings no response forward; see [`http2::Limits::abuse_max`]. 1,000.
    /// It stops floods of control frames.
    pub abuse_max: u32,
    /// How much of that a completed request makes good. 8.
    pub abuse_credit_per_request: u32,
    /// How much of that a second makes good. 33.
    pub abuse_leak_per_second: u32,
    /// Streams of one HTTP/2 connection that are reset at once, since the application has given their requests up.
    /// Those beyond it stay open, unread, until their reset is due; once half of the streams are such, further requests
    /// get another connection. 100. It keeps the server from ending the connection, with all other requests.
    pub resets_max: u32,
    /// Streams of one HTTP/2 connection that are reset in a second. 20.
    pub resets_per_second: u32,
    /// Bytes of a compressed HTTP/2 head. 32 KiB. It stops CONTINUATION frames without end.
    pub field_block_bytes_max: u32,
    /// Bytes of the table for the compression of heads that a server sends by HTTP/2. 4 KiB. It bounds the memory of an idle
    /// connection.
    pub header_table_bytes_max: u32,
    /// The window of an HTTP/2 stream when it opens, in bytes. 64 KiB. It bounds the waiting bytes of a response that
    /// nothing reads.
    pub stream_window_bytes: u32,
    /// How large it becomes if the response is read as fast as the server sends, in bytes. 16 MiB.
    pub stream_window_bytes_max: u32,
    /// The window of an HTTP/2 connection, in bytes. 1 MiB; it grows as well.
    pub connection_window_bytes: u32,
    /// How long an HTTP/2 server may take to acknowledge our SETTINGS; beyond it the connection ends. 30 seconds.
    pub settings_timeout: Duration,
    /// After how long without a byte from the server an HTTP/2 connection with requests in progress sends a PING; see
    /// [`http2::Limits::ping_interval`]. `None`, so never, unless set. It finds servers that vanished without closing
    /// their connection. Some gRPC servers end a connection whose client sends one more often than every 5 minutes. If set,
    /// this and `ping_timeout` replace those of `Http3Config` as well.
    pub ping_interval: Option<Duration>,
    /// How long the server may take to answer such a PING; beyond it the connection ends, and its requests fail. 20
    /// seconds.
    pub ping_timeout: Duration,
    /// How long a server may read nothing of a request, or less than `write_rate_min`. 60 seconds.
    pub write_timeout: Duration,
    /// The least rate at which a server has to read, in bytes per second. 240.
    pub write_rate_min: u32,
    /// How many redirects a request follows; one more fails with [`ClientError::TooManyRedirects`]. 10.
    ///
    /// [`ClientError::TooManyRedirects`]: crate::ClientError::TooManyRedirects
    pub redirects_max: u32,
    /// How often a request is sent again, where that is safe. 2. Each time its server had closed a connection of the
    /// pool, or has refused an HTTP/2 stream without processing it.
    pub retries_max: u32,
}

impl Default for ClientLimits {
    fn default() -> Self {
        let (engine, http2) = (engine::Limits::default(), http2::Limits::default());
        Self {
            connections_max: 512,
            connections_per_origin_max: 64,
            streams_per_connection_max: 1000,
            waiting_max: 4096,
            idle_timeout: Duration::from_secs(60),
            pool_timeout: Duration::from_secs(30),
            resolve_timeout: Duration::from_secs(5),
            https_records_wait: Duration::from_millis(50),
            addresses_max: 16,
            connect_timeout: Duration::from_secs(10),
            http3_head_start: Duration::from_millis(250),
            head_timeout: Duration::from_secs(60),
            request_timeout: None,
            continue_timeout: Duration::from_secs(1),
            head_bytes_max: 32 * 1024,
            headers_max: 100,
            interim_max: 16,
            body_bytes_max: u64::MAX,
            collected_body_bytes_max: 16 * 1024 * 1024,
            body_timeout: Duration::from_secs(60),
            body_rate_min: 0,
            abuse_max: http2.abuse_max,
            abuse_credit_per_request: http2.abuse_credit_per_request,
            abuse_leak_per_second: http2.abuse_leak_per_second,
            resets_max: 100,
            resets_per_second: 20,
            field_block_bytes_max: http2.field_block_bytes_max,
            header_table_bytes_max: http2.header_table_bytes_max,
            stream_window_bytes: http2.stream_window_bytes,
            stream_window_bytes_max: http2.stream_window_bytes_max,
            connection_window_bytes: http2.connection_window_bytes,
            settings_timeout: http2.settings_timeout,
            ping_interval: http2.ping_interval,
            ping_timeout: http2.ping_timeout,
            write_timeout: engine.write_timeout,
            write_rate_min: engine.write_rate_min,
            redirects_max: 10,
            retries_max: 2,
        }
    }
}

impl ClientLimits {
    pub(super) fn http1(&self) -> http1::Limits {
        http1::Limits {
            head_bytes_max: self.head_bytes_max,
            headers_max: self.headers_max,
            body_bytes_max: self.body_bytes_max,
            interim_max: self.interim_max,
            head_timeout: self.head_timeout,
            body_timeout: self.body_timeout,
            body_rate_min: self.body_rate_min,
            idle_timeout: self.idle_timeout,
            ..http1::Limits::default()
        }
    }

    pub(super) fn http2(&self) -> http2::Limits {
        http2::Limits {
            headers_max: self.headers_max,
            head_bytes_max: self.head_bytes_max.min(http2::HEAD_BYTES_CEILING),
            field_block_bytes_max: self.field_block_bytes_max,
            header_table_bytes_max: self.header_table_bytes_max,
            abuse_max: self.abuse_max,
            abuse_credit_per_request: self.abuse_credit_per_request,
            abuse_leak_per_second: self.abuse_leak_per_second,
            stream_window_bytes: self.stream_window_bytes,
            stream_window_bytes_max: self.stream_window_bytes_max,
            connection_window_bytes: self.connection_window_bytes,
            idle_timeout: self.idle_timeout,
            settings_timeout: self.settings_timeout,
            ping_interval: self.ping_interval,
            ping_timeout: self.ping_timeout,
            ..http2::Limits::default()
        }
    }

    #[cfg(feature = "http3")]
    pub(super) fn http3(&self, mut config: Http3Config) -> Http3Config {
        config.limits.headers_max = self.headers_max;
        config.limits.head_bytes_max = self.head_bytes_max.min(http2::HEAD_BYTES_CEILING);
        config.limits.body_bytes_max = self.body_bytes_max;
        config.transport.idle_timeout = Some(self.idle_timeout);
        if let Some(interval) = self.ping_interval {
            (config.ping_interval, config.ping_timeout) = (Some(interval), self.ping_timeout);
        }
        assert!(config.ping_interval != Some(Duration::ZERO), "ping_interval is above zero");
        config
    }

    pub(super) fn connect(&self) -> ConnectLimits {
        ConnectLimits {
            connect_timeout: self.connect_timeout,
            resolve_timeout: self.resolve_timeout,
            addresses_max: self.addresses_max,
            http3_head_start: self.http3_head_start,
            engine: engine::Limits {
                write_timeout: self.write_timeout,
                write_rate_min: self.write_rate_min,
                ..engine::Limits::default()
            },
        }
    }

    pub(super) fn pool(&self) -> PoolLimits {
        PoolLimits {
            connections_max: self.connections_max.max(1),
            connections_per_origin_max: self.connections_per_origin_max.max(1),
            streams_per_connection_max: self.streams_per_connection_max.max(1),
            waiting_max: self.waiting_max,
        }
    }
}
