//! `TransportLimits`: the limits that protect an endpoint.

use std::time::Duration;

use tidegate_sys::DatagramOptions;

/// The limits of an endpoint. Each has a default that protects.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::quic::TransportLimits;
///
/// let limits = TransportLimits { idle_timeout: Some(Duration::from_secs(60)), ..TransportLimits::default() };
/// assert_eq!(limits.stream_window, 256 * 1024);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportLimits {
    /// Connections of an endpoint, which is one a loop; 16,384 by default. Further ones are refused.
    pub connections_max: usize,
    /// Connections whose handshake is under way; 1,024 by default. While there are as many, the Initials of further ones
    /// are dropped without a response. While there are more than an eighth of that, a client whose address is not validated
    /// gets a Retry (RFC 9000 §8.1.2), which costs no memory.
    pub handshakes_max: usize,
    /// Bytes of a connection that were received and not read, over all streams; 1 MiB by default.
    pub receive_window: u32,
    /// The same for one stream; 256 KiB by default, at most 1 MiB.
    pub stream_window: u32,
    /// Bytes of a connection that were written and not acknowledged; 512 KiB by default. Bytes above that wait in the queues
    /// of streams, where the water marks bound them.
    pub send_window: u32,
    /// Bidirectional streams that the peer may have open; 100 by default.
    pub bidirectional_max: u32,
    /// Bidirectional streams that the peer may have open in the beginning; 16 by default. While it has half of them open, it
    /// may open four times as many, up to [`bidirectional_max`](Self::bidirectional_max). A connection has a record for each
    /// stream that the peer may open, whether it is open or not, so an idle one costs less. A peer that wants more at once
    /// waits for a round trip.
    pub bidirectional_initial: u32,
    /// Unidirectional streams that the peer may have open; 8 by default. HTTP/3 needs three.
    pub unidirectional_max: u32,
    /// Bytes of datagrams that were received and not read (RFC 9221), 32 more for each. None by default, and then
    /// neither side sends any. Above that the oldest is dropped. It bounds the memory for datagrams that the application does
    /// not read, and they count in the memory of the loop (`memory_max`): when that is used up, the connections with the most of them
    /// lose all that were received.
    pub datagram_receive_bytes: Option<u32>,
    /// Bytes of datagrams that wait to be sent, 32 more for each; 64 KiB by default. Above that the oldest is dropped.
    pub datagram_send_bytes: u32,
    /// Bytes of the TLS handshake that came out of order; 16 KiB by default.
    pub crypto_bytes: u32,
    /// How long a connection may be without a packet of the peer; 30 seconds by default. The shorter one of both sides
    /// counts. `None` is no limit of this side.
    pub idle_timeout: Option<Duration>,
    /// How often this side sends something to keep a connection; never by default.
    pub keep_alive: Option<Duration>,
    /// After how long without a packet of the peer a connection with open bidirectional streams sends a PING; 15 seconds by
    /// default, and at most a third of the shorter idle timeout of both sides. So the idle timeout of neither side ends a connection while a response
    /// is worked on. A peer that has vanished does not answer, and then the idle timeout ends the connection.
    pub ping_interval: Option<Duration>,
    /// How long a connection that ends in good order waits until the peer has all bytes; 10 seconds by default. It stops
    /// peers that acknowledge nothing.
    pub end_timeout: Duration,
    /// Whether clients send early data (0-RTT, RFC 9001 §4.6), and servers take it; not by default, since an attacker can
    /// send a copy of it again. A server then reports a session before its handshake is complete, and
    /// [`StreamEndpoint::is_early`](tidegate_codec::StreamEndpoint::is_early) names the streams that it may be a copy of.
    /// Datagrams (RFC 9221) have no such mark: early ones wait in the queue of
    /// [`datagram_receive_bytes`](Self::datagram_receive_bytes) until the handshake is complete.
    /// HTTP/3 answers requests of safe methods without a body early, and holds all others until the handshake is complete.
    pub early_data: bool,
    /// TLS sessions that a server with early data remembers, 1,024 by default, each of less than 2 KiB and for one
    /// resumption: so a copy is refused as long as the process lives. Above that the server forgets the oldest, and their
    /// clients handshake in full.
    pub early_sessions_max: u32,
    /// Datagrams of one connection that leave as one run; 8 by default. Networks drop parts of longer bursts.
    pub run_max: u16,
    /// A run is longer than [`run_max`](Self::run_max), up to 64,000 bytes, if congestion control permits that many datagrams in
    /// this time; 1 millisecond by default. At 100 Mbit a second it has 8. With zero, no run is longer.
    pub run_time: Duration,
    /// The largest UDP payload that is received, in bytes, from 1,200; 1,472 by default. Above that, such as 8,972 for an MTU
    /// of 9,000, this side sends payloads of up to so many bytes as well, as far as the path and the peer take them. The
    /// sockets need room for them: [`ServerConfig::socket_options`](crate::ServerConfig::socket_options).
    pub payload_bytes_max: u16,
}

impl Default for TransportLimits {
    fn default() -> Self {
        Self {
            connections_max: 16_384,
            handshakes_max: 1024,
            receive_window: 1024 * 1024,
            stream_window: 256 * 1024,
            send_window: 512 * 1024,
            bidirectional_max: 100,
            bidirectional_initial: 16,
            unidirectional_max: 8,
            datagram_receive_bytes: None,
            datagram_send_bytes: 64 * 1024,
            crypto_bytes: 16 * 1024,
            idle_timeout: Some(Duration::from_secs(30)),
            keep_alive: None,
            ping_interval: Some(Duration::from_secs(15)),
            end_timeout: Duration::from_secs(10),
            early_data: false,
            early_sessions_max: 1024,
            run_max: 8,
            run_time: Duration::from_millis(1),
            payload_bytes_max: ETHERNET_PAYLOAD_BYTES,
        }
    }
}

impl TransportLimits {
    /// The options of a socket with room for the longest payload.
    pub(crate) fn socket_options(&self) -> DatagramOptions {
        let options = DatagramOptions::default();
        DatagramOptions { payload_bytes_max: options.payload_bytes_max.max(self.payload_bytes_max), ..options }
    }

    /// After how long without a packet of the peer a connection with open streams sends a PING.
    pub(crate) fn silence(&self) -> Option<Duration> {
        Some(self.ping_interval?.min(silence_of(self.idle_timeout)))
    }
}

/// After how long without a packet of the peer a PING has to be sent for an idle timeout: two may be lost. The least is for
/// peers that demand many packets by a short idle timeout.
pub(crate) fn silence_of(idle_timeout: Option<Duration>) -> Duration {
    // An idle timeout of zero is none (RFC 9000 §18.2).
    let idle_timeout = idle_timeout.filter(|idle| !idle.is_zero());
    idle_timeout.map_or(Duration::MAX, |idle| (idle / 3).max(SILENCE_MIN))
}

/// The largest UDP payload in an Ethernet frame over IPv4.
pub(crate) const ETHERNET_PAYLOAD_BYTES: u16 = 1472;

const SILENCE_MIN: Duration = Duration::from_millis(100);

/// The largest window of a stream, in bytes.
pub(crate) const STREAM_WINDOW_MAX: u32 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_due_within_a_third_of_an_idle_timeout_and_not_more_often_than_ten_times_a_second() {
        assert_eq!(silence_of(Some(Duration::from_secs(9))), Duration::from_secs(3));
        assert_eq!(silence_of(Some(Duration::from_millis(1))), SILENCE_MIN);
        assert_eq!((silence_of(None), silence_of(Some(Duration::ZERO))), (Duration::MAX, Duration::MAX));
    }
}
