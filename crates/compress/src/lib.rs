//! Compression, free of I/O: gzip, deflate, brotli, zstd, snappy and lz4 as state machines, and as a filter of
//! connections.
//!
//! - [`Compressor`] and [`Decompressor`] take a message in any pieces and write to where it is sent from. The first can
//!   flush: the peer can then decompress everything so far.
//! - [`DecompressionLimits`] protect from bombs, for each algorithm and across layers of several.
//! - [`Compress`] is a [`Filter`](tidegate_codec::Filter) for whole connections.
//!
//! Each algorithm has a feature, and the facade a feature of the same name: `gzip` (with deflate), `brotli`, `zstd`,
//! `snappy`, `lz4`. The facade's feature `compress` has the first three.
//!
//! # Memory
//!
//! A context exists while a message is coded. An idle compressor or decompressor has none and is a pointer large.
//! Contexts that can be reset wait for the next message in the pool of their thread, which keeps up to
//! [`SPARE_BYTES_MAX`]; [`trim_spare`] empties it.
//!
//! | KiB of a context | compressing, by default | decompressing that |
//! |---|--:|--:|
//! | gzip, deflate | 371 | 47 |
//! | brotli | 1,734 | 109 |
//! | zstd | 1,657 | 606 |
//! | snappy | 109 | 82 |
//! | lz4 | 71 | 86 |
//!
//! Levels and windows change it, see [`Compression`]; [`DecompressionLimits::window_max`] bounds the memory that a peer
//! can cause a decompressor to keep. Contexts are not charged to a loop's ledger of memory. Those of brotli cannot be
//! reset, so each message makes one.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `algorithm.rs` | `Algorithm`: the built-in ones and their properties |
//! | `compression.rs` | `Compression`: an algorithm with its settings |
//! | `compressor.rs` | `Compressor`: one message, with flushes |
//! | `decompressor.rs` | `Decompressor`: one message through one layer or several |
//! | `limits.rs` | `DecompressionLimits`: limits against bombs |
//! | `filter.rs` | `Compress`, the filter for connections |
//! | `context_pool.rs` | contexts that wait for the next message, by thread |
//! | `contexts.rs` | makes the contexts of each algorithm |
//! | `cost.rs` | how long each algorithm takes for a byte, as an estimate |
//! | `coder.rs` | the traits that each algorithm implements |
//! | `deflate.rs` | deflate, raw and with zlib's wrapping; compressing gzip |
//! | `gzip.rs` | decompressing gzip: headers, members, checksums |
//! | `brotli.rs` | brotli |
//! | `zstd.rs` | Zstandard |
//! | `blocks.rs` | shared parts of the block formats |
//! | `snappy.rs` | Snappy's framing format |
//! | `lz4.rs` | LZ4's frame format |
//! | `sink.rs` | `Sink`, where output is written |
//! | `error.rs` | errors by blame |
#![forbid(unsafe_code)]
#![cfg_attr(
    not(any(feature = "brotli", feature = "gzip", feature = "lz4", feature = "snappy", feature = "zstd")),
    expect(
        unreachable_code,
        unused_mut,
        unused_variables,
        reason = "without a feature there is no algorithm, so nothing can be called"
    )
)]

mod algorithm;
#[cfg(any(feature = "lz4", feature = "snappy"))]
mod blocks;
#[cfg(feature = "brotli")]
mod brotli;
mod coder;
mod compression;
mod compressor;
mod context_pool;
mod contexts;
mod cost;
mod decompressor;
#[cfg(feature = "gzip")]
mod deflate;
mod error;
mod filter;
#[cfg(feature = "gzip")]
mod gzip;
mod limits;
#[cfg(feature = "lz4")]
mod lz4;
mod sink;
#[cfg(feature = "snappy")]
mod snappy;
#[cfg(feature = "zstd")]
mod zstd;

pub use algorithm::Algorithm;
pub use coder::{Operation, Progress};
pub use compression::Compression;
pub use compressor::Compressor;
pub use context_pool::{SPARE_BYTES_MAX, spare_bytes, trim_spare};
pub use decompressor::{Decompressor, LAYER_BYTES};
pub use error::Error;
pub use filter::Compress;
pub use limits::DecompressionLimits;
pub use sink::Sink;
