//! `Limits`: the limits of an HTTP server, in one place.

use std::time::Duration;

use tidegate_engine::{self as engine, Deadlines, Shaping};
use tidegate_http1 as http1;
use tidegate_http2 as http2;

/// The limits that protect a server, from the socket to the application. Every default protects.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Concurrent connections; further ones wait in the kernel. Three quarters of the descriptors that the process may
    /// have. It stops a flood of connections.
    pub connections_max: usize,
    /// Memory of all connections, in bytes. Half of the machine's. Beyond it the connections with the most are reset.
    pub memory_max: usize,
    /// Bytes of a request line; beyond it 414. 8 KiB.
    pub request_line_bytes_max: u32,
    /// Bytes of a head; beyond it 431. 16 KiB.
    pub head_bytes_max: u32,
    /// Fields of a head; beyond it 431. 100.
    pub headers_max: u32,
    /// Bytes of a body, read piece by piece or at once; beyond it 413. 16 MiB.
    pub body_bytes_max: u64,
    /// Bytes of a body that is collected before its function is called; beyond it 413. 1 MiB. It bounds the memory of a
    /// request.
    pub collected_body_bytes_max: usize,
    /// From the first byte of a head to its last; beyond it 408. 30 seconds. It stops a peer that sends a head slowly.
    pub head_timeout: Duration,
    /// How far a body may fall behind `body_rate_min`; beyond it 408. 30 seconds.
    pub body_timeout: Duration,
    /// The least rate of a body, in bytes per second. 240. It stops a peer that sends a body slowly. Over HTTP/2 a body
    /// has no rate once the response has begun, since the peer may hold its body back until it sees the response.
    pub body_rate_min: u32,
    /// From the head of a request to the end of its body, as long as the response has not begun; beyond it 408. 10 minutes.
    /// It stops a peer whose body is long and slow. Afterwards `body_rate_min` does, over HTTP/1.1.
    pub receive_timeout: Duration,
    /// From the last piece of a request that was received to the head of the response; beyond it 503. 60 seconds. It stops
    /// async functions that never respond.
    pub request_timeout: Duration,
    /// How long a connection may be idle between requests. 75 seconds. Over HTTP/3 it is also how long a connection may be
    /// without a packet.
    pub idle_timeout: Duration,
    /// Requests of one HTTP/1.1 connection that a reverse proxy has in progress at a time, if the client pipelines
    /// requests with safe methods; further ones wait. 16; 1 passes them on one after the other, and more than 33 counts
    /// as that. It stops one connection from occupying the upstreams.
    pub pipelined_requests_max: u32,
    /// HTTP/2 streams that a connection may have open at a time; further ones are refused. 128.
    pub streams_max: u32,
    /// How much an HTTP/2 connection may send that brings no request forward; see [`http2::Limits::abuse_max`]. 1,000.
    /// It stops floods of control frames and rapid resets.
    pub abuse_max: u32,
    /// How much of that a completed request makes good. 8.
    pub abuse_credit_per_request: u32,
    /// How much of that a second makes good. 33.
    pub abuse_leak_per_second: u32,
    /// From which age of a request on its cancellation over HTTP/2 is none of that; see
    /// [`http2::Limits::abuse_reset_age`]. 100 milliseconds.
    pub abuse_reset_age: Duration,
    /// Bytes of a compressed HTTP/2 head. 32 KiB. It stops CONTINUATION frames without end.
    pub field_block_bytes_max: u32,
    /// Bytes of the table for the compression of heads that an HTTP/2 connection sends to us. 4 KiB.
    pub header_table_bytes_max: u32,
    /// Bytes of the dynamic QPACK table that an HTTP/3 peer may fill; see `http3::Limits::qpack_table_bytes_max`. 0, so there
    /// is none.
    pub qpack_table_bytes_max: u32,
    /// HTTP/3 streams of a connection that may wait for entries of that table, each at most `head_timeout`. 0.
    pub qpack_blocked_streams_max: u32,
    /// Bytes of field sections of a connection that wait for such entries, or for their rest. 64 KiB; beyond it streams are not
    /// read.
    pub qpack_waiting_bytes_max: u32,
    /// Bytes of the dynamic QPACK table that this side fills for an HTTP/3 peer that permits one. 0, so there is none.
    pub qpack_encoder_bytes_max: u32,
    /// The window of an HTTP/2 stream when it opens, in bytes. 64 KiB.
    pub stream_window_bytes: u32,
    /// How large it becomes if the application reads as fast as the peer sends, in bytes. 16 MiB; `memory_max` bounds
    /// the waiting bytes of all windows together.
    pub stream_window_bytes_max: u32,
    /// The window of an HTTP/2 connection, in bytes. 1 MiB; it grows as well.
    pub connection_window_bytes: u32,
    /// How long an HTTP/2 peer may take to acknowledge our SETTINGS; beyond it the connection ends. 30 seconds.
    pub settings_timeout: Duration,
    /// After how long without a byte from the peer an HTTP/2 connection with open streams sends a PING; see
    /// [`http2::Limits::ping_interval`]. `None`, so never, unless set; over HTTP/3 15 seconds. It finds clients that vanished
    /// without closing their connection.
    pub ping_interval: Option<Duration>,
    /// How long the peer may take to answer such a PING; beyond it the connection ends. 20 seconds.
    pub ping_timeout: Duration,
    /// How long a peer may read nothing, or less than `write_rate_min`. 60 seconds.
    pub write_timeout: Duration,
    /// The least rate at which a peer has to read, in bytes per second. 240. It stops a peer that reads slowly.
    pub write_rate_min: u32,
    /// Deadlines that do not depend on the protocol: the handshake, and the age at which a connection is closed between
    /// two requests.
    pub deadlines: Deadlines,
    /// How fast connections may send and receive; as fast as they can, unless set.
    pub shaping: Shaping,
    /// How long connections may take to finish requests in progress when the server drains at a signal. 25 seconds:
    /// Kubernetes kills a process 30 seconds after SIGTERM. Event streams and WebSockets end by themselves at once.
    /// [`ServerHandle::run_until_signal`](tidegate_engine::ServerHandle::run_until_signal) takes it as its argument.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let (engine, http1) = (engine::Limits::default(), http1::Limits::default());
        let http2 = http2::Limits::default();
        Self {
            connections_max: engine.connections_max,
            memory_max: engine.memory_max,
            request_line_bytes_max: http1.request_line_bytes_max,
            head_bytes_max: http1.head_bytes_max,
            headers_max: http1.headers_max,
            body_bytes_max: 16 * 1024 * 1024,
            collected_body_bytes_max: 1024 * 1024,
            head_timeout: http1.head_timeout,
            body_timeout: http1.body_timeout,
            body_rate_min: http1.body_rate_min,
            receive_timeout: Duration::from_secs(600),
            request_timeout: Duration::from_secs(60),
            idle_timeout: http1.idle_timeout,
            pipelined_requests_max: 16,
            streams_max: http2.streams_max,
            abuse_max: http2.abuse_max,
            abuse_credit_per_request: http2.abuse_credit_per_request,
            abuse_leak_per_second: http2.abuse_leak_per_second,
            abuse_reset_age: http2.abuse_reset_age,
            field_block_bytes_max: http2.field_block_bytes_max,
            header_table_bytes_max: http2.header_table_bytes_max,
            qpack_table_bytes_max: 0,
            qpack_blocked_streams_max: 0,
            qpack_waiting_bytes_max: 64 * 1024,
            qpack_encoder_bytes_max: 0,
            stream_window_bytes: http2.stream_window_bytes,
            stream_window_bytes_max: http2.stream_window_bytes_max,
            connection_window_bytes: http2.connection_window_bytes,
            settings_timeout: http2.settings_timeout,
            ping_interval: http2.ping_interval,
            ping_timeout: http2.ping_timeout,
            write_timeout: engine.write_timeout,
            write_rate_min: engine.write_rate_min,
            deadlines: engine.deadlines,
            shaping: engine.shaping,
            drain_timeout: Duration::from_secs(25),
        }
    }
}

