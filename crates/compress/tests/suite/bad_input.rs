//! Messages that are invalid, truncated, too large, or made to exhaust memory.

use tidegate_codec::{Blame, Fault};
use tidegate_compress::{Algorithm, Compression, Compressor, DecompressionLimits, Decompressor, Error};
use tidegate_testkit::{Random, seed};

use crate::support::{compress, decompress, decompress_pieces, decompress_with, noise, text};

fn new(algorithm: Algorithm) -> Decompressor {
    Decompressor::new(algorithm, DecompressionLimits::default())
}

#[test]
fn a_message_that_is_cut_off_is_an_error() {
    for &algorithm in Algorithm::ALL {
        for plain in [text(300, &mut Random::new(1)), noise(300, &mut Random::new(1))] {
            let wire = compress(algorithm, &plain);
            for end in 0..wire.len() {
                let cut = decompress(algorithm, &wire[..end]);
                // A frame of Snappy ends with any chunk, the first of which identifies the stream.
                let is_chunk = algorithm == Algorithm::Snappy && end == 10;
                assert!(is_chunk || cut == Err(Error::Truncated), "{algorithm}: {end} of {}: {cut:?}", wire.len());
            }
        }
    }
}

#[test]
fn bytes_behind_a_message_are_an_error() {
    for &algorithm in Algorithm::ALL {
        let wire = [&compress(algorithm, b"ebb and flow")[..], b"\0trailing bytes"].concat();
        let errors = [decompress(algorithm, &wire), decompress_pieces(&mut new(algorithm), &wire, || 1, || 64)];
        // To Snappy it is a chunk of a wrong length.
        let expected = if algorithm == Algorithm::Snappy { Error::Corrupt(algorithm) } else { Error::TrailingBytes };
        assert_eq!(errors, [Err(expected), Err(expected)], "{algorithm}");
    }
}

#[test]
fn bytes_before_a_fault_are_the_same_however_the_message_is_split() {
    let plain = text(300, &mut Random::new(1));
    for algorithm in [Algorithm::RawDeflate, Algorithm::Deflate, Algorithm::Gzip] {
        let mut compressor = Compressor::new(Compression::new(algorithm));
        let mut wire = Vec::new();
        compressor.write(&plain, &mut wire).and_then(|_| compressor.flush(&mut wire)).expect("there is memory");
        // No block has this type (RFC 1951 §3.2.3).
        wire.push(0b111);
        for piece in [1, 7, wire.len()] {
            let (mut decompressor, mut written, mut space) = (new(algorithm), Vec::new(), [0; 1024]);
            let error = wire.chunks(piece).find_map(|mut input| {
                loop {
                    match decompressor.step(input, &mut space) {
                        Ok(progress) => {
                            written.extend_from_slice(&space[..progress.written]);
                            input = &input[progress.read..];
                            if progress.is_complete {
                                return None;
                            }
                        }
                        Err(error) => return Some(error),
                    }
                }
            });
            assert_eq!(error, Some(Error::Corrupt(algorithm)), "{algorithm} in pieces of {piece}");
            assert!(written == plain, "{algorithm} in pieces of {piece}: {} bytes", written.len());
        }
    }
}

#[test]
fn a_change_of_any_byte_is_no_panic_and_no_endless_loop() {
    for &algorithm in Algorithm::ALL {
        let plain = text(400, &mut Random::new(2));
        let wire = compress(algorithm, &plain);
        for at in 0..wire.len() {
            for flip in [1, 0x80, 0xff, wire[at]] {
                let mut changed = wire.clone();
                changed[at] ^= flip;
                let whole = decompress(algorithm, &changed);
                let pieces = decompress_pieces(&mut new(algorithm), &changed, || 3, || 5);
                assert_eq!(whole.is_ok(), pieces.is_ok(), "{algorithm}: {whole:?} and {pieces:?}");
                if let (Ok(whole), Ok(pieces)) = (&whole, &pieces) {
                    assert_eq!(whole, pieces, "{algorithm}");
                }
                if let Err(error) = whole {
                    assert_ne!(error.blame(), Blame::Caller);
                    assert_ne!(error.blame(), Blame::System);
                }
            }
        }
    }
}

