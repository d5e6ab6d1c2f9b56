//! A log is a filter that no other stage notices.

use tidegate::bytelog::{ByteLog, ByteSink, Direction};
use tidegate::codec::Time;
use tidegate::framing::{LengthField, Lines, Raw};
use tidegate::{Over, Slice};
use tidegate_testkit::filters::ToyTls;
use tidegate_testkit::{CodecHarness, Embedded, contract};

use crate::support::Echo;

/// Keeps everything, while it is active.
#[derive(Debug)]
struct Keep {
    is_active: bool,
    bytes: [Vec<u8>; 2],
    skipped: [u64; 2],
    ends: Vec<Direction>,
}

impl Keep {
    fn new(is_active: bool) -> Self {
        Self { is_active, bytes: Default::default(), skipped: [0; 2], ends: Vec::new() }
    }
}

impl ByteSink for Keep {
    fn is_active(&self) -> bool {
        self.is_active
    }

    fn record(&mut self, direction: Direction, bytes: &[u8], _: &Time) {
        assert!(self.is_active && !bytes.is_empty());
        self.bytes[direction as usize].extend_from_slice(bytes);
    }

    fn skip(&mut self, direction: Direction, bytes: u64) {
        self.skipped[direction as usize] += bytes;
    }

    fn end(&mut self, direction: Direction, _: &Time) {
        self.ends.push(direction);
    }
}

#[test]
fn a_logged_codec_keeps_the_contract_of_codecs() {
    let wire = b"\0\x03ebb\0\0\0\x04flow";
    for is_active in [false, true] {
        let make = move || Over::new(ByteLog::new(Keep::new(is_active)), LengthField::new(2));
        contract::check(make, wire);
        contract::never_panics(make, wire, 200);
    }
}

#[test]
fn the_sink_gets_both_directions_and_each_end_once() {
    for is_active in [false, true] {
        let mut lines = CodecHarness::new(Over::new(ByteLog::new(Keep::new(is_active)), Lines::new()));
        for piece in [&b"eb"[..], b"b\nfl", b"ow\n"] {
            for line in lines.decode(piece).unwrap() {
                lines.encode(line.into()).unwrap();
                lines.flush().unwrap();
            }
        }
        assert_eq!(lines.take_sent(), b"ebb\nflow\n");
        for _ in 0..2 {
            lines.decode_eof().unwrap();
            lines.close().unwrap();
        }
        let sink = lines.codec().filter().sink();
        let expected: &[u8] = if is_active { b"ebb\nflow\n" } else { b"" };
        assert_eq!(sink.bytes, [expected, expected]);
        assert_eq!(sink.skipped, if is_active { [0, 0] } else { [9, 9] });
        assert_eq!(sink.ends, [Direction::Inbound, Direction::Outbound]);
    }
}

#[test]
fn a_sink_may_become_active_and_inactive_between_pieces() {
    let mut raw = CodecHarness::new(Over::new(ByteLog::new(Keep::new(false)), Raw));
    for (index, piece) in [b"one", b"two", b"six"].into_iter().enumerate() {
        raw.parts().0.filter_mut().sink_mut().is_active = index == 1;
        let messages = raw.decode(piece).unwrap();
        assert_eq!(messages.iter().map(|bytes| &**bytes).collect::<Vec<_>>(), [piece]);
        raw.encode(messages[0].clone().into()).unwrap();
        raw.flush().unwrap();
    }
    let sink = raw.codec().filter().sink();
    assert_eq!((&sink.bytes, sink.skipped), (&[b"two".to_vec(), b"two".to_vec()], [6, 6]));
}

#[test]
fn large_messages_pass_in_both_directions_without_being_copied() {
    for is_active in [false, true] {
        let mut raw = CodecHarness::new(Over::new(ByteLog::new(Keep::new(is_active)), Raw));
        let [message]: [Slice; 1] = raw.decode(&[7; 30_000]).unwrap().try_into().unwrap();
        let at = message.as_ptr();
        let mut alone = CodecHarness::new(Raw);
        let without = alone.decode(&[7; 30_000]).unwrap();
        assert_eq!(raw.pool().ledger().used(), alone.pool().ledger().used(), "as much memory as without a log");
        drop(without);
        raw.encode(message.into()).unwrap();
        raw.flush().unwrap();
        assert_eq!(raw.queue().front().map(<[u8]>::as_ptr), Some(at));
    }
}

#[test]
fn above_a_filter_the_log_has_plain_bytes_and_below_it_those_of_the_wire() {
    let wire = ToyTls::client_wire(3, b"ebb\nflow\n", 4);
    let log = || ByteLog::new(Keep::new(true));
    let make = || Over::new(log(), Over::new(ToyTls::server(3), Over::new(log(), Lines::new())));
    let mut stack = CodecHarness::new(make());
    for byte in &wire {
        for line in stack.decode(&[*byte]).unwrap() {
            stack.encode(line.into()).unwrap();
            stack.flush().unwrap();
        }
    }
    stack.decode_eof().unwrap();
    stack.close().unwrap();
    let sent = stack.take_sent();
    let (below, above) = (stack.codec().filter().sink(), stack.codec().codec().codec().filter().sink());
    assert_eq!(below.bytes, [wire, sent.clone()]);
    assert_eq!(above.bytes, [b"ebb\nflow\n".to_vec(), b"ebb\nflow\n".to_vec()]);
    assert_eq!(ToyTls::decode_wire(3, &sent), (b"ebb\nflow\n".to_vec(), true));
    // The goodbye ended the inbound side: the stages above do not read on, so they do not see the end below.
    assert_eq!(
        (&above.ends[..], &below.ends[..]),
        (&[Direction::Inbound, Direction::Outbound][..], &[Direction::Outbound][..])
    );
}

#[test]
fn a_connection_echoes_over_a_log_in_any_pieces() {
    for is_active in [false, true] {
        let mut pipe = Embedded::new(Over::new(ByteLog::new(Keep::new(is_active)), Lines::new()), Echo);
        let wire = b"ebb\nflow\n".repeat(2_000);
        pipe.receive(&wire);
        pipe.receive_bytewise(b"slack\n");
        pipe.receive_fin();
        assert_eq!(pipe.take_written(), [&wire[..], b"slack\n"].concat());
        assert!(pipe.is_closed());
    }
}
