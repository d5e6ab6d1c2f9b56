//! The memory of contexts, by a counting allocator: the memory of each, its release, and a bomb's memory.
//!
//! The library of zstd allocates by itself, so its contexts are counted by their own word.

use tidegate_compress::{
    Algorithm, Compressor, DecompressionLimits, Decompressor, SPARE_BYTES_MAX, spare_bytes, trim_spare,
};
use tidegate_testkit::Random;
use tidegate_testkit::allocations::Region;

use crate::support::{self, compress, text};

fn in_use(region: &Region) -> isize {
    let change = region.change();
    change.bytes_allocated.cast_signed() - change.bytes_deallocated.cast_signed()
}

/// KiB of a compressing and of a decompressing context with default settings, in the documentation of the crate.
const DOCUMENTED: &[(Algorithm, isize, isize)] = &[
    (Algorithm::Gzip, 371, 47),
    (Algorithm::Deflate, 371, 47),
    (Algorithm::RawDeflate, 371, 47),
    (Algorithm::Brotli, 1734, 109),
    (Algorithm::Zstd, 1657, 606),
    (Algorithm::Snappy, 109, 82),
    (Algorithm::Lz4, 71, 86),
];

#[test]
fn contexts_have_the_documented_sizes() {
    let plain = text(1 << 20, &mut Random::new(1));
    for &(algorithm, compressing, decompressing) in DOCUMENTED {
        trim_spare();
        let mut wire = Vec::with_capacity(1 << 20);
        let region = Region::new();
        let mut compressor = Compressor::new(algorithm.into());
        compressor.write(&plain, &mut wire).expect("it compresses");
        compressor.flush(&mut wire).expect("it compresses");
        let mut compressor_bytes = in_use(&region);
        let compressor_claim = compressor.memory_bytes();
        compressor.finish(&mut wire).expect("it compresses");
        drop(compressor);
        trim_spare();

        let mut decompressed = Vec::with_capacity(plain.len() + 64 * 1024);
        let region = Region::new();
        let mut decompressor = Decompressor::new(algorithm, DecompressionLimits::default());
        decompressor.write(&wire[..wire.len() - 9], usize::MAX, &mut decompressed).expect("it is valid");
        let mut decompressor_bytes = in_use(&region);
        let decompressor_claim = decompressor.memory_bytes();
        if algorithm == Algorithm::Zstd {
            compressor_bytes += compressor_claim as isize;
            decompressor_bytes += decompressor_claim as isize;
        }
        let kib = |bytes: isize| (bytes + 512) / 1024;
        println!(
            "{algorithm}: {} KiB (claims {}) and {} KiB (claims {}); {} bytes compressed",
            kib(compressor_bytes),
            compressor_claim / 1024,
            kib(decompressor_bytes),
            decompressor_claim / 1024,
            wire.len()
        );
        for (bytes, claim, documented) in
            [(compressor_bytes, compressor_claim, compressing), (decompressor_bytes, decompressor_claim, decompressing)]
        {
            let tolerance = documented / 10 + 1;
            assert!(
                (kib(bytes) - documented).abs() <= tolerance,
                "{algorithm}: {} KiB, documented {documented}",
                kib(bytes)
            );
            assert!(
                (kib(bytes) - kib(claim as isize)).abs() <= kib(bytes) / 4 + 8,
                "{algorithm}: {bytes}, claims {claim}"
            );
        }
    }
}

#[test]
fn idle_compressors_and_decompressors_have_no_context() {
    for &algorithm in Algorithm::ALL {
        trim_spare();
        let region = Region::new();
        let idle = (Compressor::new(algorithm.into()), Decompressor::new(algorithm, DecompressionLimits::default()));
        assert!(in_use(&region) < 512, "{algorithm}: {} bytes", in_use(&region));
        drop(idle);
        assert_eq!(in_use(&region), 0, "{algorithm}");
    }
}

#[test]
fn contexts_return_to_the_pool_in_the_middle_of_a_message_and_are_used_again() {
    let plain = text(20_000, &mut Random::new(2));
    for &algorithm in Algorithm::ALL.iter().filter(|algorithm| **algorithm != Algorithm::Brotli) {
        trim_spare();
        let wire = compress(algorithm, &plain);
        let mut space = vec![0; 64 * 1024];
        for round in 0..3 {
            let before = spare_bytes();
            let region = Region::new();
            let mut compressor = Compressor::new(algorithm.into());
            let mut decompressor = Decompressor::new(algorithm, DecompressionLimits::default());
            let _ = compressor.step(tidegate_compress::Operation::Flush, &plain, &mut space).expect("it compresses");
            let _ = decompressor.step(&wire[..wire.len() / 2], &mut space).expect("it is valid");
            let in_use = in_use(&region);
            assert!(round == 0 || in_use < 1024, "{algorithm}: {in_use} bytes, though contexts wait in the pool");
            drop((compressor, decompressor));
            assert!(spare_bytes() > 0 && (round == 0 || spare_bytes() == before), "{algorithm}: {}", spare_bytes());
            // The next message does not see the one that was dropped.
            assert!(support::decompress(algorithm, &compress(algorithm, &plain)).as_deref() == Ok(&plain[..]));
        }
    }
    trim_spare();
    assert_eq!(spare_bytes(), 0);
}

#[test]
fn the_pool_keeps_no_more_than_its_bound() {
    trim_spare();
    let many: Vec<_> = (0..40)
        .map(|_| {
            let mut compressor = Compressor::new(Algorithm::Gzip.into());
            compressor.write(b"ebb", &mut Vec::new()).expect("it compresses");
            compressor
        })
        .collect();
    drop(many);
    assert!((SPARE_BYTES_MAX / 2..=SPARE_BYTES_MAX).contains(&spare_bytes()), "{}", spare_bytes());
    trim_spare();
}

/// A bomb takes one context and its caller's space, however far it would expand.
#[test]
fn bombs_take_no_memory_beyond_a_context() {
    let plain = vec![0; 32 << 20];
    for &inner in Algorithm::ALL {
        let once = compress(inner, &plain);
        for &outer in Algorithm::ALL {
            trim_spare();
            let wire = compress(outer, &once);
            trim_spare();
            let mut space = vec![0; 4096];
            let region = Region::new();
            let mut decompressor =
                Decompressor::layers(&[inner, outer], DecompressionLimits { ratio_max: 20, ..Default::default() })
                    .expect("two layers are allowed");
            let mut rest = &wire[..];
            let mut most = 0;
            while let Ok(progress) = decompressor.step(rest, &mut space) {
                rest = &rest[progress.read..];
                most = most.max(in_use(&region)).max(decompressor.memory_bytes() as isize);
                assert!(!progress.is_complete, "it is no bomb");
            }
            assert!(most < 3 << 19, "{inner} in {outer}: {most} bytes");
        }
    }
}
