//! The filter `Compress` below a codec keeps the contract of codecs.

use std::fmt::Write as _;

use tidegate_codec::framing::Lines;
use tidegate_codec::{Blame, Lifecycle, Output, Over, OverError, Pipeline, Slice, Stages, Step};
use tidegate_compress::{Algorithm, Compress, Compression, Compressor, DecompressionLimits, Decompressor, Error};
use tidegate_testkit::contract::{Contract, Outcome};
use tidegate_testkit::filters::ToyTls;
use tidegate_testkit::{CodecHarness, Random, seed};

use crate::support::{compress, text};

type Stack = Over<Compress, Lines>;

fn stack(algorithm: Algorithm) -> Stack {
    Over::new(Compress::new(algorithm.into()), Lines::new())
}

/// The lines that are decoded.
fn received<C: Pipeline<In = Slice>>(harness: &mut CodecHarness<C>, wire: &[u8]) -> Vec<Vec<u8>> {
    let lines = harness.decode(wire).expect("it is valid");
    lines.iter().map(|line| line.to_vec()).collect()
}

fn lines() -> Vec<u8> {
    let mut lines = String::new();
    for number in 0..60 {
        writeln!(lines, "line {number} of ebb and flow").expect("a string takes it");
    }
    lines.into_bytes()
}

#[test]
fn lines_arrive_alike_in_any_pieces() {
    for &algorithm in Algorithm::ALL {
        let answer = |line: Slice, codec: &mut Stack, out: &mut Output<'_>| {
            codec.encode(line.into(), out).expect("it is a line");
        };
        let contract = Contract::new(|| stack(algorithm)).answer(answer).rounds(16);
        // A flush's compressed bytes depend on its time; the plain bytes do not.
        let contract = contract.replies(|wire| {
            let mut plain = Vec::new();
            let mut decompressor = Decompressor::new(algorithm, DecompressionLimits::default());
            decompressor.write(wire, usize::MAX, &mut plain).expect("it is valid");
            plain
        });
        let seen = contract.check(&compress(algorithm, &lines()));
        assert_eq!(seen.messages.len(), 60, "{algorithm}: {seen}");
        assert_eq!(seen.replies, lines(), "{algorithm}");
        assert_eq!(seen.outcome, Outcome::Ended, "{algorithm}: {seen}");
    }
}

/// How many of the lines before the invalid bytes arrive depends on the pieces: brotli keeps output until it needs input.
#[test]
fn hostile_bytes_cause_errors_and_no_panic() {
    let seed = seed();
    println!("TIDEGATE_SEED={seed:#x}");
    let mut random = Random::new(seed);
    for &algorithm in Algorithm::ALL {
        let valid = compress(algorithm, &lines());
        for _ in 0..300 {
            let mut wire = valid.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(wire.len());
                wire[at] = random.bits() as u8;
            }
            let longest = 1 + random.below(wire.len());
            let whole = all_lines(stack(algorithm), [&wire[..]]);
            let pieces = all_lines(stack(algorithm), wire.chunks(longest));
            assert_eq!(whole.1.is_some(), pieces.1.is_some(), "{algorithm}: {}", wire.escape_ascii());
            let count = whole.0.len().min(pieces.0.len());
            assert_eq!(whole.0[..count], pieces.0[..count], "{algorithm}: {}", wire.escape_ascii());
        }
    }
}

/// The lines of a connection that receives these pieces, and the error with which it ends, or none.
fn all_lines<'a>(stack: Stack, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Option<String>) {
    let (mut harness, mut lines) = (CodecHarness::new(stack), Vec::new());
    for piece in pieces {
        harness.receive(piece);
        loop {
            match harness.step() {
                Ok(Step::Message(line)) => lines.push(line.to_vec()),
                Ok(Step::NeedMore) => break,
                // The loop decodes no more.
                Ok(Step::End) => return (lines, None),
                Err(error) => return (lines, Some(error.to_string())),
            }
        }
        harness.compact();
    }
    loop {
        match harness.decode_eof() {
            Ok(Step::Message(line)) => lines.push(line.to_vec()),
            Ok(_) => return (lines, None),
            Err(error) => return (lines, Some(error.to_string())),
        }
    }
}

/// Checks that a connection ends with this error, or in good order, however the bytes are split; returns its lines.
fn check_splits(make: impl Fn() -> Stack, wire: &[u8], expected: Option<Error>) -> Vec<Vec<u8>> {
    let expected = expected.map(|error| error.to_string());
    let (lines, error) = all_lines(make(), [wire]);
    assert_eq!(error, expected, "whole: {}", wire.escape_ascii());
    for split in 1..wire.len() {
        let (first, second) = wire.split_at(split);
        let seen = all_lines(make(), [first, second]);
        assert_eq!(seen, (lines.clone(), expected.clone()), "split at {split}: {}", wire.escape_ascii());
    }
    assert_eq!(all_lines(make(), wire.chunks(1)), (lines.clone(), expected), "bytes: {}", wire.escape_ascii());
    lines
}

