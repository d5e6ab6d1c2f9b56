//! `ClientLimits`: what protects a client, in one place.

use std::time::Duration;

use tidegate_engine as engine;
use tidegate_http1::client as http1;

/// What protects a client from the servers that it asks, and the servers from the client. Every default protects.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientLimits {
    /// Connections of the pool, to all origins together, in use or idle. 512. A request beyond it closes an idle
    /// connection to another origin, or waits.
    pub connections_max: usize,
    /// Connections to one origin, in use or idle. 64. A request beyond it waits.
    pub connections_per_origin_max: usize,
    /// Requests that wait for a connection; a request beyond it fails with [`ClientError::PoolFull`]. 4,096.
    ///
    /// [`ClientError::PoolFull`]: crate::client::ClientError::PoolFull
    pub waiting_max: usize,
    /// How long a connection stays open between two requests. 60 seconds: less than most servers wait, since a request
    /// may fail if the server closes the connection at the same time.
    pub idle_timeout: Duration,
    /// How long a request may wait for a connection. 30 seconds.
    pub pool_timeout: Duration,
    /// How long resolving a name may take. 5 seconds.
    pub resolve_timeout: Duration,
    /// Addresses of a name that are tried; further ones are ignored. 16. It stops a name with a thousand addresses.
    pub addresses_max: usize,
    /// How long connecting may take, over all addresses. 10 seconds.
    pub connect_timeout: Duration,
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
    /// [`Response::bytes`]: crate::client::Response::bytes
    /// [`Response::text`]: crate::client::Response::text
    /// [`Response::json`]: crate::client::Response::json
    pub collected_body_bytes_max: usize,
    /// The longest gap between two pieces of a response's body; with a least rate, how far the body may fall behind it.
    /// 60 seconds.
    pub body_timeout: Duration,
    /// The least rate of a response's body, in bytes per second; 0 means that any byte restarts `body_timeout`. 0, since
    /// event streams and long polls send little for a long time.
    pub body_rate_min: u32,
    /// How long a server may read nothing of a request, or less than `write_rate_min`. 60 seconds.
    pub write_timeout: Duration,
    /// The least rate at which a server has to read, in bytes per second. 240.
    pub write_rate_min: u32,
    /// How many redirects a request follows; one more fails with [`ClientError::TooManyRedirects`]. 10.
    ///
    /// [`ClientError::TooManyRedirects`]: crate::client::ClientError::TooManyRedirects
    pub redirects_max: u32,
    /// How often a request is sent again, where that is safe. 2. Each time the connection was one of the pool that its
    /// server had closed.
    pub retries_max: u32,
}

impl Default for ClientLimits {
    fn default() -> Self {
        let engine = engine::Limits::default();
        Self {
            connections_max: 512,
            connections_per_origin_max: 64,
            waiting_max: 4096,
            idle_timeout: Duration::from_secs(60),
            pool_timeout: Duration::from_secs(30),
            resolve_timeout: Duration::from_secs(5),
            addresses_max: 16,
            connect_timeout: Duration::from_secs(10),
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

    pub(super) fn engine(&self) -> engine::Limits {
        engine::Limits {
            write_timeout: self.write_timeout,
            write_rate_min: self.write_rate_min,
            ..engine::Limits::default()
        }
    }
}
