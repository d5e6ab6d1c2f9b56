//! `Tls`: a filter over rustls, for both roles.
//!
//! It uses the unbuffered interface of rustls. Received records are decrypted where they were received, and handed on as
//! views; records to send are encrypted where they are sent from. The filter has no buffer, so an idle connection costs
//! what rustls keeps. rustls itself copies the bytes of each record once on either side.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{ClientConfig, CommonState, ServerConfig};
use tidegate::Filter;
use tidegate::codec::{Blame, Fault, Input, Outbound, Output, ReceiveHint, Step};

/// TLS 1.2 or 1.3 below a codec: `Over::new(Tls::server(config)?, codec)`.
pub(crate) struct Tls {
    connection: Connection,
    peer_closed: bool,
    we_closed: bool,
    /// A handshake message has arrived in part. rustls refers to its bytes, which are still in the input, so every call
    /// must have the input until the rest has come.
    awaits_fragment: bool,
    /// The length of the last long record, or zero, and the bytes that are missing from the record in the input.
    record_bytes: u32,
    missing_bytes: u32,
}

enum Connection {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

impl Tls {
    /// The server's side.
    ///
    /// # Errors
    /// Those of rustls for an invalid configuration.
    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self::new(Connection::Server(Box::new(UnbufferedServerConnection::new(config)?))))
    }

    /// The client's side, for a server with this name.
    ///
    /// # Errors
    /// Those of rustls for an invalid configuration.
    pub(crate) fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, rustls::Error> {
        Ok(Self::new(Connection::Client(Box::new(UnbufferedClientConnection::new(config, name)?))))
    }

    const fn new(connection: Connection) -> Self {
        Self {
            connection,
            peer_closed: false,
            we_closed: false,
            awaits_fragment: false,
            record_bytes: 0,
            missing_bytes: 0,
        }
    }

    /// Has rustls process `wire`. Returns how many bytes of it are done with, and what happened.
    fn process(
        &mut self,
        wire: &mut [u8],
        task: Task<'_>,
        out: &mut Output<'_>,
    ) -> (usize, Result<Progress, TlsError>) {
        match &mut self.connection {
            Connection::Client(connection) => finish(connection.process_tls_records(wire), task, out),
            Connection::Server(connection) => finish(connection.process_tls_records(wire), task, out),
        }
    }

    /// Does `task` as soon as rustls has nothing else to send.
    fn write(&mut self, mut task: Task<'_>, out: &mut Output<'_>) -> Result<(), TlsError> {
        while !self.awaits_fragment {
            match self.process(&mut [], task.reborrow(), out).1? {
                Progress::Wrote => {}
                Progress::PeerClosed => self.peer_closed = true,
                Progress::Opened(_) | Progress::NeedsInput => break,
            }
        }
        Ok(())
    }

    /// Writes the alert that reports an error to the peer, and nothing after it.
    fn write_alert(&mut self, out: &mut Output<'_>) {
        while self.common().wants_write() && self.process(&mut [], Task::Read, out).1.is_ok() {}
        self.we_closed = true;
    }

    fn common(&self) -> &CommonState {
        match &self.connection {
            Connection::Client(connection) => connection,
            Connection::Server(connection) => connection,
        }
    }
}

impl Filter for Tls {
    type Error = TlsError;

    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, TlsError> {
        if self.peer_closed {
            return Ok(Step::End);
        }
        let (done, progress) = self.process(wire.make_mut(reply.pool()), Task::Read, reply);
        match progress {
            Ok(Progress::Opened(record)) => {
                if done >= BULK_RECORD_BYTES_MIN {
                    self.record_bytes = done as u32;
                }
                match record.find(&wire.bytes()[..done]) {
                    Some(range) => {
                        let end = range.end;
                        wire.move_to(range, plain, reply.pool());
                        wire.consume(done - end);
                    }
                    None => {
                        wire.consume(done);
                        plain.append(reply.pool().copy(record.all().ok_or(TlsError::NotInPlace)?), reply.pool());
                    }
                }
                Ok(Step::Message(()))
            }
            Ok(Progress::Wrote) => {
                wire.consume(done);
                Ok(Step::Message(()))
            }
            Ok(Progress::NeedsInput) => {
                wire.consume(done);
                // rustls leaves complete records only where it still refers to them.
                let first = record_bytes(wire.bytes());
                self.awaits_fragment = first.is_some_and(|bytes| bytes <= wire.len());
                self.missing_bytes = first.map_or(0, |bytes| bytes.saturating_sub(wire.len()) as u32);
                Ok(Step::NeedMore)
            }
            Ok(Progress::PeerClosed) => {
                wire.consume(done);
                self.peer_closed = true;
                Ok(Step::End)
            }
            Err(error) => {
                wire.consume(done);
                self.write_alert(reply);
                Err(error)
            }
        }
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), TlsError> {
        if self.we_closed {
            return Ok(());
        }
        if !self.is_established() {
            // A client begins the handshake.
            return self.write(Task::Read, out);
        }
        if plain.has_flushed() { self.write(Task::Encrypt(plain), out) } else { Ok(()) }
    }

