//! `Tls`: a filter over rustls, for both roles.
//!
//! It uses the unbuffered interface of rustls. Received records are decrypted where they were received, and handed on as
//! views; records to send are encrypted where they are sent from. The filter has no buffer, so an idle connection costs
//! what rustls keeps. rustls itself copies the bytes of each record once on either side.
//!
//! `record.rs` finds the plain bytes of a record, `error.rs` has the errors.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{ClientConfig, CommonState, ServerConfig};
use tidegate::Filter;
use tidegate::codec::{Input, Outbound, Output, ReceiveHint, Step};

use crate::error::TlsError;
use crate::record::{Opened, record_bytes};

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

/// The most plain bytes of a record (RFC 8446 §5.1).
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// What a record adds to them: header, type and tag; in TLS 1.2 a nonce.
const RECORD_OVERHEAD: usize = 64;

/// From this length of a record on, the peer sends in bulk, and it pays to receive whole records only.
const BULK_RECORD_BYTES_MIN: usize = 8 * 1024;

const CLOSE_BYTES_MAX: usize = 128;
