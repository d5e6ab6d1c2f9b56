//! `Records`: a TLS connection of rustls between two queues of bytes. This file alone knows how rustls takes and returns
//! bytes: by the unbuffered interface of 0.23, which later versions do not have.
//!
//! Received records are decrypted where they were received, and their plain bytes are named by their place. Records to
//! send are encrypted where they are sent from. Nothing is stored here, so an idle connection costs what rustls keeps.
//! rustls itself copies the bytes of each record once, in either direction.

use std::ops::Range;

use rustls::CommonState;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use tidegate_buffer::{Input, Outbound};
use tidegate_codec::Output;

use crate::certificates::take_requested_name;
use crate::client::ClientConfig;
use crate::error::Error;
use crate::server::ServerConfig;

/// The connection, as either role.
pub(crate) enum Records {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// What a call resulted in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A record was processed, or a message of the handshake was written.
    More,
    /// More input is needed.
    NeedsInput,
    /// The peer has sent its `close_notify`.
    PeerClosed,
}

/// What is done when rustls can send.
enum Task<'a> {
    Read,
    Encrypt { plain: &'a mut Outbound, record_bytes_max: usize },
    Close,
}

/// What one call of rustls resulted in.
enum Processed {
    Opened(Opened),
    More,
    NeedsInput,
    PeerClosed,
}

impl Records {
    pub(crate) fn server(config: &ServerConfig) -> Result<Self, rustls::Error> {
        Ok(Self::Server(Box::new(UnbufferedServerConnection::new(config.tls().clone())?)))
    }

    pub(crate) fn client(config: &ClientConfig, name: ServerName<'static>) -> Result<Self, rustls::Error> {
        Ok(Self::Client(Box::new(UnbufferedClientConnection::new(config.tls().clone(), name)?)))
    }

    /// What both roles know of the handshake.
    pub(crate) fn common(&self) -> &CommonState {
        match self {
            Self::Client(connection) => connection,
            Self::Server(connection) => connection,
        }
    }

    /// Processes a part of `wire`: moves the plain bytes of a record to `plain`, or writes a message of the handshake.
    /// Returns how many bytes of `wire` it has consumed, and the name that a client has requested, if that is new.
    pub(crate) fn read(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Read {
        let (done, processed) = self.process(wire.make_mut(reply.pool()), Task::Read, reply);
        let requested_name = if matches!(self, Self::Server(_)) { take_requested_name() } else { None };
        let progress = match processed {
            Ok(Processed::Opened(record)) => record.move_to(done, wire, plain, reply).map(|()| Progress::More),
            other => {
                wire.consume(done);
                other.map(|processed| match processed {
                    Processed::Opened(_) | Processed::More => Progress::More,
                    Processed::NeedsInput => Progress::NeedsInput,
                    Processed::PeerClosed => Progress::PeerClosed,
                })
            }
        };
        Read { consumed: done, progress, requested_name }
    }

    /// Writes what the handshake has to send.
    pub(crate) fn write_handshake(&mut self, out: &mut Output<'_>) -> Result<Progress, Error> {
        self.write(&mut Task::Read, out)
    }

    /// Encrypts the flushed bytes of `plain`, in records of at most `record_bytes_max` plain bytes.
    pub(crate) fn encrypt(
        &mut self,
        plain: &mut Outbound,
        record_bytes_max: usize,
        out: &mut Output<'_>,
    ) -> Result<Progress, Error> {
        self.write(&mut Task::Encrypt { plain, record_bytes_max }, out)
    }

    /// Writes the `close_notify`.
    pub(crate) fn close(&mut self, out: &mut Output<'_>) -> Result<Progress, Error> {
        self.write(&mut Task::Close, out)
    }

    /// Writes the alert that reports an error to the peer.
    pub(crate) fn write_alert(&mut self, out: &mut Output<'_>) {
        while self.common().wants_write() && self.process(&mut [], Task::Read, out).1.is_ok() {}
    }

    /// Does `task` as soon as rustls has nothing else to send.
    fn write(&mut self, task: &mut Task<'_>, out: &mut Output<'_>) -> Result<Progress, Error> {
        let mut progress = Progress::NeedsInput;
        loop {
            match self.process(&mut [], task.reborrow(), out).1? {
                Processed::More => {}
                Processed::PeerClosed => progress = Progress::PeerClosed,
                Processed::Opened(_) | Processed::NeedsInput => return Ok(progress),
            }
        }
    }

    fn process(&mut self, wire: &mut [u8], task: Task<'_>, out: &mut Output<'_>) -> (usize, Result<Processed, Error>) {
        match self {
            Self::Client(connection) => finish(connection.process_tls_records(wire), task, out),
            Self::Server(connection) => finish(connection.process_tls_records(wire), task, out),
        }
    }
}

/// The result of [`Records::read`].
pub(crate) struct Read {
    pub(crate) consumed: usize,
    pub(crate) progress: Result<Progress, Error>,
    pub(crate) requested_name: Option<Box<str>>,
}

impl Task<'_> {
    fn reborrow(&mut self) -> Task<'_> {
        match self {
            Task::Read => Task::Read,
            Task::Encrypt { plain, record_bytes_max } => Task::Encrypt { plain, record_bytes_max: *record_bytes_max },
            Task::Close => Task::Close,
        }
    }
}

