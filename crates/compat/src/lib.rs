//! Tidegate beside other runtimes: its connections for crates that take a stream of bytes, and its codecs over tokio
//! streams.
//!
//! | part | type | feature |
//! |---|---|---|
//! | a connection as `AsyncRead`, `AsyncBufRead` and `AsyncWrite` of futures-io | [`ByteStream`] | `futures-io` |
//! | the same with tokio's traits | [`ByteStream`] | `tokio` |
//! | a codec, with its filters, over any tokio stream | `Framed` | `tokio` |
//!
//! Without features the crate has [`ByteStream`] with its own methods only. Applications use it as `tidegate::compat`,
//! with the features of the same names.
//!
//! Everything here stays on one thread, as connections, pools and messages of Tidegate do: the types are not `Send`. So
//! a [`ByteStream`] lives in a task of its loop, and a `Framed` in a local tokio task: `LocalSet`, `LocalRuntime`, or a
//! runtime of one thread per core.
//!
//! Read next: `byte_stream.rs`, or `framed/mod.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `byte_stream.rs` | `ByteStream`: a channel without framing as a stream of bytes, and its halves |
//! | `futures_io.rs` | the traits of futures-io for it |
//! | `tokio_io.rs` | tokio's traits for it |
//! | `stream_error.rs` | `StreamError`: a close reason as an error that may leave its loop |
//! | `framed/` | `Framed`, a codec over a tokio stream: receiving (`receiving.rs`), sending (`sending.rs`), its end (`closing.rs`), deadlines (`deadlines.rs`), limits (`limits.rs`), errors (`error.rs`), the memory of a thread (`memory.rs`), two tasks on one connection (`wakers.rs`), `Stream` and `Sink` (`sink.rs`) |

#![forbid(unsafe_code)]

mod byte_stream;
#[cfg(feature = "tokio")]
pub mod framed;
#[cfg(feature = "futures-io")]
mod futures_io;
mod stream_error;
#[cfg(feature = "tokio")]
mod tokio_io;

pub use self::byte_stream::{ByteReader, ByteStream, ByteWriter};
#[cfg(feature = "tokio")]
pub use self::framed::Framed;
pub use self::stream_error::StreamError;
