//! Two filters for tests: together they use every feature of `Over`.
//!
//! [`ToyTls`] transforms every byte, in records, after a handshake, and buffers bytes. [`StripPrefix`] inspects the
//! first bytes only and passes all others on without copying them.

use std::convert::Infallible;
use std::fmt;
use std::time::Instant;

use tidegate_codec::{Blame, Fault, Filter, Input, Outbound, Output, ReceiveHint, Step};

/// A toy TLS, without any secrecy.
///
/// The client sends `TOY?`, the server answers `TOY!`. Then both send records: two bytes of length, big endian, and as
/// many bytes, at most [`RECORD_BYTES_MAX`], each XORed with the key. An empty record is the goodbye: it announces the
/// end, as TLS's `close_notify` does. A peer that ends without one causes an error.
#[derive(Debug)]
pub struct ToyTls {
    is_client: bool,
    key: u8,
    hello_sent: bool,
    established: bool,
    peer_closed: bool,
    closed: bool,
    /// Bytes that are missing from the record of which a part has arrived.
    missing: u32,
    /// Plain bytes that are not yet sealed into a record.
    buffered: Vec<u8>,
    deadline: Option<Instant>,
}

impl ToyTls {
    /// The side that sends its hello first.
    #[must_use]
    pub const fn client(key: u8) -> Self {
        Self::new(true, key)
    }

    /// The side that answers.
    #[must_use]
    pub const fn server(key: u8) -> Self {
        Self::new(false, key)
    }

    const fn new(is_client: bool, key: u8) -> Self {
        Self {
            is_client,
            key,
            hello_sent: false,
            established: false,
            peer_closed: false,
            closed: false,
            missing: 0,
            buffered: Vec::new(),
            deadline: None,
        }
    }

    /// The handshake fails if it is not complete at `at`.
    #[must_use]
    pub const fn with_deadline(mut self, at: Instant) -> Self {
        self.deadline = Some(at);
        self
    }

    /// Everything that a client sends to transfer `plain`, in records of at most `record` bytes, with its goodbye.
    ///
    /// # Panics
    /// If `record` is zero or exceeds [`RECORD_BYTES_MAX`].
    #[must_use]
    pub fn client_wire(key: u8, plain: &[u8], record: usize) -> Vec<u8> {
        [&CLIENT_HELLO[..], &records(key, plain, record), &GOODBYE].concat()
    }

    /// The same for a server.
    ///
    /// # Panics
    /// If `record` is zero or exceeds [`RECORD_BYTES_MAX`].
    #[must_use]
    pub fn server_wire(key: u8, plain: &[u8], record: usize) -> Vec<u8> {
        [&SERVER_HELLO[..], &records(key, plain, record), &GOODBYE].concat()
    }

    /// Decodes `wire`, everything that one side sent: the plain bytes, and whether the goodbye was sent.
    ///
    /// # Panics
    /// If `wire` is malformed.
    #[must_use]
    pub fn decode_wire(key: u8, wire: &[u8]) -> (Vec<u8>, bool) {
        if wire.is_empty() {
            return (Vec::new(), false);
        }
        let (hello, mut rest) = wire.split_at(HELLO_BYTES);
        assert!(hello == CLIENT_HELLO || hello == SERVER_HELLO, "no hello: {}", hello.escape_ascii());
        let (mut plain, mut goodbye) = (Vec::new(), false);
        while let Some((length, after)) = rest.split_first_chunk() {
            assert!(!goodbye, "something after the goodbye");
            let (record, after) = after.split_at(usize::from(u16::from_be_bytes(*length)));
            assert!(record.len() <= RECORD_BYTES_MAX, "a record of {} bytes", record.len());
            goodbye = record.is_empty();
            plain.extend(record.iter().map(|byte| byte ^ key));
            rest = after;
        }
        assert!(rest.is_empty(), "half a record");
        (plain, goodbye)
    }

