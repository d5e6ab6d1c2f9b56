//! `Records`: a TLS connection of rustls between two queues of bytes. This file alone knows how rustls takes and returns
//! bytes: by the unbuffered interface of 0.23, which later versions do not have.
//!
//! Received records are decrypted where they were received, and their plain bytes are named by their place. Records to
//! send are encrypted where they are sent from. Nothing is stored here, so an idle connection costs only the memory of
//! rustls. rustls itself copies the bytes of each record once, in either direction. With a cryptography that rustls
//! does not have itself, the place is not known, and the plain bytes are copied.

use std::cell::RefCell;
use std::ops::Range;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{CipherSuite, CommonState, SupportedCipherSuite};
use tidegate_buffer::{Input, Outbound, Pool, Slice};
use tidegate_codec::Output;

use crate::certificates::{take_missing, take_requested_name};
use crate::client::ClientConfig;
use crate::error::Error;
use crate::provider::Placement;
use crate::record_sizes::RecordSizes;
use crate::server::ServerConfig;

/// The connection.
pub(crate) struct Records {
    role: Role,
    placement: Placement,
    /// The length of the complete records at the front of the wire. rustls has them already, unless `is_behind`, and
    /// refers to them: it may have moved their bytes, so that the headers among them are no more.
    seen_bytes: usize,
    /// rustls may not have processed all of those.
    is_behind: bool,
}

enum Role {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The plain bytes of a record were moved.
    Opened,
    /// A message of the handshake was written.
    Wrote,
    /// More input is needed. rustls refers to so many bytes at the front of the wire: a part of a message.
    NeedsInput { retained: usize },
    /// The peer has sent its `close_notify`.
    PeerClosed,
}

/// The work to do when rustls can send.
enum Task<'a> {
    Read,
    Encrypt { plain: &'a mut Outbound, sizes: &'a mut RecordSizes },
    Close,
}

/// The result of one rustls call.
enum ProcessResult {
    PlainRecord(PlainRecord),
    /// A message of the handshake was written or announced as sent.
    Wrote,
    NeedsInput,
    PeerClosed,
    /// Both sides have closed; rustls reports nothing else any more.
    Closed,
}

impl Records {
    pub(crate) fn server(config: &ServerConfig) -> Result<Self, rustls::Error> {
        let connection = UnbufferedServerConnection::new(config.tls())?;
        Ok(Self {
            role: Role::Server(Box::new(connection)),
            placement: config.placement(),
            seen_bytes: 0,
            is_behind: false,
        })
    }

    pub(crate) fn client(config: &ClientConfig, name: ServerName<'static>) -> Result<Self, rustls::Error> {
        let connection = UnbufferedClientConnection::new(config.tls().clone(), name)?;
        Ok(Self {
            role: Role::Client(Box::new(connection)),
            placement: config.placement(),
            seen_bytes: 0,
            is_behind: false,
        })
    }

    /// The handshake state that both roles share.
    pub(crate) fn common(&self) -> &CommonState {
        match &self.role {
            Role::Client(connection) => connection,
            Role::Server(connection) => connection,
        }
    }

