//! Compressed messages: any bytes are decompressed alike whole and in pieces, within the limits; and bytes compressed
//! in any pieces with flushes decompress to themselves.
//!
//! The first byte chooses the algorithm and the direction, the second one a second layer and the level, the third one the
//! length of pieces.

use tidegate_codec::{Blame, Fault};
use tidegate_compress::{
    Algorithm, Compression, Compressor, DecompressionLimits, Decompressor, Error, Operation, Progress,
};

use crate::choices::Choices;

/// One message.
pub fn compress(data: &[u8]) {
    let mut choices = Choices::new(data);
    let choice = choices.byte();
    let algorithm = Algorithm::ALL[usize::from(choice & 0x0f) % Algorithm::ALL.len()];
    let options = choices.byte();
    let piece = 1 + usize::from(choices.byte());
    let bytes = choices.take(BYTES_MAX);
    if choice & TO_COMPRESS == 0 {
        decompresses(algorithm, options, piece, bytes);
    } else {
        compresses(Compression::new(algorithm).level(options & 7).window_bits(options >> 3), piece, bytes);
    }
}

fn decompresses(algorithm: Algorithm, options: u8, piece: usize, bytes: &[u8]) {
    let second = Algorithm::ALL.get(usize::from(options & 0x0f));
    let layers: Vec<_> = second.copied().into_iter().chain([algorithm]).collect();
    let whole = decompress(&layers, bytes, bytes.len().max(1), 64 * 1024);
    let pieces = decompress(&layers, bytes, piece, piece);
    assert_eq!(whole.1, pieces.1, "{layers:?}: whole and in pieces");
    let count = whole.0.len().min(pieces.0.len());
    assert!(whole.0[..count] == pieces.0[..count], "{layers:?}: whole and in pieces");
    assert!(whole.1 != Ok(()) || whole.0.len() == pieces.0.len(), "{layers:?}: whole and in pieces");
}

/// The output, and whether there was no error. Limits compare the bytes written with those read at that time, so that
/// whether the peer or a limit is to blame depends on the pieces.
fn decompress(layers: &[Algorithm], bytes: &[u8], piece: usize, space: usize) -> (Vec<u8>, Result<(), ()>) {
    let mut out = Vec::new();
    let done = decompress_to(layers, LIMITS, bytes, piece, space, &mut out);
    assert!(out.len() as u64 <= LIMITS.output_max, "{layers:?}: {} bytes", out.len());
    let is_fair = |error: Error| matches!(error.blame(), Blame::Peer | Blame::Limit);
    assert!(done.err().is_none_or(is_fair), "{layers:?}: {done:?}");
    (out, done.map_err(|_| ()))
}

fn decompress_to(
    layers: &[Algorithm],
    limits: DecompressionLimits,
    bytes: &[u8],
    piece: usize,
    space: usize,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let mut decompressor = Decompressor::layers(layers, limits)?;
    let mut space = vec![0; space];
    for mut rest in bytes.chunks(piece) {
        loop {
            let Progress { read, written, is_complete } = decompressor.step(rest, &mut space)?;
            out.extend_from_slice(&space[..written]);
            rest = &rest[read..];
            if is_complete {
                assert!(rest.is_empty(), "a complete step takes all input");
                break;
            }
        }
    }
    decompressor.finish()
}

fn compresses(compression: Compression, piece: usize, plain: &[u8]) {
    let (mut compressor, mut wire) = (Compressor::new(compression), Vec::new());
    let mut space = vec![0; piece];
    for (index, piece) in plain.chunks(piece).enumerate() {
        let operation = if index % 3 == 2 { Operation::Flush } else { Operation::Write };
        run(&mut compressor, operation, piece, &mut space, &mut wire);
    }
    run(&mut compressor, Operation::Finish, &[], &mut space, &mut wire);
    let mut out = Vec::new();
    // A compressor may be set to a window above the limit that a decompressor has here.
    let limits = DecompressionLimits { window_max: WINDOW_MAX, ..LIMITS };
    let done = decompress_to(&[compression.algorithm()], limits, &wire, piece, piece, &mut out);
    assert_eq!(done, Ok(()), "{compression:?}");
    assert!(out == plain, "{compression:?}");
}

fn run(compressor: &mut Compressor, operation: Operation, mut input: &[u8], space: &mut [u8], wire: &mut Vec<u8>) {
    loop {
        let progress = compressor.step(operation, input, space).expect("it compresses");
        wire.extend_from_slice(&space[..progress.written]);
        input = &input[progress.read..];
        if progress.is_complete {
            return;
        }
    }
}

/// Few bytes expand far enough.
const BYTES_MAX: usize = 2048;

/// Short, so that they are reached.
const LIMITS: DecompressionLimits = DecompressionLimits {
    output_max: 256 * 1024,
    ratio_max: 100,
    ratio_after: 32 * 1024,
    layers_max: 2,
    window_max: 1024 * 1024,
};

/// The largest window that a compressor may be set to.
const WINDOW_MAX: u32 = 1 << 24;

/// The bytes are plain.
const TO_COMPRESS: u8 = 0x80;
