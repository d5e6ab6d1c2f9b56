//! `Tls`: the filter.

use std::fmt;
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{HandshakeKind, ProtocolVersion, SupportedCipherSuite};
use tidegate_buffer::{Input, Outbound, ReceiveHint};
use tidegate_codec::{Filter, Output, Step};

use crate::client::ClientConfig;
use crate::error::Error;
use crate::records::{Progress, Records, record_bytes};
use crate::server::ServerConfig;

/// TLS 1.2 or 1.3 below a codec: `Over::new(config.accept(), codec)`.
///
/// The codec's messages are exchanged once the handshake is complete, and
/// [`Event::Established`](https://docs.rs/tidegate/latest/tidegate/enum.Event.html) reports that. From then on the
/// methods of this type report what the handshake has agreed on.
///
/// The filter decrypts where bytes were received and encrypts where they are sent from, and it buffers nothing. What is
/// flushed together shares records. The records of a long response are small at first, so that the peer can begin to
/// read when the first packet arrives, and 16 KiB later.
///
/// At the end of a connection both sides send a `close_notify`. A peer that ends without one causes
/// [`Error::Truncated`], since an attacker could have cut the stream.
pub struct Tls {
    records: Records,
    deadline: Deadline,
    requested_name: Option<Box<str>>,
    /// Plain bytes that were sent in small records since the queue was last empty for long.
    small_bytes: u32,
    /// The length of the last long record of the peer, and the bytes that are missing from the record in the input.
    record_bytes: u32,
    missing_bytes: u32,
    /// A handshake message has arrived in part. rustls refers to its bytes, which are still in the input, so every call
    /// must have the input until the rest has come.
    awaits_fragment: bool,
    peer_closed: bool,
    we_closed: bool,
}

/// By when the handshake has to be complete.
enum Deadline {
    /// So long after the first call, which has the time.
    After(Duration),
    At(Instant),
    /// It is complete, or there is none.
    None,
}

impl Tls {
    pub(crate) fn server(config: &ServerConfig) -> Result<Self, rustls::Error> {
        Ok(Self::new(Records::server(config)?, config.handshake_timeout()))
    }

    pub(crate) fn client(config: &ClientConfig, name: ServerName<'static>) -> Result<Self, rustls::Error> {
        Ok(Self::new(Records::client(config, name)?, config.handshake_timeout()))
    }

    const fn new(records: Records, handshake_timeout: Duration) -> Self {
        Self {
            records,
            deadline: Deadline::After(handshake_timeout),
            requested_name: None,
            small_bytes: 0,
            record_bytes: 0,
            missing_bytes: 0,
            awaits_fragment: false,
            peer_closed: false,
            we_closed: false,
        }
    }

    /// The protocol that both sides speak above TLS (ALPN, RFC 7301), if they have agreed on one.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.records.common().alpn_protocol()
    }

    /// The name that the client has requested (SNI, RFC 6066 §3), on the server's side.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.requested_name.as_deref()
    }

    /// The peer's certificates, its own first. A server has them if it has requested them and the client has some.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.records.common().peer_certificates()
    }

    /// The version of TLS, once it is known.
    #[must_use]
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.records.common().protocol_version()
    }

    /// The cipher suite, once it is known.
    #[must_use]
    pub fn cipher_suite(&self) -> Option<SupportedCipherSuite> {
        self.records.common().negotiated_cipher_suite()
    }

    /// Whether the handshake has resumed an earlier session, once that is known.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.records.common().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The time starts with the first call, and ends with the handshake.
    fn update_deadline(&mut self, now: Instant) {
        match self.deadline {
            Deadline::None => {}
            _ if self.is_established() => self.deadline = Deadline::None,
            Deadline::After(timeout) => self.deadline = now.checked_add(timeout).map_or(Deadline::None, Deadline::At),
            Deadline::At(_) => {}
        }
    }

    /// How many plain bytes the next records have at most.
    fn record_bytes_max(&mut self, pending: u64) -> usize {
        if pending <= SHORT_BYTES_MAX {
            // The peer has all of it at once, or is idle between such messages.
            self.small_bytes = 0;
            return RECORD_BYTES_MAX;
        }
        if self.small_bytes >= SMALL_BYTES_MAX {
            return RECORD_BYTES_MAX;
        }
        self.small_bytes = self.small_bytes.saturating_add(u32::try_from(pending).unwrap_or(u32::MAX));
        SMALL_RECORD_BYTES
    }

    fn take_note(&mut self, progress: &Progress) {
        self.peer_closed |= *progress == Progress::PeerClosed;
    }
}