    fn send_hello(&mut self, out: &mut Output<'_>) {
        if !std::mem::replace(&mut self.hello_sent, true) {
            out.write(if self.is_client { &CLIENT_HELLO } else { &SERVER_HELLO });
        }
    }

    fn handshake(&mut self, wire: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, ToyTlsError> {
        if self.is_client {
            self.send_hello(reply);
        }
        let expected = if self.is_client { &SERVER_HELLO } else { &CLIENT_HELLO };
        let received = &wire.bytes()[..wire.len().min(HELLO_BYTES)];
        if !expected.starts_with(received) {
            return Err(ToyTlsError::BadHello);
        }
        if received.len() < HELLO_BYTES {
            return Ok(Step::NeedMore);
        }
        wire.consume(HELLO_BYTES);
        self.send_hello(reply);
        self.established = true;
        Ok(Step::Message(()))
    }

    fn seal(&mut self, out: &mut Output<'_>) {
        if self.buffered.is_empty() {
            return;
        }
        let written = out.write_with(2 + self.buffered.len(), |space| {
            let (length, record) = space.split_at_mut(2);
            length.copy_from_slice(&(self.buffered.len() as u16).to_be_bytes());
            record.iter_mut().zip(&self.buffered).for_each(|(to, from)| *to = from ^ self.key);
            Ok::<_, Infallible>(space.len())
        });
        debug_assert_eq!(written, Ok(2 + self.buffered.len()));
        self.buffered.clear();
    }
}

impl Filter for ToyTls {
    type Error = ToyTlsError;

    fn inbound(
        &mut self,
        wire: &mut Input,
        plain: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Step<()>, ToyTlsError> {
        if !self.established {
            return self.handshake(wire, reply);
        }
        if self.peer_closed {
            return Ok(Step::End);
        }
        let Some((length, rest)) = wire.bytes().split_first_chunk() else { return Ok(Step::NeedMore) };
        let length = usize::from(u16::from_be_bytes(*length));
        if length > RECORD_BYTES_MAX {
            return Err(ToyTlsError::RecordTooLong { bytes: length });
        }
        self.missing = (length.saturating_sub(rest.len())) as u32;
        if self.missing > 0 {
            return Ok(Step::NeedMore);
        }
        if length == 0 {
            wire.consume(2);
            self.peer_closed = true;
            return Ok(Step::End);
        }
        let record = 2..2 + length;
        wire.make_mut(reply.pool())[record.clone()].iter_mut().for_each(|byte| *byte ^= self.key);
        wire.move_to(record, plain, reply.pool());
        Ok(Step::Message(()))
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), ToyTlsError> {
        if self.is_client {
            self.send_hello(out);
        }
        if !self.established || self.closed {
            return Ok(());
        }
        while let Some(front) = plain.front() {
            let count = front.len().min(RECORD_BYTES_MAX - self.buffered.len());
            self.buffered.extend_from_slice(&front[..count]);
            plain.advance(count as u64);
            if self.buffered.len() == RECORD_BYTES_MAX {
                self.seal(out);
            }
        }
        Ok(())
    }

    fn decode_eof(&mut self, _: &mut Input, _: &mut Output<'_>) -> Result<(), ToyTlsError> {
        if self.peer_closed { Ok(()) } else { Err(ToyTlsError::Truncated) }
    }

    fn flush(&mut self, out: &mut Output<'_>) -> Result<(), ToyTlsError> {
        self.seal(out);
        Ok(())
    }

    fn close(&mut self, out: &mut Output<'_>) -> Result<(), ToyTlsError> {
        self.seal(out);
        if self.established && !std::mem::replace(&mut self.closed, true) {
            out.write(&GOODBYE);
        }
        Ok(())
    }

    fn buffered_bytes(&self) -> usize {
        self.buffered.len()
    }

    fn is_established(&self) -> bool {
        self.established
    }

    fn receive_hint(&self) -> Option<ReceiveHint> {
        self.established.then_some(ReceiveHint { missing_bytes: self.missing, ..ReceiveHint::default() })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline.filter(|_| !self.established)
    }

    fn handle_timeout(&mut self, _: &mut Output<'_>) -> Result<(), ToyTlsError> {
        Err(ToyTlsError::TimedOut)
    }
}

/// The errors of [`ToyTls`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToyTlsError {
    /// The peer does not speak this protocol.
    BadHello,
    /// The peer declared a record of more than [`RECORD_BYTES_MAX`] bytes.
    RecordTooLong {
        /// How many.
        bytes: usize,
    },
    /// The peer ended without a goodbye.
    Truncated,
    /// The handshake took too long.
    TimedOut,
}

impl Fault for ToyTlsError {
    fn blame(&self) -> Blame {
        match self {
            Self::BadHello | Self::RecordTooLong { .. } | Self::Truncated => Blame::Peer,
            Self::TimedOut => Blame::Limit,
        }
    }
}

impl fmt::Display for ToyTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadHello => f.write_str("the peer said no hello"),
            Self::RecordTooLong { bytes } => write!(f, "a record of {bytes} bytes"),
            Self::Truncated => f.write_str("the peer ended without a goodbye"),
            Self::TimedOut => f.write_str("the handshake took too long"),
        }
    }
}