impl Limits {
    pub(crate) fn http1(&self) -> http1::Limits {
        http1::Limits {
            request_line_bytes_max: self.request_line_bytes_max,
            head_bytes_max: self.head_bytes_max,
            headers_max: self.headers_max,
            body_bytes_max: self.body_bytes_max,
            head_timeout: self.head_timeout,
            body_timeout: self.body_timeout,
            body_rate_min: self.body_rate_min,
            idle_timeout: self.idle_timeout,
            ..http1::Limits::default()
        }
    }

    pub(crate) fn http2(&self) -> http2::Limits {
        http2::Limits {
            headers_max: self.headers_max,
            head_bytes_max: self.head_bytes_max.min(http2::HEAD_BYTES_CEILING),
            field_block_bytes_max: self.field_block_bytes_max,
            header_table_bytes_max: self.header_table_bytes_max,
            streams_max: self.streams_max,
            abuse_max: self.abuse_max,
            abuse_credit_per_request: self.abuse_credit_per_request,
            abuse_leak_per_second: self.abuse_leak_per_second,
            abuse_reset_age: self.abuse_reset_age,
            stream_window_bytes: self.stream_window_bytes,
            stream_window_bytes_max: self.stream_window_bytes_max,
            connection_window_bytes: self.connection_window_bytes,
            body_bytes_max: self.body_bytes_max,
            body_timeout: self.body_timeout,
            body_rate_min: self.body_rate_min,
            head_timeout: self.head_timeout,
            idle_timeout: self.idle_timeout,
            settings_timeout: self.settings_timeout,
            ping_interval: self.ping_interval,
            ping_timeout: self.ping_timeout,
            ..http2::Limits::default()
        }
    }