fn finish<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    task: Task<'_>,
    out: &mut Output<'_>,
) -> (usize, Result<Processed, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let processed = match state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => match traffic.next_record() {
            Some(Ok(record)) => {
                discard += record.discard;
                Ok(Processed::Opened(Opened::new(record.payload)))
            }
            Some(Err(error)) => Err(error.into()),
            None => Ok(Processed::More),
        },
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            // rustls reports the length if there is too little space.
            let length = match message.encode(&mut []) {
                Err(EncodeError::InsufficientSize(error)) => error.required_size,
                _ => 0,
            };
            out.write_with(length, |space| message.encode(space))
                .map(|_| Processed::More)
                .map_err(|_| Error::Unsupported)
        }
        Ok(ConnectionState::TransmitTlsData(message)) => {
            message.done();
            Ok(Processed::More)
        }
        Ok(ConnectionState::WriteTraffic(traffic)) => match task {
            Task::Read => Ok(Processed::NeedsInput),
            Task::Encrypt { plain, record_bytes_max } => {
                encrypt(traffic, plain, record_bytes_max, out).map(|()| Processed::NeedsInput)
            }
            Task::Close => write(out, CLOSE_BYTES_MAX, traffic, |traffic, space| traffic.queue_close_notify(space))
                .map(|()| Processed::NeedsInput),
        },
        Ok(ConnectionState::BlockedHandshake) => Ok(Processed::NeedsInput),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Processed::PeerClosed),
        Ok(_) => Err(Error::Unsupported),
        Err(error) => Err(error.into()),
    };
    (discard, processed)
}

/// Encrypts the flushed bytes, from where they lie to where they are sent from. Pieces that follow each other in memory
/// share a record.
fn encrypt<Data>(
    mut traffic: WriteTraffic<'_, Data>,
    plain: &mut Outbound,
    record_bytes_max: usize,
    out: &mut Output<'_>,
) -> Result<(), Error> {
    while let Some(front) = plain.front() {
        let record = &front[..front.len().min(record_bytes_max)];
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
) -> Result<(), Error> {
    let written = match out.write_with(length, |space| fill(&mut traffic, space)) {
        Err(EncryptError::InsufficientSize(error)) => {
            out.write_with(error.required_size, |space| fill(&mut traffic, space))
        }
        written => written,
    };
    written.map(drop).map_err(|_| Error::Exhausted)
}

/// The plain bytes of a record. rustls 0.23 decrypts them in place, behind the record's header, and returns a copy. This
/// looks for the place, and compares the two ends of the copy with it.
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

    /// Moves the plain bytes out of the first `done` bytes of `wire`, and consumes those.
    fn move_to(&self, done: usize, wire: &mut Input, plain: &mut Input, reply: &Output<'_>) -> Result<(), Error> {
        match self.find(&wire.bytes()[..done]) {
            Some(range) => {
                let end = range.end;
                wire.move_to(range, plain, reply.pool());
                wire.consume(done - end);
            }
            None => {
                wire.consume(done);
                let all = self.sample.get(..self.length).ok_or(Error::Unsupported)?;
                plain.append(reply.pool().copy(all), reply.pool());
            }
        }
        Ok(())
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
pub(crate) fn record_bytes(wire: &[u8]) -> Option<usize> {
    let [_, _, _, high, low] = wire.first_chunk::<HEADER_BYTES>()?;
    Some(HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low])))
}

const HEADER_BYTES: usize = 5;

/// What a record adds to its plain bytes: header, type and tag; in TLS 1.2 a nonce.
const RECORD_OVERHEAD: usize = 64;

const CLOSE_BYTES_MAX: usize = 128;

const SAMPLE_BYTES: usize = 32;