impl Filter for Tls {
    type Error = Error;

    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Error> {
        self.update_deadline(reply.now());
        if self.peer_closed {
            return Ok(Step::End);
        }
        let read = self.records.read(wire, plain, reply);
        if read.requested_name.is_some() {
            self.requested_name = read.requested_name;
        }
        match read.progress {
            Ok(Progress::More) => {
                if read.consumed >= BULK_RECORD_BYTES_MIN {
                    self.record_bytes = read.consumed as u32;
                }
                Ok(Step::Message(()))
            }
            Ok(Progress::NeedsInput) => {
                self.update_deadline(reply.now());
                // rustls leaves complete records only where it still refers to them.
                let first = record_bytes(wire.bytes());
                self.awaits_fragment = first.is_some_and(|bytes| bytes <= wire.len());
                self.missing_bytes = first.map_or(0, |bytes| bytes.saturating_sub(wire.len()) as u32);
                Ok(Step::NeedMore)
            }
            Ok(Progress::PeerClosed) => {
                self.peer_closed = true;
                Ok(Step::End)
            }
            Err(error) => {
                self.records.write_alert(reply);
                self.we_closed = true;
                Err(error)
            }
        }
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Error> {
        if self.we_closed || self.awaits_fragment {
            return Ok(());
        }
        if !self.is_established() {
            self.update_deadline(out.now());
            // A client begins the handshake.
            let progress = self.records.write_handshake(out)?;
            self.take_note(&progress);
            return Ok(());
        }
        if plain.has_flushed() {
            let record_bytes_max = self.record_bytes_max(plain.pending());
            let progress = self.records.encrypt(plain, record_bytes_max, out)?;
            self.take_note(&progress);
        }
        Ok(())
    }

    fn decode_eof(&mut self, _: &mut Input, _: &mut Output<'_>) -> Result<(), Error> {
        if self.peer_closed { Ok(()) } else { Err(Error::Truncated) }
    }

    fn close(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        if self.awaits_fragment || std::mem::replace(&mut self.we_closed, true) {
            return Ok(());
        }
        self.records.close(out).map(drop)
    }

    fn receive_hint(&self) -> Option<ReceiveHint> {
        let hint = ReceiveHint { missing_bytes: self.missing_bytes, frame_bytes: self.record_bytes };
        (self.record_bytes > 0).then_some(hint)
    }

    fn is_established(&self) -> bool {
        !self.records.common().is_handshaking()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.deadline {
            Deadline::At(at) => Some(at),
            Deadline::After(_) | Deadline::None => None,
        }
    }

    fn handle_timeout(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        self.deadline = Deadline::None;
        self.we_closed = true;
        Err(Error::HandshakeTimeout)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("version", &self.version())
            .field("server_name", &self.server_name())
            .finish_non_exhaustive()
    }
}

/// The most plain bytes of a record (RFC 8446 §5.1).
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// The plain bytes of a record that fits into one TCP segment of 1,460 bytes.
const SMALL_RECORD_BYTES: usize = 1_369;

/// So many bytes of a long response are sent in small records: about what a TCP connection sends in its first round
/// trips.
const SMALL_BYTES_MAX: u32 = 64 * 1024;

/// So many bytes or fewer are sent at once, in as few records as possible.
const SHORT_BYTES_MAX: u64 = 8 * 1024;

/// From this length of a record on, the peer sends in bulk, and it pays to receive whole records only.
const BULK_RECORD_BYTES_MIN: usize = 8 * 1024;
