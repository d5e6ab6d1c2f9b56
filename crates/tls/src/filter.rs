//! `Tls`: the filter.

use std::fmt;
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{HandshakeKind, ProtocolVersion, SupportedCipherSuite};
use tidegate_buffer::{Input, Outbound, ReceiveHint};
use tidegate_codec::{Filter, Output, Step};

use crate::challenges;
use crate::client::ClientConfig;
use crate::error::Error;
use crate::record_sizes::RecordSizes;
use crate::records::{Progress, Records, record_bytes};
use crate::server::ServerConfig;

/// TLS 1.2 or 1.3 below a codec: `Over::new(config.accept(), codec)`.
///
/// The codec's messages are exchanged once the handshake is complete, and
/// [`Event::Established`](https://docs.rs/tidegate/latest/tidegate/enum.Event.html) reports that. From then on the
/// methods of this type report the handshake's agreed parameters.
///
/// The filter decrypts where bytes were received and encrypts where they are sent from, and it buffers nothing. Bytes
/// flushed together share records. The records of a long response are small at first, so that the peer can begin to
/// read when the first packet arrives, and 16 KiB later.
///
/// At the end of a connection both sides send a `close_notify`. A peer that ends without one causes
/// [`Error::Truncated`], since an attacker could have cut the stream, unless the codec is
/// [between two messages](tidegate_codec::Codec::is_between_messages).
pub struct Tls {
    records: Records,
    /// How long a handshake, or one message of it afterwards, may take.
    timeout: Duration,
    deadline: Deadline,
    requested_name: Option<Box<str>>,
    sizes: RecordSizes,
    /// The length of the last long record of the peer, and the bytes that are missing from the record in the input.
    record_bytes: u32,
    missing_bytes: u32,
    /// A handshake message has arrived in part. rustls refers to its bytes, which are still in the input, so every call
    /// must have the input until the rest has come.
    awaits_fragment: bool,
    peer_closed: bool,
    we_closed: bool,
}

/// The time by which the current phase must be complete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deadline {
    /// The handshake, which has not begun: the first call has the time.
    NotBegun,
    At(Instant),
    /// Nothing is under way.
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
            timeout: handshake_timeout,
            deadline: Deadline::NotBegun,
            requested_name: None,
            sizes: RecordSizes::new(),
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

    /// The TLS version, once it is known.
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

    /// The time of the handshake starts with the first call. Later it limits how long the rest of a message of the
    /// handshake may take, which nothing is sent before.
    fn update_deadline(&mut self, now: Instant) {
        let is_busy = !self.is_established() || self.awaits_fragment;
        self.deadline = match self.deadline {
            _ if !is_busy => Deadline::None,
            Deadline::At(at) => Deadline::At(at),
            Deadline::NotBegun | Deadline::None => now.checked_add(self.timeout).map_or(Deadline::None, Deadline::At),
        };
    }

    /// Reports an error to the peer; nothing is sent afterwards.
    fn fail(&mut self, error: Error, reply: &mut Output<'_>) -> Error {
        self.records.write_alert(reply);
        self.we_closed = true;
        error
    }

    fn take_note(&mut self, progress: &Progress) {
        self.peer_closed |= *progress == Progress::PeerClosed;
    }
}

impl Filter for Tls {
    type Error = Error;

    fn protocol(&self) -> &'static str {
        "TLS"
    }

    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Error> {
        if self.peer_closed {
            return Ok(Step::End);
        }
        // After a message of the handshake was written, rustls may refer to the wire: read until it is known.
        let read = loop {
            let mut read = self.records.read(wire, plain, reply);
            if let Some(name) = read.requested_name.take() {
                self.requested_name = Some(name);
            }
            if read.progress != Ok(Progress::Wrote) {
                break read;
            }
        };
        let step = match read.progress {
            Ok(Progress::Opened) => {
                if self.alpn() == Some(challenges::PROTOCOL) {
                    return Err(self.fail(Error::ChallengeData, reply));
                }
                if read.consumed >= BULK_RECORD_BYTES_MIN {
                    self.record_bytes = read.consumed as u32;
                }
                // No record of plain bytes comes between the parts of a message (RFC 8446 §5.1).
                self.awaits_fragment = false;
                Step::Message(())
            }
            Ok(Progress::Wrote) => Step::Message(()),
            Ok(Progress::NeedsInput { retained }) => {
                self.awaits_fragment = retained > 0;
                let next = &wire.bytes()[retained..];
                self.missing_bytes = record_bytes(next).map_or(0, |bytes| bytes.saturating_sub(next.len()) as u32);
                if self.awaits_fragment && wire.len() > FRAGMENTS_BYTES_MAX {
                    return Err(self.fail(Error::TooManyFragments, reply));
                }
                Step::NeedMore
            }
            Ok(Progress::PeerClosed) => {
                self.awaits_fragment = false;
                self.peer_closed = true;
                Step::End
            }
            Err(error) => return Err(self.fail(error, reply)),
        };
        self.update_deadline(reply.now());
        Ok(step)
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Error> {
        if self.we_closed {
            // It can never be sent, and must not keep the connection open.
            plain.clear();
            return Ok(());
        }
        if self.awaits_fragment {
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
            let progress = self.records.encrypt(plain, &mut self.sizes, out)?;
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
        let hint =
            ReceiveHint { missing_bytes: self.missing_bytes, frame_bytes: self.record_bytes, ..ReceiveHint::default() };
        (self.record_bytes > 0).then_some(hint)
    }

    fn is_established(&self) -> bool {
        !self.records.common().is_handshaking()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.deadline {
            Deadline::At(at) => Some(at),
            Deadline::NotBegun | Deadline::None => None,
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

/// From this length of a record on, the peer sends in bulk, and it pays to receive whole records only.
const BULK_RECORD_BYTES_MIN: usize = 8 * 1024;

/// rustls accepts messages of the handshake of up to 64 KiB. In records of 64 bytes and more they fit into this.
const FRAGMENTS_BYTES_MAX: usize = 160 * 1024;
