//! Long commands and replies in pieces: the same pieces however the network splits them, and little memory.

use tidegate_codec::Codec;
use tidegate_redis::{ClientCodec, IncomingCommand, IncomingReply, ProtocolLimits, ReplyPiece, ServerCodec};
use tidegate_testkit::CodecHarness;

const SHORT: ProtocolLimits = ProtocolLimits {
    whole_bytes_max: 32,
    bulk_bytes_max: 512 << 20,
    elements_max: 100,
    depth_max: 8,
    line_bytes_max: 64,
};

/// Decodes `wire` whole, byte by byte and at every split; the texts are joined by `text`, and must be the same.
fn in_every_split<C: Codec>(make: impl Fn() -> C, wire: &[u8], text: impl Fn(&C::In) -> String) -> String {
    let of = |parts: &[&[u8]]| {
        let mut harness = CodecHarness::new(make());
        let mut all = String::new();
        for part in parts {
            harness.decode(part).unwrap().iter().for_each(|message| all += &text(message));
        }
        assert!(harness.input().is_empty());
        all
    };
    let whole = of(&[wire]);
    assert_eq!(of(&wire.chunks(1).collect::<Vec<_>>()), whole);
    for at in 1..wire.len() {
        assert_eq!(of(&[&wire[..at], &wire[at..]]), whole, "split at {at}");
    }
    whole
}

#[test]
fn a_long_command_arrives_in_pieces() {
    let wire = b"*4\r\n$3\r\nSET\r\n$1\r\na\r\n$40\r\n0123456789012345678901234567890123456789\r\n$0\r\n\r\n\
        *1\r\n$4\r\nPING\r\n";
    let text = |message: &IncomingCommand| match message {
        IncomingCommand::Whole(command) => format!("{command:?}"),
        IncomingCommand::Begin(count) => format!("{count}["),
        IncomingCommand::Argument(bytes) => format!(" {bytes}:"),
        IncomingCommand::Data(data) => String::from_utf8_lossy(data).into_owned(),
        _ => "]".to_owned(),
    };
    let seen = in_every_split(|| ServerCodec::new(SHORT), wire, text);
    assert_eq!(seen, r#"4[ 3:SET 1:a 40:0123456789012345678901234567890123456789 0:]["PING"]"#);
}

#[test]
fn a_long_reply_arrives_in_pieces() {
    let wire = b"*5\r\n:1\r\n$40\r\n0123456789012345678901234567890123456789\r\n%?\r\n+a\r\n_\r\n.\r\n\
        $?\r\n;2\r\nab\r\n;1\r\nc\r\n;0\r\n~0\r\n+OK\r\n>1\r\n$31\r\n0123456789012345678901234567890\r\n";
    let text = |message: &IncomingReply| match message {
        IncomingReply::Piece(piece) => match piece {
            ReplyPiece::Scalar(value) => format!(" {value:?}"),
            ReplyPiece::Aggregate(kind, count) => format!(" {kind:?} {count:?}"),
            ReplyPiece::AggregateEnd => " .".to_owned(),
            ReplyPiece::Bulk(kind, bytes) => format!(" {kind:?} {bytes:?} "),
            ReplyPiece::Data(data) => String::from_utf8_lossy(data).into_owned(),
            ReplyPiece::BulkEnd => " /".to_owned(),
            _ => " end ".to_owned(),
        },
        other => format!("{other:?}"),
    };
    let seen = in_every_split(|| ClientCodec::new(SHORT), wire, text);
    let wanted = " Array Some(5) 1 String Some(40) 0123456789012345678901234567890123456789 / Map None +\"a\" null . \
        String None abc / Set Some(0) end Reply(+\"OK\") Push Some(1) String Some(31) 0123456789012345678901234567890 / end ";
    assert_eq!(seen, wanted);
}

#[test]
fn a_reply_of_100_mb_in_pieces_takes_little_memory() {
    let mut client = CodecHarness::new(ClientCodec::default());
    client.decode(b"$104857600\r\n").unwrap();
    let part = vec![b'x'; 64 << 10];
    let (mut bytes, mut most) = (0, 0);
    for _ in 0..1600 {
        let pieces = client.decode(&part).unwrap();
        most = most.max(client.pool().ledger().used());
        for piece in pieces {
            let IncomingReply::Piece(ReplyPiece::Data(data)) = piece else { panic!("{piece:?}") };
            bytes += data.len();
        }
    }
    assert_eq!(bytes, 100 << 20);
    assert_eq!(client.decode(b"\r\n").unwrap().len(), 2);
    assert!(most <= 1 << 20, "{most} bytes");
}