    /// Processes a part of `wire`: moves the plain bytes of a record to `plain`, or writes a message of the handshake.
    /// Returns how many bytes of `wire` it has consumed, and the name that a client has requested, if that is new.
    pub(crate) fn read(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> ReadResult {
        let expects_name = matches!(self.role, Role::Server(_)) && self.common().is_handshaking();
        if expects_name {
            // Of a connection that is not of this crate, and has used the same certificates.
            drop(take_requested_name());
        }
        loop {
            let (given, start) = self.next_record(wire.bytes());
            let (done, processed) = self.process(&mut wire.make_mut(reply.pool())[..given], start, Task::Read, reply);
            let requested_name = if expects_name { take_requested_name() } else { None };
            self.seen_bytes -= done.min(self.seen_bytes);
            self.is_behind = !matches!(processed, Ok(ProcessResult::NeedsInput));
            let progress = match processed {
                Ok(ProcessResult::PlainRecord(record)) => {
                    self.is_behind = done < given;
                    record.move_to(done, wire, plain, reply.pool()).map(|()| Progress::Opened)
                }
                other => {
                    let has_more = given < wire.len();
                    wire.consume(done);
                    match other {
                        Ok(ProcessResult::NeedsInput) if has_more => continue,
                        Ok(ProcessResult::NeedsInput) => Ok(Progress::NeedsInput { retained: self.seen_bytes }),
                        Ok(ProcessResult::PeerClosed | ProcessResult::Closed) => Ok(Progress::PeerClosed),
                        Ok(ProcessResult::PlainRecord(_) | ProcessResult::Wrote) => Ok(Progress::Wrote),
                        Err(error) => Err(error),
                    }
                }
            };
            return ReadResult { consumed: done, progress, requested_name };
        }
    }

    /// How much of the wire rustls gets, and where the last record in it begins, if rustls has all before it. That is
    /// one record at a time once the handshake is complete, so that its place is known.
    fn next_record(&mut self, wire: &[u8]) -> (usize, Option<usize>) {
        let one_by_one = !self.is_behind && !self.common().is_handshaking();
        let start = self.seen_bytes;
        while let Some(bytes) = record_bytes(&wire[self.seen_bytes..])
            && bytes <= wire.len() - self.seen_bytes
        {
            self.seen_bytes += bytes;
            if one_by_one {
                return (self.seen_bytes, Some(start));
            }
        }
        (wire.len(), None)
    }

    /// Writes the handshake's pending bytes.
    pub(crate) fn write_handshake(&mut self, out: &mut Output<'_>) -> Result<Progress, Error> {
        self.write(&mut Task::Read, out)
    }

    /// Encrypts the flushed bytes of `plain`.
    pub(crate) fn encrypt(
        &mut self,
        plain: &mut Outbound,
        sizes: &mut RecordSizes,
        out: &mut Output<'_>,
    ) -> Result<Progress, Error> {
        self.write(&mut Task::Encrypt { plain, sizes }, out)
    }

    /// Writes the `close_notify`.
    pub(crate) fn close(&mut self, out: &mut Output<'_>) -> Result<Progress, Error> {
        self.write(&mut Task::Close, out)
    }

    /// Writes the alert that reports an error to the peer. For some errors rustls has none: then the peer gets
    /// `decode_error`, if the connection has no keys yet.
    pub(crate) fn write_alert(&mut self, out: &mut Output<'_>) {
        let has_alert = self.common().wants_write();
        while self.common().wants_write() && self.process(&mut [], None, Task::Read, out).1.is_ok() {}
        if !has_alert && self.common().protocol_version().is_none() {
            out.write(&PLAIN_DECODE_ERROR);
        }
    }

    /// Does `task` as soon as rustls has nothing else to send.
    fn write(&mut self, task: &mut Task<'_>, out: &mut Output<'_>) -> Result<Progress, Error> {
        let mut progress = Progress::NeedsInput { retained: 0 };
        loop {
            match self.process(&mut [], None, task.reborrow(), out).1? {
                ProcessResult::Wrote => {}
                // rustls reports it once.
                ProcessResult::PeerClosed => progress = Progress::PeerClosed,
                ProcessResult::PlainRecord(_) | ProcessResult::NeedsInput | ProcessResult::Closed => {
                    return Ok(progress);
                }
            }
        }
    }

    /// How far behind the start of a record its plain bytes lie, if that is known.
    fn plain_offset(&self) -> Option<usize> {
        let has_nonce = || {
            let suite = self.common().negotiated_cipher_suite();
            suite.is_some_and(|suite| {
                matches!(suite, SupportedCipherSuite::Tls12(_)) && !CHACHA20.contains(&suite.suite())
            })
        };
        match self.placement {
            Placement::Unknown => None,
            Placement::Nonce if has_nonce() => Some(HEADER_BYTES + NONCE_BYTES),
            Placement::Nonce | Placement::Header => Some(HEADER_BYTES),
        }
    }

    /// Has rustls process `wire`, whose last record begins at `start` if that is known.
    fn process(
        &mut self,
        wire: &mut [u8],
        start: Option<usize>,
        task: Task<'_>,
        out: &mut Output<'_>,
    ) -> (usize, Result<ProcessResult, Error>) {
        let last = start.and_then(|start| Some(start + self.plain_offset()?..wire.len()));
        match &mut self.role {
            Role::Client(connection) => finish(connection.process_tls_records(wire), task, last, out),
            Role::Server(connection) => finish(connection.process_tls_records(wire), task, last, out),
        }
    }
}

/// The result of [`Records::read`].
pub(crate) struct ReadResult {
    pub(crate) consumed: usize,
    pub(crate) progress: Result<Progress, Error>,
    pub(crate) requested_name: Option<Box<str>>,
}

impl Task<'_> {
    fn reborrow(&mut self) -> Task<'_> {
        match self {
            Task::Read => Task::Read,
            Task::Encrypt { plain, sizes } => Task::Encrypt { plain, sizes },
            Task::Close => Task::Close,
        }
    }
}