    fn decode_eof(&mut self, _: &mut Input, _: &mut Output<'_>) -> Result<(), TlsError> {
        if self.peer_closed { Ok(()) } else { Err(TlsError::Truncated) }
    }

    fn close(&mut self, out: &mut Output<'_>) -> Result<(), TlsError> {
        if std::mem::replace(&mut self.we_closed, true) { Ok(()) } else { self.write(Task::Close, out) }
    }

    fn receive_hint(&self) -> Option<ReceiveHint> {
        let hint = ReceiveHint { missing_bytes: self.missing_bytes, frame_bytes: self.record_bytes };
        (self.record_bytes > 0).then_some(hint)
    }

    fn is_established(&self) -> bool {
        !self.common().is_handshaking()
    }
}

/// What is done when rustls can send.
enum Task<'a> {
    Read,
    Encrypt(&'a mut Outbound),
    Close,
}

impl Task<'_> {
    fn reborrow(&mut self) -> Task<'_> {
        match self {
            Task::Read => Task::Read,
            Task::Encrypt(plain) => Task::Encrypt(plain),
            Task::Close => Task::Close,
        }
    }
}

/// What one call of rustls resulted in.
enum Progress {
    /// A record with plain bytes was decrypted.
    Opened(Opened),
    /// A message of rustls was written, or is on its way.
    Wrote,
    NeedsInput,
    PeerClosed,
}

fn finish<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    task: Task<'_>,
    out: &mut Output<'_>,
) -> (usize, Result<Progress, TlsError>) {
    let UnbufferedStatus { mut discard, state } = status;
    let progress = match state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => match traffic.next_record() {
            Some(Ok(record)) => {
                discard += record.discard;
                Ok(Progress::Opened(Opened::new(record.payload)))
            }
            Some(Err(error)) => Err(error.into()),
            None => Ok(Progress::Wrote),
        },
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            // rustls reports the length if there is too little space.
            let length = match message.encode(&mut []) {
                Err(EncodeError::InsufficientSize(error)) => error.required_size,
                _ => 0,
            };
            out.write_with(length, |space| message.encode(space))
                .map(|_| Progress::Wrote)
                .map_err(|_| TlsError::Unsupported)
        }
        Ok(ConnectionState::TransmitTlsData(message)) => {
            message.done();
            Ok(Progress::Wrote)
        }
        Ok(ConnectionState::WriteTraffic(traffic)) => match task {
            Task::Read => Ok(Progress::NeedsInput),
            Task::Encrypt(plain) => encrypt(traffic, plain, out).map(|()| Progress::NeedsInput),
            Task::Close => write(out, CLOSE_BYTES_MAX, traffic, |traffic, space| traffic.queue_close_notify(space))
                .map(|()| Progress::NeedsInput),
        },
        Ok(ConnectionState::BlockedHandshake) => Ok(Progress::NeedsInput),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Progress::PeerClosed),
        Ok(_) => Err(TlsError::Unsupported),
        Err(error) => Err(error.into()),
    };
    (discard, progress)
}

/// Encrypts the flushed bytes, from where they lie to where they are sent from. Small writes lie behind each other
/// already, and share a record.
fn encrypt<Data>(
    mut traffic: WriteTraffic<'_, Data>,
    plain: &mut Outbound,
    out: &mut Output<'_>,
) -> Result<(), TlsError> {
    while let Some(front) = plain.front() {
        let record = &front[..front.len().min(RECORD_BYTES_MAX)];
        let count = record.len();
        write(out, count + RECORD_OVERHEAD, &mut traffic, |traffic, space| traffic.encrypt(record, space))?;
        plain.advance(count as u64);
    }
    Ok(())
}

