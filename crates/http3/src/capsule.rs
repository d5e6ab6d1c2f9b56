//! `CapsuleCodec`: the capsule protocol (RFC 9297 §3) on the bytes of a tunnel: a type, a length, a value.
//!
//! Capsules of unknown types are discarded as they come, and keep no memory, whatever their length (RFC 9297 §3.2), unless the
//! application wants them. A value that is read waits in the input until it is whole, so its length has a bound; a longer one
//! ends the stream. The types of WebTransport are known to a session's stream alone.

use std::fmt;

use bytes::Bytes;
use tidegate_codec::mux::ResetCause;
use tidegate_codec::{Blame, Codec, Fault, Input, Output, Step};

use crate::error::ErrorCode;
use crate::varint;

/// The codec of a tunnel whose protocol consists of capsules, such as that of a WebTransport session.
///
/// ```
/// use tidegate::http3::{Capsule, CapsuleCodec};
/// use tidegate::{Context, Handler, Outcome};
/// use tidegate_testkit::Embedded;
///
/// /// Sends each datagram back.
/// struct Echo;
///
/// impl Handler<CapsuleCodec> for Echo {
///     type Post = ();
///
///     fn message(&mut self, capsule: Capsule, cx: &mut Context<'_, CapsuleCodec>) -> Outcome<CapsuleCodec> {
///         cx.send(capsule).into()
///     }
/// }
///
/// let mut pipe = Embedded::new(CapsuleCodec::new(1024), Echo);
/// pipe.receive(b"\x00\x03ebb\x21\x04skip");
/// assert_eq!(pipe.take_written(), b"\x00\x03ebb");
/// ```
#[derive(Debug)]
pub struct CapsuleCodec {
    value_bytes_max: u32,
    /// Bytes of a discarded value that are to come.
    skip_left: u64,
    is_closed: bool,
    /// The stream is that of a WebTransport session.
    is_session: bool,
    /// The application gets capsules of other types too.
    reads_others: bool,
}

/// A capsule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capsule {
    /// DATAGRAM (RFC 9297 §3.5): the payload of an HTTP datagram.
    Datagram(Bytes),
    /// CLOSE_WEBTRANSPORT_SESSION: the peer ends the session. A codec [of a session](CapsuleCodec::for_session) reads it.
    CloseSession {
        /// The code of the application.
        code: u32,
        /// The reason, in UTF-8 of at most 1,024 bytes.
        reason: Box<str>,
    },
    /// DRAIN_WEBTRANSPORT_SESSION: the peer wants the session to end soon. A codec [of a session](CapsuleCodec::for_session)
    /// reads it.
    DrainSession,
    /// A capsule of another type. A codec [reads](CapsuleCodec::read_others) them only for an application that wants them.
    Other {
        /// The type, at most 2^62 - 1.
        kind: u64,
        /// The value.
        value: Bytes,
    },
}

/// Why a stream of capsules ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CapsuleError {
    /// A value without the form of its type, a stream that ends within a capsule, or bytes behind
    /// CLOSE_WEBTRANSPORT_SESSION.
    Malformed,
    /// A value is longer than the limit.
    TooLong,
    /// The application has a reason of more than 1,024 bytes.
    LongReason,
    /// The application has a type that no integer of RFC 9000 §16 expresses.
    Kind,
}

impl CapsuleCodec {
    /// A codec that reads values of at most `value_bytes_max` bytes. Of all types it knows DATAGRAM alone.
    #[must_use]
    pub fn new(value_bytes_max: u32) -> Self {
        Self { value_bytes_max, skip_left: 0, is_closed: false, is_session: false, reads_others: false }
    }

    /// The codec of a WebTransport session's stream: it reads the capsules that close and drain the session.
    #[must_use]
    pub fn for_session(self) -> Self {
        Self { is_session: true, ..self }
    }

    /// Whether capsules of other types are read, as [`Capsule::Other`]. They are discarded, unless set.
    #[must_use]
    pub fn read_others(self, reads_others: bool) -> Self {
        Self { reads_others, ..self }
    }