#[test]
fn bytes_behind_a_message_have_the_same_result_however_they_are_split() {
    for &algorithm in Algorithm::ALL {
        let message = compress(algorithm, b"ebb\nflow\n");
        let check = |more: &[u8], expected| {
            let lines = check_splits(|| stack(algorithm), &[&message, more].concat(), expected);
            assert_eq!(lines[..2], [&b"ebb"[..], b"flow"], "{algorithm}");
        };
        check(b"", None);
        match algorithm {
            Algorithm::Gzip => {
                // Zeros are padding, behind which nothing else may follow.
                check(&[0], None);
                check(&[0; 3], None);
                check(&[1], Some(Error::TrailingBytes));
                check(&[0, 1], Some(Error::TrailingBytes));
                check(&[&[0], &message[..]].concat(), Some(Error::TrailingBytes));
            }
            Algorithm::Deflate | Algorithm::RawDeflate | Algorithm::Brotli => {
                check(&[0], Some(Error::TrailingBytes));
                check(&message, Some(Error::TrailingBytes));
            }
            Algorithm::Zstd => {
                check(&[0], Some(Error::TrailingBytes));
                check(&message[..1], Some(Error::Truncated));
            }
            Algorithm::Lz4 => {
                check(&[0], Some(Error::Truncated));
                check(&[0; 4], Some(Error::TrailingBytes));
            }
            _ => {
                check(&[0], Some(Error::Truncated));
                check(&[0; 4], Some(Error::Corrupt(algorithm)));
            }
        }
        if algorithm.has_frames() {
            check(&message, None);
        }
    }
}

#[test]
fn an_end_within_a_line_has_the_same_result_however_it_is_split() {
    for &algorithm in Algorithm::ALL {
        let wire = compress(algorithm, b"ebb\nflo");
        let truncated = all_lines(stack(algorithm), [&wire[..]]);
        assert_eq!(truncated.0, [b"ebb"], "{algorithm}");
        let error = truncated.1.expect("the line has no end");
        for split in 1..wire.len() {
            let (first, second) = wire.split_at(split);
            let seen = all_lines(stack(algorithm), [first, second]);
            assert_eq!(seen, (vec![b"ebb".to_vec()], Some(error.clone())), "{algorithm}, split at {split}");
        }
    }
}

#[test]
fn the_limits_hold_for_all_frames_together_however_they_are_split() {
    for &algorithm in Algorithm::ALL.iter().filter(|algorithm| algorithm.has_frames()) {
        let wire = compress(algorithm, b"ebb\n").repeat(3);
        let limited = |output_max| {
            let limits = DecompressionLimits { output_max, ..DecompressionLimits::endless() };
            move || Over::new(Compress::new(algorithm.into()).limits(limits), Lines::new())
        };
        assert_eq!(check_splits(limited(12), &wire, None).len(), 3, "{algorithm}");
        let error = Error::OutputTooLong { output_max: 11 };
        for split in 1..wire.len() {
            let (first, second) = wire.split_at(split);
            let (_, seen) = all_lines(limited(11)(), [first, second]);
            assert_eq!(seen, Some(error.to_string()), "{algorithm}, split at {split}");
        }
    }
}

#[test]
fn a_filter_of_frames_gives_its_contexts_back_with_each_flush() {
    for &algorithm in Algorithm::ALL.iter().filter(|algorithm| algorithm.has_frames()) {
        let make = || Over::new(Compress::new(algorithm.into()).frame_per_flush(), Lines::new());
        let (mut sender, mut receiver) = (CodecHarness::new(make()), CodecHarness::new(make()));
        for text in ["ebb", "flow", "slack"] {
            sender.encode(text.into()).expect("it is a line");
            sender.flush().expect("it compresses");
            assert_eq!(received(&mut receiver, &sender.take_sent()), [text.as_bytes()], "{algorithm}");
            assert_eq!(sender.codec().filter().memory_bytes(), 0, "{algorithm}");
            // A frame of Snappy has no end.
            let inbound_max = if algorithm == Algorithm::Snappy { 64 } else { 0 };
            assert!(receiver.codec().filter().memory_bytes() <= inbound_max, "{algorithm}");
        }
    }
}