fn finish<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    task: Task<'_>,
    last: Option<Range<usize>>,
    out: &mut Output<'_>,
) -> (usize, Result<ProcessResult, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let processed = match state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => match traffic.next_record() {
            Some(Ok(record)) => {
                discard += record.discard;
                let place = last.filter(|last| last.end == discard);
                Ok(ProcessResult::PlainRecord(PlainRecord::new(record.payload, place, out.pool())))
            }
            Some(Err(error)) => Err(error.into()),
            None => Ok(ProcessResult::Wrote),
        },
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            // rustls reports the length if there is too little space.
            let length = match message.encode(&mut []) {
                Err(EncodeError::InsufficientSize(error)) => error.required_size,
                _ => 0,
            };
            out.write_with(length, |space| message.encode(space))
                .map(|_| ProcessResult::Wrote)
                .map_err(|_| Error::Unsupported)
        }
        Ok(ConnectionState::TransmitTlsData(message)) => {
            message.done();
            Ok(ProcessResult::Wrote)
        }
        Ok(ConnectionState::WriteTraffic(traffic)) => match task {
            Task::Read => Ok(ProcessResult::NeedsInput),
            Task::Encrypt { plain, sizes } => encrypt(traffic, plain, sizes, out).map(|()| ProcessResult::NeedsInput),
            Task::Close => write(out, CLOSE_BYTES_MAX, traffic, |traffic, space| traffic.queue_close_notify(space))
                .map(|()| ProcessResult::NeedsInput),
        },
        Ok(ConnectionState::BlockedHandshake) => Ok(ProcessResult::NeedsInput),
        Ok(ConnectionState::PeerClosed) => Ok(ProcessResult::PeerClosed),
        Ok(ConnectionState::Closed) => Ok(ProcessResult::Closed),
        Ok(_) => Err(Error::Unsupported),
        Err(_) if take_missing() => Err(Error::NoCertificate),
        Err(error) => Err(error.into()),
    };
    (discard, processed)
}

/// Encrypts the flushed bytes, from where they lie to where they are sent from. Short pieces that follow each other
/// share a record.
fn encrypt<Data>(
    mut traffic: WriteTraffic<'_, Data>,
    plain: &mut Outbound,
    sizes: &mut RecordSizes,
    out: &mut Output<'_>,
) -> Result<(), Error> {
    sizes.begin(plain.pending());
    while let Some(front) = plain.front() {
        let bytes_max = sizes.next_bytes_max();
        let first = &front[..front.len().min(bytes_max)];
        let count =
            if first.len() <= MERGED_BYTES_MAX && first.len() < bytes_max && plain.pending() > first.len() as u64 {
                MERGED.with_borrow_mut(|merged| {
                    merge(plain, bytes_max, merged);
                    encrypt_record(&mut traffic, merged, out)?;
                    Ok::<_, Error>(merged.len())
                })?
            } else {
                encrypt_record(&mut traffic, first, out)?;
                let count = first.len();
                plain.advance(count as u64);
                count
            };
        sizes.sent(count);
    }
    Ok(())
}

fn encrypt_record<Data>(
    traffic: &mut WriteTraffic<'_, Data>,
    record: &[u8],
    out: &mut Output<'_>,
) -> Result<(), Error> {
    write(out, record.len() + RECORD_OVERHEAD, traffic, |traffic, space| traffic.encrypt(record, space))
}