#[test]
fn noise_is_refused_without_a_panic() {
    let seed = seed();
    println!("TIDEGATE_SEED={seed:#x}");
    let mut random = Random::new(seed);
    for _ in 0..2000 {
        let length = random.below(200);
        let bytes = noise(length, &mut random);
        for &algorithm in Algorithm::ALL {
            // A valid beginning reaches further.
            let prefix = random.below(20);
            let valid = compress(algorithm, b"ebb and flow, ebb and flow");
            let wire = [&valid[..prefix.min(valid.len())], &bytes].concat();
            let whole = decompress(algorithm, &wire);
            let pieces = decompress_pieces(&mut new(algorithm), &wire, || 1, || 7);
            assert_eq!(whole.is_ok(), pieces.is_ok(), "{algorithm}: {whole:?}, {pieces:?}: {wire:?}");
        }
    }
}

#[test]
fn a_message_beyond_the_limit_of_output_is_refused_and_one_at_the_limit_is_not() {
    let plain = text(10_000, &mut Random::new(3));
    for &algorithm in Algorithm::ALL {
        let wire = compress(algorithm, &plain);
        let limits = |output_max| DecompressionLimits { output_max, ..DecompressionLimits::default() };
        let at = decompress_with(&mut Decompressor::new(algorithm, limits(10_000)), &wire);
        assert_eq!(at.as_deref(), Ok(&plain[..]), "{algorithm}");
        let beyond = decompress_with(&mut Decompressor::new(algorithm, limits(9_999)), &wire);
        assert_eq!(beyond, Err(Error::OutputTooLong { output_max: 9_999 }), "{algorithm}");
    }
}

#[test]
fn bombs_of_zeros_stop_at_the_ratio() {
    let plain = vec![0; 32 * 1024 * 1024];
    for &algorithm in Algorithm::ALL {
        let wire = compress(algorithm, &plain);
        // Snappy reaches 21.
        let ratio_max = if algorithm == Algorithm::Snappy { 10 } else { 100 };
        let limits = DecompressionLimits { ratio_max, ..DecompressionLimits::default() };
        let (written, error) = explode(&mut Decompressor::new(algorithm, limits), &wire);
        assert_eq!(error, Error::RatioTooHigh { ratio_max }, "{algorithm}");
        let bound = limits.ratio_after + u64::from(ratio_max) * wire.len() as u64;
        assert!(written <= bound.min(limits.output_max), "{algorithm}: {written} bytes");
    }
}

#[test]
fn nested_bombs_stop_at_the_ratio_of_the_whole() {
    let plain = vec![0; 64 * 1024 * 1024];
    for &inner in Algorithm::ALL {
        let once = compress(inner, &plain);
        for &outer in Algorithm::ALL {
            let wire = compress(outer, &once);
            let limits = DecompressionLimits { ratio_max: 10, ..DecompressionLimits::default() };
            let mut decompressor = Decompressor::layers(&[inner, outer], limits).expect("two layers are allowed");
            let (written, error) = explode(&mut decompressor, &wire);
            assert_eq!(error, Error::RatioTooHigh { ratio_max: 10 }, "{inner} in {outer}");
            assert!(written <= limits.ratio_after + 10 * wire.len() as u64 + 4096, "{inner} in {outer}: {written}");
        }
    }
}

/// A layer that expands to nothing costs time all the same.
#[test]
fn a_layer_that_expands_to_empty_members_stops_at_the_ratio() {
    let empty = compress(Algorithm::Gzip, b"").repeat(500_000);
    let wire = compress(Algorithm::Gzip, &empty);
    let mut decompressor =
        Decompressor::layers(&[Algorithm::Gzip, Algorithm::Gzip], DecompressionLimits::default()).expect("two layers");
    assert_eq!(explode(&mut decompressor, &wire), (0, Error::RatioTooHigh { ratio_max: 100 }));
}

