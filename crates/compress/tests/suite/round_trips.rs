//! Compressed bytes decompress to the original, however they are divided.

use tidegate_compress::{Algorithm, Compression, Compressor, DecompressionLimits, Decompressor, Error, Operation};
use tidegate_testkit::{Random, seed};

use crate::support::{compress, decompress, decompress_pieces, noise, step_all, text};

fn new(algorithm: Algorithm) -> Decompressor {
    Decompressor::new(algorithm, DecompressionLimits::default())
}

#[test]
fn every_split_of_input_gives_the_same_message() {
    let plain = text(700, &mut Random::new(1));
    for &algorithm in Algorithm::ALL {
        let wire = compress(algorithm, &plain);
        for at in 0..=wire.len() {
            let mut first = Some(at);
            let pieces = || first.take().unwrap_or(usize::MAX);
            let decompressed = decompress_pieces(&mut new(algorithm), &wire, pieces, || 4096);
            assert_eq!(decompressed.as_deref(), Ok(&plain[..]), "{algorithm}, split at {at}");
        }
        for at in 0..=plain.len() {
            let (first, rest) = plain.split_at(at);
            let mut out = Vec::new();
            let mut compressor = Compressor::new(algorithm.into());
            compressor.write(first, &mut out).expect("it compresses");
            compressor.finish_with(rest, &mut out).expect("it compresses");
            assert_eq!(decompress(algorithm, &out).as_deref(), Ok(&plain[..]), "{algorithm}, split at {at}");
        }
        let bytewise = decompress_pieces(&mut new(algorithm), &wire, || 1, || 1);
        assert_eq!(bytewise.as_deref(), Ok(&plain[..]), "{algorithm}, byte by byte");
    }
}

#[test]
fn empty_pieces_change_nothing() {
    let plain = text(3_000, &mut Random::new(6));
    for &algorithm in Algorithm::ALL {
        let wire = compress(algorithm, &plain);
        let mut calls = 0;
        let every_fortieth = || {
            calls += 1;
            usize::from(calls % 40 == 0)
        };
        let decompressed = decompress_pieces(&mut new(algorithm), &wire, every_fortieth, || 4096);
        assert_eq!(decompressed.as_deref(), Ok(&plain[..]), "{algorithm}");
    }
}

#[test]
fn random_pieces_operations_and_settings_give_the_same_message() {
    let seed = seed();
    println!("TIDEGATE_SEED={seed:#x}");
    let mut random = Random::new(seed);
    for round in 0..40 {
        for &algorithm in Algorithm::ALL {
            let length = 1 << random.below(19);
            let length = random.below(length + 1);
            let plain = if random.once_in(4) { noise(length, &mut random) } else { text(length, &mut random) };
            let level = 1 + random.below(6) as u8;
            let compression = Compression::new(algorithm).level(level).window_bits(9 + random.below(12) as u8);
            let magnitude = 4 + random.below(14);
            let longest = 2 + random.below(1 << magnitude);
            let mut compressor = Compressor::new(compression);
            let (mut wire, mut rest) = (Vec::new(), &plain[..]);
            while !rest.is_empty() {
                let (piece, after) = rest.split_at((1 + random.below(longest)).min(rest.len()));
                rest = after;
                let operation = if random.once_in(16) { Operation::Flush } else { Operation::Write };
                step_all(&mut compressor, operation, piece, || 1 + random.below(longest), &mut wire);
            }
            step_all(&mut compressor, Operation::Finish, &[], || 1 + random.below(longest), &mut wire);
            let mut more = Random::new(random.bits());
            let pieces = || random.below(longest);
            let spaces = || 1 + more.below(longest);
            let decompressed = decompress_pieces(&mut new(algorithm), &wire, pieces, spaces);
            let error = decompressed.as_ref().err();
            assert_eq!(error, None, "round {round}, {compression:?}: {length} bytes");
            assert!(decompressed.as_deref() == Ok(&plain[..]), "round {round}, {compression:?}: {length} bytes");
        }
    }
}

#[test]
fn every_level_gives_the_same_message() {
    let plain = text(30_000, &mut Random::new(2));
    for &algorithm in Algorithm::ALL {
        for level in 0..=19 {
            let wire = compress(Compression::new(algorithm).level(level), &plain);
            assert!(wire.len() < plain.len() / 2, "{algorithm} {level}: {} bytes", wire.len());
            assert_eq!(decompress(algorithm, &wire).as_deref(), Ok(&plain[..]), "{algorithm} {level}");
        }
    }
}

#[test]
fn an_empty_message_is_one_and_no_bytes_are_none() {
    for &algorithm in Algorithm::ALL {
        let wire = compress(algorithm, b"");
        assert!(!wire.is_empty());
        assert_eq!(decompress(algorithm, &wire).as_deref(), Ok(&b""[..]), "{algorithm}");
        assert_eq!(decompress(algorithm, b""), Err(Error::Truncated), "{algorithm}");
    }
}