impl std::error::Error for ToyTlsError {}

/// Removes a prefix from the inbound bytes and passes on all others, in both directions, without copying them.
#[derive(Debug)]
pub struct StripPrefix {
    missing: &'static [u8],
}

impl StripPrefix {
    /// A filter that requires inbound bytes to begin with `prefix`.
    #[must_use]
    pub const fn new(prefix: &'static [u8]) -> Self {
        Self { missing: prefix }
    }
}

impl Filter for StripPrefix {
    type Error = PrefixError;

    fn inbound(
        &mut self,
        wire: &mut Input,
        plain: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Step<()>, PrefixError> {
        let received = wire.len().min(self.missing.len());
        if wire.bytes()[..received] != self.missing[..received] {
            return Err(PrefixError::Mismatch);
        }
        wire.consume(received);
        self.missing = &self.missing[received..];
        if wire.is_empty() {
            return Ok(Step::NeedMore);
        }
        plain.append(wire.take_all(), reply.pool());
        Ok(Step::Message(()))
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), PrefixError> {
        out.take_flushed(plain);
        Ok(())
    }

    fn decode_eof(&mut self, _: &mut Input, _: &mut Output<'_>) -> Result<(), PrefixError> {
        if self.missing.is_empty() { Ok(()) } else { Err(PrefixError::Missing) }
    }

    fn is_established(&self) -> bool {
        self.missing.is_empty()
    }

    fn allows_file_bypass(&self) -> bool {
        true
    }
}

/// The errors of [`StripPrefix`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrefixError {
    /// The peer sent other bytes.
    Mismatch,
    /// The peer ended within the prefix.
    Missing,
}

impl Fault for PrefixError {
    fn blame(&self) -> Blame {
        Blame::Peer
    }
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mismatch => "the peer began with another prefix",
            Self::Missing => "the peer ended within the prefix",
        })
    }
}

impl std::error::Error for PrefixError {}

fn records(key: u8, plain: &[u8], record: usize) -> Vec<u8> {
    assert!(record <= RECORD_BYTES_MAX);
    let seal = |record: &[u8]| [&(record.len() as u16).to_be_bytes()[..], record].concat();
    let sealed: Vec<u8> = plain.iter().map(|byte| byte ^ key).collect();
    sealed.chunks(record).flat_map(seal).collect()
}

/// The most that one record of [`ToyTls`] carries.
pub const RECORD_BYTES_MAX: usize = 4 * 1024;

const HELLO_BYTES: usize = 4;
const CLIENT_HELLO: [u8; HELLO_BYTES] = *b"TOY?";
const SERVER_HELLO: [u8; HELLO_BYTES] = *b"TOY!";
const GOODBYE: [u8; 2] = [0, 0];

const _: () = assert!(RECORD_BYTES_MAX <= u16::MAX as usize);