/// Takes output in small spaces until an error; returns how much there was.
fn explode(decompressor: &mut Decompressor, wire: &[u8]) -> (u64, Error) {
    let (mut rest, mut written) = (wire, 0);
    loop {
        match decompressor.step(rest, &mut [0; 4096]) {
            Ok(progress) => {
                assert!(!progress.is_complete, "it is no bomb");
                written += progress.written as u64;
                rest = &rest[progress.read..];
            }
            Err(error) => return (written, error),
        }
    }
}

#[test]
fn more_layers_than_the_limit_are_refused() {
    let three = [Algorithm::Gzip; 3];
    let refused = Decompressor::layers(&three, DecompressionLimits::default()).map(|_| ());
    assert_eq!(refused, Err(Error::TooManyLayers { layers_max: 2 }));
}

#[test]
fn windows_beyond_the_limit_are_refused_before_they_take_memory() {
    let plain = text(5000, &mut Random::new(4));
    let limits = DecompressionLimits { window_max: 64 * 1024, ..DecompressionLimits::default() };
    let too_large = Error::WindowTooLarge { window_max: 64 * 1024 };
    for algorithm in [Algorithm::Brotli, Algorithm::Zstd] {
        for (bits, expected) in [(16, Ok(plain.clone())), (17, Err(too_large)), (22, Err(too_large))] {
            let mut wire = Vec::new();
            // A flush keeps zstd from declaring the length of the message as its window.
            let compression = Compression::new(algorithm).window_bits(bits);
            let mut compressor = Compressor::new(compression);
            compressor.write(&plain[..1], &mut wire).expect("it compresses");
            compressor.flush(&mut wire).expect("it compresses");
            compressor.finish_with(&plain[1..], &mut wire).expect("it compresses");
            let mut decompressor = Decompressor::new(algorithm, limits);
            let seen = decompress_with(&mut decompressor, &wire);
            assert_eq!(seen, expected, "{algorithm}, {bits} bits");
            assert!(decompressor.memory_bytes() < 500 * 1024, "{algorithm}: {}", decompressor.memory_bytes());
        }
    }
}

#[test]
fn a_header_of_gzip_without_end_is_refused() {
    let name = [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 255][..], &vec![b'x'; 100_000]].concat();
    let refused = decompress(Algorithm::Gzip, &name);
    assert!(matches!(refused, Err(Error::HeaderTooLong { .. })), "{refused:?}");
}

#[test]
fn output_that_waits_is_an_error_at_the_end_of_input() {
    let wire = compress(Algorithm::Gzip, &[7; 1000]);
    let mut decompressor = new(Algorithm::Gzip);
    assert!(!decompressor.step(&wire, &mut [0; 10]).expect("it is valid").is_complete);
    assert_eq!(decompressor.finish(), Err(Error::OutputPending));
}

/// As `gzip` does: archives are padded with them to whole blocks.
#[test]
fn zeros_behind_the_end_of_gzip_are_ignored() {
    let message = compress(Algorithm::Gzip, b"ebb and flow");
    for zeros in [1, 2, 511, 100_000] {
        let wire = [&message[..], &vec![0; zeros]].concat();
        let pieces = decompress_pieces(&mut new(Algorithm::Gzip), &wire, || 1, || 64);
        for plain in [decompress(Algorithm::Gzip, &wire), pieces] {
            assert_eq!(plain.as_deref(), Ok(&b"ebb and flow"[..]), "{zeros}");
        }
        let wire = [&wire[..], &message].concat();
        assert_eq!(decompress(Algorithm::Gzip, &wire), Err(Error::TrailingBytes), "a member behind {zeros} zeros");
    }
    assert_eq!(decompress(Algorithm::Gzip, &[&[0], &message[..]].concat()), Err(Error::Corrupt(Algorithm::Gzip)));
    assert_eq!(decompress(Algorithm::Gzip, &[0; 20]), Err(Error::Corrupt(Algorithm::Gzip)));
}