/// Moves short pieces to `merged` until a record is full or a long piece follows: a copy of less than a page is cheaper
/// than a record of its own. There is a first piece, and it is short.
fn merge(plain: &mut Outbound, bytes_max: usize, merged: &mut Vec<u8>) {
    merged.clear();
    while let Some(front) = plain.front() {
        let room = bytes_max - merged.len();
        if room == 0 || front.len() > MERGED_BYTES_MAX {
            return;
        }
        let count = front.len().min(room);
        merged.extend_from_slice(&front[..count]);
        plain.advance(count as u64);
    }
}

thread_local! {
    /// The plain bytes of a record of several pieces, while it is encrypted; up to 16 KiB.
    static MERGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Has rustls write up to `length` bytes into the queue, or as many as it then requires.
fn write<T>(
    out: &mut Output<'_>,
    length: usize,
    mut traffic: T,
    mut fill: impl FnMut(&mut T, &mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), Error> {
    let written = match out.write_with(length, |space| fill(&mut traffic, space)) {
        Err(EncryptError::InsufficientSize(error)) => {
            out.write_with(error.required_size, |space| fill(&mut traffic, space))
        }
        written => written,
    };
    written.map(drop).map_err(|_| Error::Exhausted)
}

/// The plain bytes of a record.
enum PlainRecord {
    /// rustls 0.23 decrypts them in place, at `at`, and returns a copy.
    InPlace { at: usize, sample: Sample },
    /// The place of the record is not known.
    Copied(Slice),
}

impl PlainRecord {
    fn new(payload: &[u8], place: Option<Range<usize>>, pool: &Pool) -> Self {
        match place {
            Some(place) => Self::InPlace { at: place.start, sample: Sample::new(payload) },
            None => Self::Copied(pool.copy(payload)),
        }
    }

    /// Moves the plain bytes out of the first `done` bytes of `wire`, and consumes those.
    fn move_to(self, done: usize, wire: &mut Input, plain: &mut Input, pool: &Pool) -> Result<(), Error> {
        match self {
            Self::InPlace { at, sample } => {
                let range = at..at + sample.length;
                let there = wire.bytes()[..done].get(range.clone()).map(Sample::new);
                if there != Some(sample) {
                    return Err(Error::Unsupported);
                }
                let end = range.end;
                wire.move_to(range, plain, pool);
                wire.consume(done - end);
            }
            Self::Copied(bytes) => {
                wire.consume(done);
                plain.append(bytes, pool);
            }
        }
        Ok(())
    }
}

/// A sample of a record's plain bytes that shows that they lie in the right place: their length and their two ends.
#[derive(PartialEq, Eq)]
struct Sample {
    length: usize,
    /// All of a short record.
    ends: [u8; 2 * SAMPLE_BYTES],
}

impl Sample {
    fn new(payload: &[u8]) -> Self {
        let mut ends = [0; 2 * SAMPLE_BYTES];
        if payload.len() <= ends.len() {
            ends[..payload.len()].copy_from_slice(payload);
        } else {
            ends[..SAMPLE_BYTES].copy_from_slice(&payload[..SAMPLE_BYTES]);
            ends[SAMPLE_BYTES..].copy_from_slice(&payload[payload.len() - SAMPLE_BYTES..]);
        }
        Self { length: payload.len(), ends }
    }
}

/// The length of the first record, header included, as soon as its header is there (RFC 8446 §5.1).
pub(crate) fn record_bytes(wire: &[u8]) -> Option<usize> {
    let [_, _, _, high, low] = wire.first_chunk::<HEADER_BYTES>()?;
    Some(HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low])))
}

const HEADER_BYTES: usize = 5;

/// The explicit nonce of a TLS 1.2 record with AES.
const NONCE_BYTES: usize = 8;

/// The TLS 1.2 suites whose records have no explicit nonce (RFC 7905).
const CHACHA20: [CipherSuite; 2] = [
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// The bytes that a record adds to its plain bytes: header, type and tag; in TLS 1.2 a nonce.
const RECORD_OVERHEAD: usize = 64;

const CLOSE_BYTES_MAX: usize = 128;

/// A longer piece has records of its own.
const MERGED_BYTES_MAX: usize = 4 * 1024;

/// The record of an alert, as it is sent before there are keys: fatal, `decode_error` (RFC 8446 §6).
const PLAIN_DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];

const SAMPLE_BYTES: usize = 32;