    fn reads(&self, kind: u64) -> bool {
        kind == DATAGRAM || self.reads_others || self.is_session && matches!(kind, CLOSE_SESSION | DRAIN_SESSION)
    }

    /// Discards the rest of a value that no one reads.
    fn skip(&mut self, input: &mut Input) {
        let skipped = self.skip_left.min(input.len() as u64);
        input.consume(skipped as usize);
        self.skip_left -= skipped;
    }
}

impl Codec for CapsuleCodec {
    type In = Capsule;
    type Out = Capsule;
    type Error = CapsuleError;

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Capsule>, CapsuleError> {
        loop {
            self.skip(input);
            if input.is_empty() {
                return Ok(Step::NeedMore);
            }
            if self.is_closed {
                return Err(CapsuleError::Malformed);
            }
            let Some((kind, head)) = varint::read(input.bytes()) else { return Ok(Step::NeedMore) };
            let Some((length, more)) = varint::read(&input.bytes()[head..]) else { return Ok(Step::NeedMore) };
            let head = head + more;
            if !self.reads(kind) {
                input.consume(head);
                self.skip_left = length;
                continue;
            }
            if length > self.value_bytes_max.into() {
                return Err(CapsuleError::TooLong);
            }
            let value = length as usize;
            if input.len() < head + value {
                return Ok(Step::NeedMore);
            }
            input.consume(head);
            let value = input.take(value);
            return match kind {
                DATAGRAM => Ok(Step::Message(Capsule::Datagram(value.to_bytes()))),
                CLOSE_SESSION if self.is_session => {
                    self.is_closed = true;
                    read_close(&value).map(Step::Message)
                }
                DRAIN_SESSION if self.is_session && value.is_empty() => Ok(Step::Message(Capsule::DrainSession)),
                DRAIN_SESSION if self.is_session => Err(CapsuleError::Malformed),
                kind => Ok(Step::Message(Capsule::Other { kind, value: value.to_bytes() })),
            };
        }
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Capsule>, CapsuleError> {
        match self.decode(input, reply)? {
            Step::NeedMore if self.skip_left > 0 || !input.is_empty() => Err(CapsuleError::Malformed),
            Step::NeedMore => Ok(Step::End),
            step => Ok(step),
        }
    }

    fn encode(&mut self, capsule: Capsule, out: &mut Output<'_>) -> Result<(), CapsuleError> {
        match capsule {
            Capsule::Datagram(payload) => write(DATAGRAM, &[&payload], out),
            Capsule::DrainSession => write(DRAIN_SESSION, &[], out),
            Capsule::CloseSession { reason, .. } if reason.len() > REASON_BYTES_MAX => {
                return Err(CapsuleError::LongReason);
            }
            Capsule::CloseSession { code, reason } => {
                write(CLOSE_SESSION, &[&code.to_be_bytes(), reason.as_bytes()], out);
            }
            Capsule::Other { kind, .. } if kind > varint::MAX => return Err(CapsuleError::Kind),
            Capsule::Other { kind, value } => write(kind, &[&value], out),
        }
        Ok(())
    }

    fn protocol(&self) -> &'static str {
        "capsules"
    }
}

fn read_close(value: &[u8]) -> Result<Capsule, CapsuleError> {
    let (code, reason) = value.split_first_chunk().ok_or(CapsuleError::Malformed)?;
    let reason = std::str::from_utf8(reason).ok().filter(|reason| reason.len() <= REASON_BYTES_MAX);
    let reason = reason.ok_or(CapsuleError::Malformed)?.into();
    Ok(Capsule::CloseSession { code: u32::from_be_bytes(*code), reason })
}

fn write(kind: u64, value: &[&[u8]], out: &mut Output<'_>) {
    let mut head = Vec::with_capacity(16);
    varint::write(kind, &mut head);
    varint::write(value.iter().map(|part| part.len() as u64).sum(), &mut head);
    out.write(&head);
    value.iter().for_each(|part| out.write(part));
}

