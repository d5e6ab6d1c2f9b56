//! `WebTransportLimits`: how much a peer may have open and waiting.

use std::time::Duration;

/// The limits of WebTransport on a connection. Each has a default that protects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebTransportLimits {
    /// Sessions of a connection at a time; SETTINGS announce it. Further requests are reset with H3_REQUEST_REJECTED. 16.
    pub sessions_max: u32,
    /// Streams of a connection that came before the request of their session, which a network may reorder; further ones are
    /// reset with WEBTRANSPORT_BUFFERED_STREAM_REJECTED, and count as abuse. 16. It stops streams of sessions that never come.
    pub waiting_streams_max: u32,
    /// How long they wait, and streams whose first bytes do not come; then they are reset. 10 seconds.
    pub waiting_timeout: Duration,
    /// Bytes of a session's datagrams that were received and not read, 32 more for each; above that the oldest is dropped.
    /// 64 KiB. It bounds the memory for datagrams that the application does not read.
    pub datagram_bytes_max: u32,
    /// Unidirectional streams that the peer may have open at a time, over all sessions; 64. QUIC stops the peer there. The limit
    /// of bidirectional ones is that of requests.
    pub unidirectional_max: u32,
}

impl Default for WebTransportLimits {
    fn default() -> Self {
        Self {
            sessions_max: 16,
            waiting_streams_max: 16,
            waiting_timeout: Duration::from_secs(10),
            datagram_bytes_max: 64 * 1024,
            unidirectional_max: 64,
        }
    }
}
