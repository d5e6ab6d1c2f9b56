//! Other implementations, and other interfaces of the same libraries, read this crate's output, and the reverse.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use tidegate_compress::{Algorithm, Compression, Error};
use tidegate_testkit::Random;

use crate::support::{compress, decompress, text};

fn plain() -> Vec<u8> {
    text(300_000, &mut Random::new(1))
}

#[test]
fn readers_of_the_libraries_read_our_output() {
    let plain = plain();
    for &algorithm in Algorithm::ALL {
        let wire = compress(Compression::new(algorithm), &plain);
        let mut seen = Vec::new();
        let read = match algorithm {
            Algorithm::Gzip => flate2::read::MultiGzDecoder::new(&wire[..]).read_to_end(&mut seen),
            Algorithm::Deflate => flate2::read::ZlibDecoder::new(&wire[..]).read_to_end(&mut seen),
            Algorithm::RawDeflate => flate2::read::DeflateDecoder::new(&wire[..]).read_to_end(&mut seen),
            Algorithm::Brotli => brotli::Decompressor::new(&wire[..], 4096).read_to_end(&mut seen),
            Algorithm::Snappy => snap::read::FrameDecoder::new(&wire[..]).read_to_end(&mut seen),
            Algorithm::Lz4 => lz4_flex::frame::FrameDecoder::new(&wire[..]).read_to_end(&mut seen),
            _ => continue,
        };
        assert!(read.is_ok() && seen == plain, "{algorithm}: {read:?}");
    }
}

#[test]
fn output_of_the_libraries_is_read() {
    let plain = plain();
    let check =
        |algorithm, wire: &[u8]| assert!(decompress(algorithm, wire).as_deref() == Ok(&plain[..]), "{algorithm}");

    let mut gzip = flate2::GzBuilder::new()
        .filename("name")
        .comment("comment")
        .extra(vec![7; 300])
        .write(Vec::new(), flate2::Compression::best());
    gzip.write_all(&plain).expect("it compresses");
    check(Algorithm::Gzip, &gzip.finish().expect("it ends"));

    let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    raw.write_all(&plain).expect("it compresses");
    let raw = raw.finish().expect("it ends");
    check(Algorithm::RawDeflate, &raw);
    // Peers send it under the name of the other.
    check(Algorithm::Deflate, &raw);

    let mut wire = Vec::new();
    brotli::BrotliCompress(
        &mut &plain[..],
        &mut wire,
        &brotli::enc::BrotliEncoderParams { quality: 9, ..Default::default() },
    )
    .expect("it compresses");
    check(Algorithm::Brotli, &wire);

    let mut snappy = snap::write::FrameEncoder::new(Vec::new());
    snappy.write_all(&plain).expect("it compresses");
    check(Algorithm::Snappy, &snappy.into_inner().expect("it ends"));
}

#[test]
fn frames_of_lz4_of_every_kind_are_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let plain = plain();
    for mode in [BlockMode::Independent, BlockMode::Linked] {
        for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
            for checksums in [false, true] {
                let info = FrameInfo::new()
                    .block_mode(mode)
                    .block_size(size)
                    .block_checksums(checksums)
                    .content_checksum(checksums)
                    .content_size(checksums.then_some(plain.len() as u64));
                let mut encoder = FrameEncoder::with_frame_info(info.clone(), Vec::new());
                encoder.write_all(&plain).expect("it compresses");
                let wire = encoder.finish().expect("it ends");
                assert!(decompress(Algorithm::Lz4, &wire).as_deref() == Ok(&plain[..]), "{info:?}");
            }
        }
    }
}

#[test]
fn skippable_frames_are_skipped() {
    let skippable = [&0x184d_2a53_u32.to_le_bytes()[..], &5_u32.to_le_bytes(), b"12345"].concat();
    for algorithm in [Algorithm::Zstd, Algorithm::Lz4] {
        let wire = [&skippable[..], &compress(algorithm, b"ebb"), &skippable, &compress(algorithm, b" flow")].concat();
        assert_eq!(decompress(algorithm, &wire).as_deref(), Ok(&b"ebb flow"[..]), "{algorithm}");
    }
    let identifier = compress(Algorithm::Snappy, b"");
    let padding = [&b"\xfe\x03\0\0xyz"[..], b"\x80\0\0\0"].concat();
    let wire = [&identifier[..], &padding, &compress(Algorithm::Snappy, b"ebb")].concat();
    assert_eq!(decompress(Algorithm::Snappy, &wire).as_deref(), Ok(&b"ebb"[..]));
    let reserved = [&identifier[..], b"\x02\x01\0\0x"].concat();
    assert_eq!(decompress(Algorithm::Snappy, &reserved), Err(Error::Unsupported(Algorithm::Snappy)));
}

/// The programs of the formats, where they are installed.
#[test]
fn programs_read_our_output_and_the_reverse() {
    let plain = plain();
    for (program, algorithm) in [("gzip", Algorithm::Gzip), ("zstd", Algorithm::Zstd), ("lz4", Algorithm::Lz4)] {
        let wire = compress(algorithm, &plain);
        let Some(seen) = run(program, &["-d", "-c"], &wire) else {
            assert!(
                std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_none_or(|_| program != "gzip"),
                "{program} is missing"
            );
            println!("skipped: {program} is not installed");
            continue;
        };
        assert!(seen == plain, "{program} reads something else");
        let wire = run(program, &["-9", "-c"], &plain).expect("it ran before");
        assert!(decompress(algorithm, &wire).as_deref() == Ok(&plain[..]), "{program} writes something else");
    }
}

fn run(program: &str, arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let child = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.ok()?;
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it reads all");
    assert!(output.status.success(), "{program}: {}", output.status);
    Some(output.stdout)
}
