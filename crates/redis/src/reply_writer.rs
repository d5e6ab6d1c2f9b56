//! `ReplyWriter`: a reply that arrived in pieces, as bytes again.

use crate::client_codec::ReplyPiece;
#[cfg(feature = "client")]
use crate::token::AggregateKind;
use crate::value::bulk_byte;

/// Writes the pieces of a reply as they are on the wire: a proxy passes on long replies.
///
/// The value is the same. The bytes may differ in the chunks of a streamed string, which are as long as the pieces.
///
/// ```
/// use tidegate::redis::{ClientCodec, IncomingReply, ProtocolLimits, ReplyWriter};
/// use tidegate_testkit::CodecHarness;
///
/// let limits = ProtocolLimits { whole_bytes_max: 16, ..ProtocolLimits::default() };
/// let wire = b"%1\r\n+tide\r\n$20\r\n01234567890123456789\r\n";
/// let mut writer = ReplyWriter::default();
/// let mut written = Vec::new();
/// for reply in CodecHarness::new(ClientCodec::new(limits)).decode(wire)? {
///     let IncomingReply::Piece(piece) = reply else { panic!("{reply:?}") };
///     writer.write(&piece, &mut written);
/// }
/// assert_eq!(written, wire);
/// # Ok::<(), tidegate::redis::RedisError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ReplyWriter {
    /// The string under way has no length, and arrives in chunks.
    is_streamed: bool,
}

impl ReplyWriter {
    /// Appends the bytes of the next piece.
    pub fn write(&mut self, piece: &ReplyPiece, out: &mut Vec<u8>) {
        match piece {
            ReplyPiece::Scalar(reply) => out.extend_from_slice(reply.wire()),
            ReplyPiece::Aggregate(kind, values) => {
                head(kind.first_byte(), values.map(|values| values / kind.values()), out);
            }
            ReplyPiece::AggregateEnd => out.extend_from_slice(b".\r\n"),
            ReplyPiece::Bulk(kind, bytes) => {
                self.is_streamed = bytes.is_none();
                head(bulk_byte(*kind), *bytes, out);
            }
            ReplyPiece::Data(bytes) if self.is_streamed => {
                head(b';', Some(bytes.len() as u64), out);
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            ReplyPiece::Data(bytes) => out.extend_from_slice(bytes),
            ReplyPiece::BulkEnd if self.is_streamed => out.extend_from_slice(b";0\r\n"),
            ReplyPiece::BulkEnd => out.extend_from_slice(b"\r\n"),
            ReplyPiece::End => {}
        }
    }
}

fn head(first: u8, count: Option<u64>, out: &mut Vec<u8>) {
    out.push(first);
    match count {
        Some(count) => out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes()),
        None => out.push(b'?'),
    }
    out.extend_from_slice(b"\r\n");
}

/// Whether a piece is the first one of a push.
#[cfg(feature = "client")]
pub(crate) const fn begins_push(piece: &ReplyPiece) -> bool {
    matches!(piece, ReplyPiece::Aggregate(AggregateKind::Push, _))
}