    #[cfg(feature = "http3")]
    pub(crate) fn http3(&self) -> tidegate_http3::Limits {
        tidegate_http3::Limits {
            headers_max: self.headers_max,
            head_bytes_max: self.head_bytes_max.min(tidegate_http3::HEAD_BYTES_CEILING),
            field_section_bytes_max: self.field_block_bytes_max,
            body_bytes_max: self.body_bytes_max,
            head_timeout: self.head_timeout,
            body_timeout: self.body_timeout,
            body_rate_min: self.body_rate_min,
            idle_timeout: self.idle_timeout,
            abuse_max: self.abuse_max,
            abuse_credit_per_request: self.abuse_credit_per_request,
            abuse_leak_per_second: self.abuse_leak_per_second,
            abuse_reset_age: self.abuse_reset_age,
            age_max: self.deadlines.age_max,
            age_grace: self.deadlines.age_grace,
            qpack_table_bytes_max: self.qpack_table_bytes_max,
            qpack_blocked_streams_max: self.qpack_blocked_streams_max,
            qpack_waiting_bytes_max: self.qpack_waiting_bytes_max,
            qpack_encoder_bytes_max: self.qpack_encoder_bytes_max,
            ..tidegate_http3::Limits::default()
        }
    }

    /// The QUIC limits that follow from these, of [`Config::http3`](crate::Config::http3).
    #[cfg(feature = "http3")]
    #[must_use]
    pub fn quic(&self) -> tidegate_quic::TransportLimits {
        let defaults = tidegate_quic::TransportLimits::default();
        tidegate_quic::TransportLimits {
            connections_max: self.connections_max.min(defaults.connections_max),
            bidirectional_max: self.streams_max,
            idle_timeout: Some(self.idle_timeout),
            ping_interval: self.ping_interval.or(defaults.ping_interval),
            ..defaults
        }
    }

    pub(crate) fn engine(&self) -> engine::Limits {
        engine::Limits {
            connections_max: self.connections_max,
            memory_max: self.memory_max,
            write_timeout: self.write_timeout,
            write_rate_min: self.write_rate_min,
            deadlines: self.deadlines,
            shaping: self.shaping,
            ..engine::Limits::default()
        }
    }
}
