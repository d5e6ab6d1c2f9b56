//! The codec of a gateway between two tunnels of capsules (RFC 9297 §3): datagrams come whole, since the other tunnel may send
//! them in another form, and all other bytes as they came, whatever their types and lengths.

use std::convert::Infallible;

use bytes::Bytes;
use tidegate_codec::{Codec, Input, Output, Slice, Step};

use crate::capsule::DATAGRAM;
use crate::varint;

/// A codec that takes the datagrams out of a stream of capsules, and puts them in.
///
/// ```
/// use tidegate::http3::{CapsuleRelay, RelayPiece};
/// use tidegate::{Context, Handler, Outcome};
/// use tidegate_testkit::Embedded;
///
/// /// Passes everything back but datagrams.
/// struct Back;
///
/// impl Handler<CapsuleRelay> for Back {
///     type Post = ();
///
///     fn message(&mut self, piece: RelayPiece, cx: &mut Context<'_, CapsuleRelay>) -> Outcome<CapsuleRelay> {
///         if matches!(piece, RelayPiece::Datagram(_)) { Outcome::Continue } else { cx.send(piece).into() }
///     }
/// }
///
/// let mut pipe = Embedded::new(CapsuleRelay::default(), Back);
/// pipe.receive(b"\x21\x04neap\x00\x03ebb\x21\x00");
/// assert_eq!(pipe.take_written(), b"\x21\x04neap\x21\x00");
/// ```
#[derive(Debug, Default)]
pub struct CapsuleRelay {
    /// Bytes of another capsule that are to come.
    left: u64,
}

/// A part of a stream of capsules.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RelayPiece {
    /// The payload of a DATAGRAM capsule.
    Datagram(Bytes),
    /// Bytes of a capsule of another type, or of one too long for a datagram of UDP.
    Bytes {
        /// The bytes, at least one.
        bytes: Slice,
        /// A capsule ends with them.
        ends: bool,
    },
}

impl Codec for CapsuleRelay {
    type In = RelayPiece;
    type Out = RelayPiece;
    type Error = Infallible;

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<RelayPiece>, Infallible> {
        if self.left == 0 {
            let Some((kind, first)) = varint::read(input.bytes()) else { return Ok(Step::NeedMore) };
            let Some((length, second)) = varint::read(&input.bytes()[first..]) else { return Ok(Step::NeedMore) };
            let head = first + second;
            if kind == DATAGRAM && length <= DATAGRAM_BYTES_MAX {
                let value = length as usize;
                if input.len() < head + value {
                    return Ok(Step::NeedMore);
                }
                input.consume(head);
                return Ok(Step::Message(RelayPiece::Datagram(input.take(value).to_bytes())));
            }
            self.left = head as u64 + length;
        }
        let count = self.left.min(input.len() as u64);
        if count == 0 {
            return Ok(Step::NeedMore);
        }
        self.left -= count;
        let bytes = input.take(count as usize);
        Ok(Step::Message(RelayPiece::Bytes { bytes, ends: self.left == 0 }))
    }

    /// A stream that ends within a capsule ends there on the other side too, which finds that malformed (RFC 9297 §3.3).
    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<RelayPiece>, Infallible> {
        match self.decode(input, reply)? {
            Step::NeedMore if !input.is_empty() => {
                Ok(Step::Message(RelayPiece::Bytes { bytes: input.take_all(), ends: false }))
            }
            Step::NeedMore => Ok(Step::End),
            step => Ok(step),
        }
    }

    fn encode(&mut self, piece: RelayPiece, out: &mut Output<'_>) -> Result<(), Infallible> {
        match piece {
            RelayPiece::Datagram(payload) => {
                let mut head = Vec::with_capacity(16);
                varint::write(DATAGRAM, &mut head);
                varint::write(payload.len() as u64, &mut head);
                out.write(&head);
                out.link_bytes(payload);
            }
            RelayPiece::Bytes { bytes, .. } => out.link(bytes),
        }
        Ok(())
    }

    fn protocol(&self) -> &'static str {
        "capsules"
    }
}