#[test]
fn a_context_lasts_across_flushes_and_makes_repeated_lines_short() {
    for algorithm in [Algorithm::RawDeflate, Algorithm::Deflate, Algorithm::Gzip, Algorithm::Brotli, Algorithm::Zstd] {
        let (mut sender, mut receiver) = (CodecHarness::new(stack(algorithm)), CodecHarness::new(stack(algorithm)));
        let line = text(600, &mut Random::new(1));
        let line: Vec<_> = line.into_iter().filter(|byte| !b"\r\n".contains(byte)).collect();
        let mut sizes = Vec::new();
        for _ in 0..3 {
            sender.encode(line.clone().into()).expect("it is a line");
            assert!(sender.codec().buffered_bytes() > 0, "{algorithm}: it counts as pending");
            sender.flush().expect("it compresses");
            assert_eq!(sender.codec().buffered_bytes(), 0, "{algorithm}");
            let sent = sender.take_sent();
            sizes.push(sent.len());
            assert_eq!(received(&mut receiver, &sent), [&line[..]], "{algorithm}");
        }
        assert!(sizes[2] * 4 < sizes[0], "{algorithm}: {sizes:?}");
    }
}

#[test]
fn a_close_ends_the_message_and_an_end_without_it_is_an_error() {
    for &algorithm in Algorithm::ALL {
        let mut sender = CodecHarness::new(stack(algorithm));
        sender.encode("ebb".into()).expect("it is a line");
        sender.flush().expect("it compresses");
        let open = sender.take_sent();
        sender.notify(Lifecycle::Close).expect("it ends");
        let closed = [&open[..], &sender.take_sent()].concat();

        let mut receiver = CodecHarness::new(stack(algorithm));
        assert_eq!(received(&mut receiver, &closed), [b"ebb"], "{algorithm}");
        assert!(receiver.decode_eof().is_ok(), "{algorithm}");

        let contract = Contract::new(|| stack(algorithm)).check_once(&open);
        // Snappy's format has no end.
        let expected = (algorithm != Algorithm::Snappy).then_some(Blame::Peer);
        assert_eq!(contract.blame(), expected, "{algorithm}");
        let accepting = || Over::new(Compress::new(algorithm.into()).accept_open_end(), Lines::new());
        assert_eq!(Contract::new(accepting).check_once(&open).blame(), None, "{algorithm}");
    }
}

#[test]
fn a_codec_that_stops_stops_the_expansion() {
    // 64 MiB of empty lines in 64 KiB.
    let mut wire = Vec::new();
    let mut compressor = Compressor::new(Algorithm::Gzip.into());
    for _ in 0..64 {
        compressor.write(&[b'\n'; 1 << 20], &mut wire).expect("it compresses");
    }
    compressor.finish(&mut wire).expect("it compresses");
    let limits = DecompressionLimits { ratio_max: 2000, ..DecompressionLimits::endless() };
    let mut receiver = CodecHarness::new(Over::new(Compress::new(Algorithm::Gzip.into()).limits(limits), Lines::new()));
    receiver.receive(&wire[..60_000]);
    for _ in 0..100_000 {
        assert!(matches!(receiver.step(), Ok(Step::Message(line)) if line.is_empty()));
        assert!(receiver.codec().input_memory() < 80_000, "one buffer is decompressed, and no more");
    }
}

#[test]
fn a_bomb_ends_the_connection_by_the_limit() {
    for &algorithm in Algorithm::ALL {
        let wire = compress(algorithm, &vec![b'\n'; 4 << 20]);
        let limits = DecompressionLimits { ratio_max: 10, ..DecompressionLimits::endless() };
        let make = || Over::new(Compress::new(algorithm.into()).limits(limits), Lines::new());
        let mut receiver = CodecHarness::new(make());
        receiver.receive(&wire[..wire.len().min(60_000)]);
        let error = loop {
            match receiver.step() {
                Ok(Step::Message(_)) => {}
                Ok(step) => panic!("{algorithm}: {step:?}"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, OverError::Filter(Error::RatioTooHigh { ratio_max: 10 })), "{algorithm}: {error}");
    }
}

#[test]
fn the_filter_lies_between_others() {
    let compression = Compression::new(Algorithm::Zstd);
    let make = |tls| Over::new(tls, Over::new(Compress::new(compression), Lines::new()));
    let (mut client, mut server) =
        (CodecHarness::new(make(ToyTls::client(7))), CodecHarness::new(make(ToyTls::server(7))));
    client.encode("ebb and flow".into()).expect("it is a line");
    client.flush().expect("the hello is sent");
    assert!(server.decode(&client.take_sent()).expect("a hello").is_empty());
    server.flush().expect("the answer is sent");
    assert!(client.decode(&server.take_sent()).expect("a hello").is_empty());
    client.flush().expect("the line is sent");
    assert_eq!(received(&mut server, &client.take_sent()), [b"ebb and flow"]);
}
