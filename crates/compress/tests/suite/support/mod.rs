//! Messages, and coding them in pieces.

use tidegate_compress::{
    Algorithm, Compression, Compressor, DecompressionLimits, Decompressor, Error, Operation, Progress,
};
use tidegate_testkit::Random;

/// The message, compressed whole.
pub(crate) fn compress(compression: impl Into<Compression>, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Compressor::new(compression.into()).finish_with(plain, &mut out).expect("it compresses");
    out
}

/// All of the message, in one piece.
pub(crate) fn decompress(algorithm: Algorithm, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    decompress_with(&mut Decompressor::new(algorithm, DecompressionLimits::default()), bytes)
}

pub(crate) fn decompress_with(decompressor: &mut Decompressor, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let progress = decompressor.write(bytes, usize::MAX, &mut out)?;
    assert!(progress.is_complete && progress.read == bytes.len());
    decompressor.finish()?;
    Ok(out)
}

/// All of the message, with input and space in pieces of these sizes, repeated.
pub(crate) fn decompress_pieces(
    decompressor: &mut Decompressor,
    bytes: &[u8],
    mut input: impl FnMut() -> usize,
    mut space: impl FnMut() -> usize,
) -> Result<Vec<u8>, Error> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    loop {
        let (mut piece, after) = rest.split_at(input().min(rest.len()));
        rest = after;
        loop {
            let mut buffer = vec![0; space()];
            let Progress { read, written, is_complete } = decompressor.step(piece, &mut buffer)?;
            out.extend_from_slice(&buffer[..written]);
            piece = &piece[read..];
            if is_complete {
                assert!(piece.is_empty(), "a complete step takes all input");
                break;
            }
        }
        if rest.is_empty() {
            decompressor.finish()?;
            return Ok(out);
        }
    }
}

/// One operation with space in pieces of this size.
pub(crate) fn step_all(
    compressor: &mut Compressor,
    operation: Operation,
    mut input: &[u8],
    mut space: impl FnMut() -> usize,
    out: &mut Vec<u8>,
) {
    loop {
        let mut buffer = vec![0; space()];
        let progress = compressor.step(operation, input, &mut buffer).expect("it compresses");
        out.extend_from_slice(&buffer[..progress.written]);
        input = &input[progress.read..];
        if progress.is_complete {
            assert!(input.is_empty(), "a complete step takes all input");
            return;
        }
    }
}

/// Words that repeat, as text does.
pub(crate) fn text(length: usize, random: &mut Random) -> Vec<u8> {
    const WORDS: [&str; 8] = ["ebb", "flow", "tide", "\"gate\":", " water ", "{\"id\":", "0123456789", "\r\n"];
    let mut text = Vec::new();
    while text.len() < length {
        text.extend_from_slice(WORDS[random.below(WORDS.len())].as_bytes());
    }
    text.truncate(length);
    text
}

/// Bytes that do not compress.
pub(crate) fn noise(length: usize, random: &mut Random) -> Vec<u8> {
    (0..length).map(|_| random.bits() as u8).collect()
}