impl Fault for CapsuleError {
    fn blame(&self) -> Blame {
        match self {
            Self::Malformed => Blame::Peer,
            Self::TooLong => Blame::Limit,
            Self::LongReason | Self::Kind => Blame::Caller,
        }
    }

    fn reset_cause(&self) -> Option<ResetCause> {
        match self {
            // RFC 9297 §3.3.
            Self::Malformed => Some(ResetCause::Code(ErrorCode::MESSAGE_ERROR.0)),
            Self::TooLong => Some(ResetCause::Code(ErrorCode::EXCESSIVE_LOAD.0)),
            Self::LongReason | Self::Kind => None,
        }
    }
}

impl std::error::Error for CapsuleError {}

impl fmt::Display for CapsuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "a malformed capsule",
            Self::TooLong => "a capsule that is too long",
            Self::LongReason => "the reason of a close has more than 1,024 bytes",
            Self::Kind => "the type of a capsule is larger than 2^62 - 1",
        })
    }
}

pub(crate) const DATAGRAM: u64 = 0;
const CLOSE_SESSION: u64 = 0x2843;
const DRAIN_SESSION: u64 = 0x78ae;

/// The longest reason of CLOSE_WEBTRANSPORT_SESSION.
const REASON_BYTES_MAX: usize = 1024;

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Instant, SystemTime};

    use tidegate_codec::{Outbound, Pool, Time};

    use super::*;

    /// Decodes bytes that come in pieces of this length. Returns the capsules, and the error.
    fn decode(wire: &[u8], piece: usize, ends: bool) -> (Vec<Capsule>, Option<CapsuleError>) {
        decode_by(CapsuleCodec::new(2_000).for_session(), wire, piece, ends)
    }

    fn decode_by(
        mut codec: CapsuleCodec,
        wire: &[u8],
        piece: usize,
        ends: bool,
    ) -> (Vec<Capsule>, Option<CapsuleError>) {
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let (mut queue, mut input) = (Outbound::new(&pool), Input::new());
        let mut capsules = Vec::new();
        let mut reply = Output::new(&mut queue, &pool, &time);
        for piece in wire.chunks(piece) {
            input.append(pool.copy(piece), &pool);
            loop {
                match codec.decode(&mut input, &mut reply) {
                    Ok(Step::Message(capsule)) => capsules.push(capsule),
                    Ok(_) => break,
                    Err(error) => return (capsules, Some(error)),
                }
            }
        }
        let end = if ends { codec.decode_eof(&mut input, &mut reply).err() } else { None };
        (capsules, end)
    }

    fn encode(capsules: &[Capsule]) -> Vec<u8> {
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let mut queue = Outbound::new(&pool);
        let mut out = Output::new(&mut queue, &pool, &time);
        let mut codec = CapsuleCodec::new(2_000);
        capsules.iter().for_each(|capsule| codec.encode(capsule.clone(), &mut out).expect("a capsule"));
        take_bytes(&mut queue)
    }

    /// Takes all bytes out of a queue.
    pub(crate) fn take_bytes(queue: &mut Outbound) -> Vec<u8> {
        queue.flush();
        let mut wire = Vec::new();
        while let Some(front) = queue.front() {
            wire.extend_from_slice(front);
            let length = front.len() as u64;
            queue.advance(length);
        }
        wire
    }

    fn close(code: u32, reason: &str) -> Capsule {
        Capsule::CloseSession { code, reason: reason.into() }
    }

    #[test]
    fn capsules_are_read_as_written_at_every_split_and_unknown_ones_are_discarded() {
        let written = [Capsule::Datagram(Bytes::from_static(b"ebb")), Capsule::DrainSession, close(7, "the tide")];
        let unknown = [&[0x21, 0x40, 100][..], &[1; 100]].concat();
        let wire = [unknown, encode(&written)].concat();
        for piece in 1..wire.len() {
            assert_eq!(decode(&wire, piece, true), (written.to_vec(), None), "pieces of {piece}");
        }
    }

    #[test]
    fn an_application_gets_capsules_of_other_types_if_it_wants_them() {
        let written = [Capsule::Other { kind: 0x21, value: Bytes::from_static(b"neap") }, Capsule::DrainSession];
        let wire = encode(&written);
        for piece in 1..wire.len() {
            let read = decode_by(CapsuleCodec::new(2_000).for_session().read_others(true), &wire, piece, true);
            assert_eq!(read, (written.to_vec(), None), "pieces of {piece}");
        }
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let mut queue = Outbound::new(&pool);
        let large = Capsule::Other { kind: varint::MAX + 1, value: Bytes::new() };
        let encoded = CapsuleCodec::new(8).encode(large, &mut Output::new(&mut queue, &pool, &time));
        assert_eq!(encoded, Err(CapsuleError::Kind));
    }

    #[test]
    fn a_capsule_that_is_read_has_a_bound() {
        for (kind, codec) in [
            (DATAGRAM, CapsuleCodec::new(2_000)),
            (CLOSE_SESSION, CapsuleCodec::new(2_000).for_session()),
            (0x21, CapsuleCodec::new(2_000).read_others(true)),
        ] {
            let mut wire = Vec::new();
            varint::write(kind, &mut wire);
            varint::write(varint::MAX, &mut wire);
            assert_eq!(decode_by(codec, &wire, 1, false), (vec![], Some(CapsuleError::TooLong)), "{kind:#x}");
        }
    }

    #[test]
    fn a_capsule_of_an_unknown_type_is_skipped_whatever_its_length() {
        let wire = [&[0x21, 0x80, 0, 0x0b, 0xb8][..], &[1; 3_000], b"\0\x03ebb"].concat();
        let ebb = Capsule::Datagram(Bytes::from_static(b"ebb"));
        assert_eq!(decode(&wire, 100, true), (vec![ebb], None));
    }

    #[test]
    fn the_types_of_webtransport_are_unknown_to_other_protocols() {
        // A close without a code, and a drain with a value.
        let wire = [&b"\x68\x43\x03abc\x80\0\x78\xae\x01a"[..], b"\0\x03ebb"].concat();
        let ebb = Capsule::Datagram(Bytes::from_static(b"ebb"));
        for piece in 1..wire.len() {
            let read = decode_by(CapsuleCodec::new(2_000), &wire, piece, true);
            assert_eq!(read, (vec![ebb.clone()], None), "pieces of {piece}");
            let (read, end) = decode_by(CapsuleCodec::new(2_000).read_others(true), &wire, piece, true);
            let kinds = read.iter().map(|capsule| match capsule {
                Capsule::Other { kind, .. } => *kind,
                _ => DATAGRAM,
            });
            assert_eq!((kinds.collect::<Vec<_>>(), end), (vec![CLOSE_SESSION, DRAIN_SESSION, DATAGRAM], None));
        }
    }

    #[test]
    fn malformed_capsules_are_refused() {
        for (wire, why) in [
            (&b"\x68\x43\x03abc"[..], "a close without a code"),
            (b"\x68\x43\x05\0\0\0\0\xff", "a reason that is not UTF-8"),
            (b"\x80\0\x78\xae\x01a", "a drain with a value"),
            (b"\x00\x05ebb", "the end within a value"),
            (b"\x21\x05ebb", "the end within an unknown value"),
            (b"\x21", "the end within a head"),
        ] {
            assert_eq!(decode(wire, wire.len(), true), (vec![], Some(CapsuleError::Malformed)), "{why}");
        }
        let behind = [encode(&[close(0, "")]), b"\x00\x00".to_vec()].concat();
        assert_eq!(decode(&behind, 1, true), (vec![close(0, "")], Some(CapsuleError::Malformed)), "behind a close");
        let long = encode(&[close(0, &"a".repeat(1024))]);
        assert_eq!(decode(&long, 100, true).1, None);
    }
}
