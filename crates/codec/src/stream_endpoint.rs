//! `StreamEndpoint`: a protocol of datagrams whose sessions carry streams, free of I/O.
//!
//! QUIC (RFC 9000) is one. Its windows and retransmission are its own business, so it is no [`Mux`](crate::mux::Mux): the
//! caller reads from a stream when the application wants bytes, and writes until the stream takes no more.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::endpoint::Endpoint;
use crate::mux::{OpenError, ResetCause};

/// The number of a session of a [`StreamEndpoint`]. An endpoint uses a number once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionNumber(pub u64);

/// The number of a stream, in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamNumber {
    /// The session.
    pub session: SessionNumber,
    /// The number that the protocol has for the stream.
    pub stream: u64,
}

/// Which sides send on a stream (RFC 9000 §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Both sides.
    Bidirectional,
    /// The side that opened the stream.
    Unidirectional,
}

/// Something that happened in a session.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionEvent {
    /// A session is established.
    Established {
        /// The session.
        session: SessionNumber,
        /// The address of its peer.
        peer: SocketAddr,
    },
    /// The handshake of a session that was reported before is complete: its streams are early no more.
    Confirmed(SessionNumber),
    /// The peer has another address now.
    Moved {
        /// The session.
        session: SessionNumber,
        /// The address of its peer.
        peer: SocketAddr,
    },
    /// The peer has opened a stream, which may have bytes.
    Opened {
        /// The stream.
        stream: StreamNumber,
        /// Whether this side sends on it as well.
        direction: Direction,
    },
    /// A stream may have bytes, its end, or a reset.
    Readable(StreamNumber),
    /// A stream that took no more bytes may take some now.
    Writable(StreamNumber),
    /// The peer wants no more bytes of a stream (STOP_SENDING, RFC 9000 §3.5).
    Stopped {
        /// The stream.
        stream: StreamNumber,
        /// The number of the reason, in the application's protocol.
        code: u64,
        /// The peer wants no more, and no error has happened: bytes of the peer are still of use.
        is_unneeded: bool,
    },
    /// The peer has asked for another urgency of a stream, which counts more than that in its bytes.
    Prioritized {
        /// The stream.
        stream: StreamNumber,
        /// Its urgency from now on, from 0, the first, to 7, the last.
        urgency: u8,
    },
    /// A session may have datagrams of its peer.
    Datagrams(SessionNumber),
    /// The peer permits further streams of this side.
    Permitted(SessionNumber),
    /// A session is over, and all of its streams.
    Ended {
        /// The session.
        session: SessionNumber,
        /// The reason.
        reason: Box<dyn Error>,
    },
}

/// Numbers of an endpoint's sessions.
///
/// ```
/// use tidegate::codec::SessionCounts;
///
/// let (mut all, mut of_one) = (SessionCounts::default(), SessionCounts::default());
/// let before = of_one;
/// (of_one.connections, of_one.handshakes) = (3, 5);
/// all.add_change(&before, &of_one);
/// assert_eq!(all, of_one);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SessionCounts {
    /// Connections now, with those in their handshake.
    pub connections: u64,
    /// Connections that were accepted or begun.
    pub begun: u64,
    /// Handshakes that were completed.
    pub handshakes: u64,
    /// Handshakes that failed, or took too long.
    pub handshakes_failed: u64,
    /// Clients that had to prove their address first: of QUIC, Retry packets that were sent (RFC 9000 §8.1.2).
    pub retries: u64,
    /// Clients that were refused, because of the number of connections or by the application.
    pub refused: u64,
    /// First packets that were dropped, because of the number of handshakes or by the application.
    pub ignored: u64,
    /// Packets that were lost, of connections that are over.
    pub packets_lost: u64,
    /// Addresses of peers that have changed.
    pub migrations: u64,
    /// Connections that were idle for too long.
    pub idle_timeouts: u64,
    /// Datagrams of sessions that were dropped, in either direction: a full queue drops its oldest one, and one for no open
    /// stream has no queue.
    pub datagrams_dropped: u64,
}

impl SessionCounts {
    /// How many numbers there are.
    pub const NUMBERS: usize = 11;