/// The longest payload that is one of a datagram: that of a UDP datagram with the context id before it (RFC 9298 §5).
const DATAGRAM_BYTES_MAX: u64 = 65_535;

#[cfg(test)]
mod tests {
    use std::time::{Instant, SystemTime};

    use tidegate_codec::{Outbound, Pool, Time};

    use super::*;
    use crate::capsule::tests::take_bytes;

    /// Decodes bytes that come in pieces of this length. Returns the datagrams, and the other bytes with a mark behind each
    /// capsule.
    fn relay(wire: &[u8], piece: usize) -> (Vec<Bytes>, Vec<u8>) {
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let (mut queue, mut input, mut codec) = (Outbound::new(&pool), Input::new(), CapsuleRelay::default());
        let mut reply = Output::new(&mut queue, &pool, &time);
        let (mut datagrams, mut others) = (Vec::new(), Vec::new());
        let mut pieces = wire.chunks(piece);
        loop {
            let next = pieces.next();
            if let Some(piece) = next {
                input.append(pool.copy(piece), &pool);
            }
            loop {
                let step = match next {
                    Some(_) => codec.decode(&mut input, &mut reply),
                    None => codec.decode_eof(&mut input, &mut reply),
                };
                match step.expect("no error") {
                    Step::Message(RelayPiece::Datagram(payload)) => datagrams.push(payload),
                    Step::Message(RelayPiece::Bytes { bytes, ends }) => {
                        others.extend_from_slice(&bytes);
                        others.extend(ends.then_some(b'|'));
                    }
                    Step::End => return (datagrams, others),
                    _ => break,
                }
            }
        }
    }

    #[test]
    fn datagrams_come_whole_and_other_capsules_as_they_came_at_every_split() {
        let long = [&[0x21, 0x44, 0][..], &[7; 1_024]].concat();
        let wire = [b"\0\x03ebb", &long[..], b"\0\0\x21\x00\0\x04flow\x41\x22\x01a"].concat();
        let datagrams: Vec<Bytes> = [&b"ebb"[..], b"", b"flow"].into_iter().map(Bytes::from_static).collect();
        let others = [&long[..], b"|\x21\x00|\x41\x22\x01a|"].concat();
        for piece in 1..wire.len() {
            assert_eq!(relay(&wire, piece), (datagrams.clone(), others.clone()), "pieces of {piece}");
        }
    }

    #[test]
    fn a_capsule_of_any_length_passes_and_the_end_within_one_stays_there() {
        let endless = [&b"\x21\xff\xff\xff\xff\xff\xff\xff\xff"[..], &[7; 5_000]].concat();
        // Longer than a UDP datagram can be.
        let long = [&[0, 0x80, 1, 0, 0][..], &[7; 65_536]].concat();
        for (wire, others) in [
            (&endless[..], endless.clone()),
            (&long, [&long[..], b"|"].concat()),
            (b"\0\x05ebb", b"\0\x05ebb".to_vec()),
            (b"\x21", b"\x21".to_vec()),
            (b"", vec![]),
        ] {
            for piece in [1, 1_000, wire.len().max(1)] {
                assert_eq!(relay(wire, piece), (vec![], others.clone()), "{} bytes by {piece}", wire.len());
            }
        }
        let most = [&[0, 0x80, 0, 0xff, 0xff][..], &[7; 65_535]].concat();
        assert_eq!(relay(&most, 1_000).0.first().map(Bytes::len), Some(65_535));
    }

    #[test]
    fn datagrams_are_written_as_capsules() {
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let mut queue = Outbound::new(&pool);
        let mut out = Output::new(&mut queue, &pool, &time);
        let mut codec = CapsuleRelay::default();
        let bytes = RelayPiece::Bytes { bytes: pool.copy(b"\x21\x00"), ends: true };
        for piece in [RelayPiece::Datagram(Bytes::from_static(b"ebb")), bytes] {
            codec.encode(piece, &mut out).expect("a piece");
        }
        assert_eq!(take_bytes(&mut queue), b"\0\x03ebb\x21\x00");
    }
}
