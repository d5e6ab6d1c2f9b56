//! `WebTransportLimits`: bounds on the sessions, streams and datagrams of a peer.

use std::time::Duration;

/// The limits of WebTransport on a connection. Each has a default that protects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebTransportLimits {
    /// Sessions of a connection at a time; SETTINGS announce it. Further requests are reset with H3_REQUEST_REJECTED. 16.
    pub sessions_max: u32,
    /// Streams of a connection that came before the request of their session, which a network may reorder; further ones are
    /// reset with WEBTRANSPORT_BUFFERED_STREAM_REJECTED, and count as abuse. 16. It stops streams of sessions that never come.
    pub waiting_streams_max: u32,
    /// How long such a stream waits for its session, or any stream for its first bytes, before it is reset. 10 seconds. It stops
    /// streams that are opened and left.
    pub waiting_timeout: Duration,
    /// Bytes of a session's unread datagrams, plus 32 for each; beyond it the oldest is dropped. 64 KiB. It bounds the memory for
    /// datagrams that the application does not read.
    pub datagram_bytes_max: u32,
    /// Unidirectional streams that the peer may have open at a time, over all sessions. 64. QUIC enforces it: a peer without credit
    /// opens none. Bidirectional streams count as requests.
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