/// Has rustls write up to `length` bytes into the queue, or as many as it then requires.
fn write<T>(
    out: &mut Output<'_>,
    length: usize,
    mut traffic: T,
    mut fill: impl FnMut(&mut T, &mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), TlsError> {
    let written = match out.write_with(length, |space| fill(&mut traffic, space)) {
        Err(EncryptError::InsufficientSize(error)) => {
            out.write_with(error.required_size, |space| fill(&mut traffic, space))
        }
        written => written,
    };
    written.map(drop).map_err(|_| TlsError::Exhausted)
}

/// The plain bytes of a record. rustls 0.23 decrypts them in place, behind the record's header, and returns a copy; so
/// the filter looks for the place, and compares the two ends of the copy with it.
struct Opened {
    length: usize,
    /// All of a short record; the two ends of a long one.
    sample: [u8; 2 * SAMPLE_BYTES],
}

impl Opened {
    fn new(payload: &[u8]) -> Self {
        let mut sample = [0; 2 * SAMPLE_BYTES];
        if payload.len() <= sample.len() {
            sample[..payload.len()].copy_from_slice(payload);
        } else {
            sample[..SAMPLE_BYTES].copy_from_slice(&payload[..SAMPLE_BYTES]);
            sample[SAMPLE_BYTES..].copy_from_slice(&payload[payload.len() - SAMPLE_BYTES..]);
        }
        Self { length: payload.len(), sample }
    }

    /// All bytes, of a short record.
    fn all(&self) -> Option<&[u8]> {
        self.sample.get(..self.length)
    }

    /// Where the bytes lie in `records`, the last of which is the one that was decrypted.
    fn find(&self, records: &[u8]) -> Option<Range<usize>> {
        let mut first = 0;
        loop {
            let end = first + record_bytes(&records[first..])?;
            if end < records.len() {
                first = end;
                continue;
            }
            let range = first + HEADER_BYTES..first + HEADER_BYTES + self.length;
            let is_there = Self::new(records.get(range.clone())?).sample == self.sample;
            return is_there.then_some(range);
        }
    }
}

/// The length of the first record, header included, as soon as its header is there (RFC 8446 §5.1).
fn record_bytes(wire: &[u8]) -> Option<usize> {
    let [_, _, _, high, low] = wire.first_chunk::<HEADER_BYTES>()?;
    Some(HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low])))
}

/// What can go wrong.
#[derive(Debug)]
pub(crate) enum TlsError {
    /// rustls refuses what the peer has sent.
    Tls(rustls::Error),
    /// The peer ended the stream without a `close_notify`: bytes may be missing.
    Truncated,
    /// The keys must not encrypt more.
    Exhausted,
    /// rustls has not decrypted a record where it was received.
    NotInPlace,
    /// A state of rustls that this filter does not know.
    Unsupported,
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}

impl Fault for TlsError {
    fn blame(&self) -> Blame {
        match self {
            Self::Tls(_) | Self::Truncated => Blame::Peer,
            Self::Exhausted => Blame::Limit,
            Self::NotInPlace | Self::Unsupported => Blame::System,
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => error.fmt(f),
            Self::Truncated => f.write_str("the peer ended without a close_notify"),
            Self::Exhausted => f.write_str("the keys must not encrypt more"),
            Self::NotInPlace => f.write_str("rustls has not decrypted a record in place"),
            Self::Unsupported => f.write_str("rustls is in a state that this filter does not know"),
        }
    }
}

impl std::error::Error for TlsError {}

const HEADER_BYTES: usize = 5;

/// The most plain bytes of a record (RFC 8446 §5.1).
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// What a record adds to them: header, type and tag; in TLS 1.2 a nonce.
const RECORD_OVERHEAD: usize = 64;

/// From this length of a record on, the peer sends in bulk, and it pays to receive whole records only.
const BULK_RECORD_BYTES_MIN: usize = 8 * 1024;

const CLOSE_BYTES_MAX: usize = 128;

const SAMPLE_BYTES: usize = 32;