    /// The numbers, in the order of the fields.
    #[must_use]
    pub const fn numbers(&self) -> [u64; Self::NUMBERS] {
        let Self { connections, begun, handshakes, handshakes_failed, retries, .. } = *self;
        let Self { refused, ignored, packets_lost, migrations, idle_timeouts, datagrams_dropped, .. } = *self;
        [
            connections,
            begun,
            handshakes,
            handshakes_failed,
            retries,
            refused,
            ignored,
            packets_lost,
            migrations,
            idle_timeouts,
            datagrams_dropped,
        ]
    }

    /// The counts with these [numbers](Self::numbers).
    #[must_use]
    pub const fn from_numbers(numbers: [u64; Self::NUMBERS]) -> Self {
        let [connections, begun, handshakes, handshakes_failed, retries, ..] = numbers;
        let [.., refused, ignored, packets_lost, migrations, idle_timeouts, datagrams_dropped] = numbers;
        Self {
            connections,
            begun,
            handshakes,
            handshakes_failed,
            retries,
            refused,
            ignored,
            packets_lost,
            migrations,
            idle_timeouts,
            datagrams_dropped,
        }
    }

    /// Adds the differences between `before` and `now`.
    pub fn add_change(&mut self, before: &Self, now: &Self) {
        let mut numbers = self.numbers();
        for ((number, before), now) in numbers.iter_mut().zip(before.numbers()).zip(now.numbers()) {
            // The number of connections falls as well.
            *number = number.wrapping_add(now.wrapping_sub(before));
        }
        *self = Self::from_numbers(numbers);
    }
}

/// The outcome of a session's handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handshake {
    /// The protocol that both sides have agreed upon (ALPN).
    pub protocol: Option<Vec<u8>>,
    /// The name that a client has requested (SNI).
    pub server_name: Option<String>,
    /// The certificate of the peer, in DER.
    pub peer_certificate: Option<Vec<u8>>,
}

/// The state of a stream behind the bytes that a read took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEnd {
    /// There are more bytes.
    More,
    /// More bytes may come; [`SessionEvent::Readable`] reports them.
    Blocked,
    /// The peer has ended the stream.
    Ended,
    /// The peer has reset the stream, with this number.
    Reset(u64),
}

/// Why a stream takes no more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteRefused;

/// Why a session takes no datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramRefused {
    /// One of the two sides does not accept datagrams.
    Unsupported,
    /// It has more bytes than [`datagram_bytes_max`](StreamEndpoint::datagram_bytes_max).
    TooLong,
}

impl fmt::Display for DatagramRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "one of the two sides does not accept datagrams",
            Self::TooLong => "the datagram is too long for the path or the peer",
        })
    }
}

impl Error for DatagramRefused {}

/// A protocol of datagrams whose sessions carry streams, such as QUIC.
///
/// The engine gives each stream a codec and an application, as it does for a connection. It fetches all events after each
/// call of [`Endpoint`], reads from a stream while its application wants bytes, and writes the bytes of its queue until
/// [`write`](Self::write) takes none. The bytes that nobody reads stay in the protocol's windows, which stop the peer.
///
/// Calls with the number of a session or stream that is over have no effect.
pub trait StreamEndpoint: Endpoint {
    /// The next event.
    fn poll_event(&mut self, now: Instant) -> Option<SessionEvent>;

    /// Reads bytes of a stream into `space`. Returns how many it has read, and the state behind them. Reading grants
    /// the peer credit for as many.
    fn read(&mut self, stream: StreamNumber, space: &mut [u8]) -> (usize, ReadEnd);

    /// Takes bytes of a stream to send. Returns how many it has taken: fewer than all if a window is full, and then
    /// [`SessionEvent::Writable`] follows.
    ///
    /// # Errors
    /// [`WriteRefused`] if the stream takes no bytes any more.
    fn write(&mut self, stream: StreamNumber, bytes: &[u8]) -> Result<usize, WriteRefused>;

