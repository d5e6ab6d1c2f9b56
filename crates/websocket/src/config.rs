//! `Config`: the limits of a connection, its pings, and compression.

use std::time::Duration;

/// The messages that a connection accepts and sends. Every default protects. A codec keeps it behind an `Arc`, which
/// connections share.
///
/// A peer that is slow within a frame's header or in the closing handshake is found by pings and by `close_timeout`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Bytes of a message, after decompression, in one frame or many; 1 MiB unless set. A longer one closes the
    /// connection with the code 1009, and so does one of more than 512 MiB that is to be yielded whole, and one whose
    /// compressed bytes are an eighth and 1 KiB more than this: blocks without content would take time without end.
    pub message_bytes_max: u64,
    /// Messages of more bytes are yielded [piece by piece](crate::Message::Piece) as they arrive, and the codec
    /// buffers none of them. `None` unless set: every message is yielded whole.
    pub pieces_after: Option<u32>,
    /// How long a message that is yielded whole may take, from its first bytes to its last; 30 seconds unless set, `None`
    /// for no bound. A peer that has sent `message_rate_min` meanwhile gets as long again; for any other the connection
    /// closes with the code 1008. It stops peers that occupy memory with messages that never end. Time in which the
    /// application does not receive does not count.
    pub message_timeout: Option<Duration>,
    /// The lowest rate at which the peer has to send the rest of a message, in bytes per second, averaged over a
    /// `message_timeout`; 0 if one byte in that time is enough. 240 unless set.
    pub message_rate_min: u32,
    /// Frames without payload in a message, apart from its last; 64 unless set.
    pub empty_frames_max: u32,
    /// Control frames of the peer within a second; 100 unless set.
    pub control_frames_max: u16,
    /// The codec sends a ping when the peer was silent for this long; 30 seconds unless set, `None` for no pings.
    pub ping_interval: Option<Duration>,
    /// How long after a ping the peer may be silent; 20 seconds unless set. Time in which bytes wait to be sent does not
    /// count: the ping is behind them.
    pub pong_timeout: Duration,
    /// How long the peer may take to answer a close frame; 5 seconds unless set. Time in which bytes wait to be sent does
    /// not count.
    pub close_timeout: Duration,
    /// Whether pings, pongs and the close frame are yielded as messages. False unless set; the codec answers pings and the
    /// close frame in any case.
    pub yields_control: bool,
    /// When the server drains, each connection sends its close frame at a random time within this, with the code 1012, so
    /// that clients do not return all at once; the drain's timeout is longer. `None` unless set: at once, with 1001. Until then
    /// the connection goes on. A channel ends its messages at once in any case.
    pub drain_spread: Option<Duration>,
    /// Compression, if the peer offers or accepts it. `None` unless set.
    pub deflate: Option<Deflate>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            message_bytes_max: 1024 * 1024,
            pieces_after: None,
            message_timeout: Some(Duration::from_secs(30)),
            message_rate_min: 240,
            empty_frames_max: 64,
            control_frames_max: 100,
            ping_interval: Some(Duration::from_secs(30)),
            pong_timeout: Duration::from_secs(20),
            close_timeout: Duration::from_secs(5),
            yields_control: false,
            drain_spread: None,
            deflate: None,
        }
    }
}

/// permessage-deflate: its negotiation and its limits.
///
/// A context takes some 320 KiB to compress and 48 KiB to decompress. Without takeover it comes from a pool of the
/// thread for the length of a message, so an idle connection has none. With takeover a connection keeps its contexts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deflate {
    /// Whether our compressor may refer to the messages before. False unless set: our answer is
    /// `no_context_takeover`.
    pub takeover: bool,
    /// Whether the peer's compressor may refer to its messages before. False unless set.
    pub peer_takeover: bool,
    /// The level of compression, 1 to 9; 4 unless set.
    pub level: u8,
    /// The logarithm of our compressor's window, 9 to 15; 15 unless set. The peer may ask for less.
    pub window_bits: u8,
    /// Messages of fewer bytes are not compressed; 64 unless set.
    pub compress_bytes_min: usize,
    /// How many bytes a compressed message may have for each byte from the peer, once it has `ratio_after`; 100 unless
    /// set.
    pub ratio_max: u32,
    /// A message up to so many bytes is not compared with `ratio_max`; 256 KiB unless set.
    pub ratio_after: u64,
}

impl Default for Deflate {
    fn default() -> Self {
        Self {
            takeover: false,
            peer_takeover: false,
            level: 4,
            window_bits: 15,
            compress_bytes_min: 64,
            ratio_max: 100,
            ratio_after: 256 * 1024,
        }
    }
}