#[test]
fn after_a_flush_everything_so_far_is_decompressed() {
    let mut random = Random::new(3);
    for &algorithm in Algorithm::ALL {
        let (mut compressor, mut decompressor) = (Compressor::new(algorithm.into()), new(algorithm));
        for length in [1, 100, 4000, 70_000, 1] {
            let plain = text(length, &mut random);
            let (mut wire, mut seen) = (Vec::new(), Vec::new());
            compressor.write(&plain, &mut wire).expect("it compresses");
            assert!(compressor.is_unflushed());
            compressor.flush(&mut wire).expect("it compresses");
            assert!(!compressor.is_unflushed());
            assert_eq!(compressor.flush(&mut wire), Ok(0), "{algorithm}: a second flush has nothing to write");
            let progress = decompressor.write(&wire, usize::MAX, &mut seen).expect("it is valid");
            assert!(progress.is_complete);
            assert!(seen == plain, "{algorithm}: {} of {length} bytes after a flush", seen.len());
        }
        let (mut wire, mut seen) = (Vec::new(), Vec::new());
        compressor.finish(&mut wire).expect("it compresses");
        decompressor.write(&wire, usize::MAX, &mut seen).expect("it is valid");
        assert_eq!((seen.len(), decompressor.finish()), (0, Ok(())), "{algorithm}");
    }
}

#[test]
fn flushes_with_any_space_terminate_and_are_complete() {
    let plain = noise(3000, &mut Random::new(4));
    for &algorithm in Algorithm::ALL {
        for space in [1, 2, 3, 5, 6, 7, 8, 100, 1000, 3005, 3010] {
            let (mut compressor, mut wire, mut seen) = (Compressor::new(algorithm.into()), Vec::new(), Vec::new());
            step_all(&mut compressor, Operation::Flush, &plain, || space, &mut wire);
            assert!(wire.len() < 3200, "{algorithm}: {} bytes", wire.len());
            new(algorithm).write(&wire, usize::MAX, &mut seen).expect("it is valid");
            assert!(seen == plain, "{algorithm}: {} bytes in spaces of {space}", seen.len());
        }
    }
}

#[test]
fn a_finished_compressor_refuses_more() {
    for &algorithm in Algorithm::ALL {
        let (mut compressor, mut wire) = (Compressor::new(algorithm.into()), Vec::new());
        compressor.finish(&mut wire).expect("it compresses");
        assert!(compressor.is_finished());
        assert_eq!(compressor.write(b"more", &mut wire), Err(Error::Finished));
        assert_eq!(compressor.memory_bytes(), 0, "the context is back in the pool");
    }
}

#[test]
fn layers_are_decompressed_in_the_reverse_order() {
    let plain = text(50_000, &mut Random::new(5));
    for &inner in Algorithm::ALL {
        for &outer in Algorithm::ALL {
            let wire = compress(outer, &compress(inner, &plain));
            for (input, space) in [(usize::MAX, 4096), (1, 64), (7, 100_000)] {
                let limits = DecompressionLimits::default();
                let mut decompressor = Decompressor::layers(&[inner, outer], limits).expect("two layers are allowed");
                let decompressed = decompress_pieces(&mut decompressor, &wire, || input, || space);
                assert!(decompressed.as_deref() == Ok(&plain[..]), "{inner} in {outer}: {:?}", decompressed.err());
            }
        }
    }
}

#[test]
fn no_layer_passes_bytes_on() {
    let mut decompressor = Decompressor::layers(&[], DecompressionLimits::default()).expect("none is allowed");
    assert_eq!(decompress_pieces(&mut decompressor, b"ebb and flow", || 5, || 3).as_deref(), Ok(&b"ebb and flow"[..]));
}

#[test]
fn frames_follow_each_other() {
    for &algorithm in Algorithm::ALL {
        let wire = [compress(algorithm, b"ebb "), compress(algorithm, b""), compress(algorithm, b"flow")].concat();
        let bytewise = decompress_pieces(&mut new(algorithm), &wire, || 1, || 10);
        if algorithm.has_frames() {
            assert_eq!(decompress(algorithm, &wire).as_deref(), Ok(&b"ebb flow"[..]), "{algorithm}");
            assert_eq!(bytewise.as_deref(), Ok(&b"ebb flow"[..]), "{algorithm}");
        } else {
            assert_eq!(decompress(algorithm, &wire), Err(Error::TrailingBytes), "{algorithm}");
            assert_eq!(bytewise, Err(Error::TrailingBytes), "{algorithm}");
        }
    }
}