    /// The same with bytes that the protocol may keep without a copy.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_bytes(&mut self, stream: StreamNumber, bytes: Bytes) -> Result<usize, WriteRefused> {
        self.write(stream, &bytes)
    }

    /// Ends a stream behind the bytes that were written.
    fn finish(&mut self, stream: StreamNumber);

    /// The application is done with a stream. Its sending side is reset if that `resets`, and finished otherwise; the peer
    /// is asked to send no more. The protocol has a number for each cause; without a cause the peer has reset the stream.
    fn close(&mut self, stream: StreamNumber, cause: Option<ResetCause>, resets: bool);

    /// Opens a stream.
    ///
    /// # Errors
    /// [`OpenError::Full`] if the peer allows no further stream now, [`OpenError::Ending`] if the session is over.
    fn open(&mut self, session: SessionNumber, direction: Direction) -> Result<StreamNumber, OpenError>;

    /// Ends a session, in good order if no cause is given. No event follows.
    fn end_session(&mut self, session: SessionNumber, cause: Option<ResetCause>, now: Instant);

    /// Sends a datagram of a session (RFC 9221): it may be lost, and comes in any order. If those that wait use up the memory
    /// for them, the oldest is dropped, and counted.
    ///
    /// # Errors
    /// [`DatagramRefused`].
    fn send_datagram(&mut self, _session: SessionNumber, _datagram: Bytes) -> Result<(), DatagramRefused> {
        Err(DatagramRefused::Unsupported)
    }

    /// The oldest datagram of a session that was received and not read.
    fn read_datagram(&mut self, _session: SessionNumber) -> Option<Bytes> {
        None
    }

    /// How many bytes a datagram of a session may have now. `None` if one of the two sides does not accept datagrams. It
    /// changes with the path.
    fn datagram_bytes_max(&mut self, _session: SessionNumber) -> Option<usize> {
        None
    }

    /// How long a datagram takes to the peer and back, as far as that is known.
    fn round_trip(&self, _session: SessionNumber) -> Option<Duration> {
        None
    }

    /// Whether sessions without a stream stay for now although the endpoint drains: their peers may not have learnt of the
    /// drain, and may open further streams.
    fn keeps_idle_sessions(&self) -> bool {
        false
    }

    /// Whether a stream was opened before the handshake of its session was complete (0-RTT, RFC 9001 §9.2): an attacker may
    /// have sent a copy of its bytes.
    fn is_early(&self, _stream: StreamNumber) -> bool {
        false
    }

    /// Whether the handshake of a session is complete. [`SessionEvent::Confirmed`] reports that of a session with early
    /// data.
    fn is_confirmed(&self, _session: SessionNumber) -> bool {
        true
    }

    /// The outcome of a session's handshake.
    fn handshake(&self, _session: SessionNumber) -> Option<Handshake> {
        None
    }

    /// Its counts so far.
    fn counts(&self) -> SessionCounts {
        SessionCounts::default()
    }

    /// Bytes of memory that its sessions keep beside those of streams, such as tables for compression, datagrams that wait, and early
    /// requests that wait for the handshake. The loop counts them as its own, in the one ledger of all connections. It is read after
    /// every dispatch, so it must be cheap.
    fn kept_bytes(&self) -> usize {
        0
    }

    /// Calls `each` for each session that keeps some of these bytes, with their number; the numbers of several calls for one
    /// session add up. When the memory of a loop is used up, the loop takes the sessions that keep the most. Each of them loses its
    /// datagrams by [`drop_datagrams`](Self::drop_datagrams). If it had none, it ends by [`end_session`](Self::end_session), which
    /// frees the rest.
    fn each_kept(&self, _each: &mut dyn FnMut(SessionNumber, usize)) {}

    /// Drops the datagrams of a session that were received and not read, and counts them as dropped.
    fn drop_datagrams(&mut self, _session: SessionNumber) {}

    /// The names of the protocols of its sessions, the uppermost first, for lists of connections.
    fn session_protocols(&self) -> &'static [&'static str] {
        &[]
    }

    /// Streams of a lower number are sent first; 3 unless set, as in RFC 9218 §4.1.
    fn set_urgency(&mut self, _stream: StreamNumber, _urgency: u8) {}
}
