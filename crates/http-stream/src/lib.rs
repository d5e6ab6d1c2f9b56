//! The parts that HTTP/2 and HTTP/3 share, free of I/O: heads, the codecs of streams, Huffman coding, prefix integers, priorities.
//!
//! [`ServerStream`] and [`ClientStream`] are the codecs of one stream in either version. Their messages are those of
//! [`tidegate_http1`], so an application is the same over all versions. Their bytes are records (`record.rs`), which the
//! codec of an HTTP/2 connection, or the filter of an HTTP/3 request stream, translates from and to frames.
//!
//! [`HeadBuilder`] turns decoded fields into the text of a head, with the checks of RFC 9113 §8 and RFC 9114 §4. The
//! HTTP/1.1 parser checks the text once more, so a message is refused by one version if it is by the others.
//!
//! The crate knows no frame of either version beside the head of inbound records, no dynamic table, and no connection.
//! Applications use it through the crates `http2` and `http3`.
//!
//! Read next: `record.rs`, then `server_stream.rs` and `head.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `config.rs` | limits of streams, and the configuration that they share |
//! | `record.rs` | messages between a stream's codec and the codec of frames below it |
//! | `frame_head.rs` | the head of an inbound record |
//! | `server_stream.rs` | `ServerStream`, the codec of a stream of a server |
//! | `client_stream.rs` | `ClientStream`, that of a client |
//! | `tunnel.rs` | `Tunnel`, the filter below another protocol on a stream |
//! | `head.rs` | from fields to the text of a head, with the checks of RFC 9113 §8 |
//! | `field_lines.rs` | lines of fields in outbound records |
//! | `huffman.rs` | the Huffman code |
//! | `huffman_codes.rs` | the codes of bytes |
//! | `integer.rs` | integers with a prefix |
//! | `priority.rs` | priorities (RFC 9218) |
//! | `abuse_bucket.rs` | the bucket for frames that bring no request forward |
//! | `coding_error.rs` | integers and strings that cannot be decoded |

#![forbid(unsafe_code)]

mod abuse_bucket;
mod client_stream;
mod coding_error;
mod config;
mod field_lines;
mod frame_head;
mod head;
pub mod huffman;
mod huffman_codes;
pub mod integer;
mod priority;
mod record;
mod server_stream;
mod tunnel;

pub use abuse_bucket::AbuseBucket;
pub use client_stream::ClientStream;
pub use coding_error::CodingError;
pub use config::{HEAD_BYTES_CEILING, StreamConfig, StreamLimits, Version};
pub use field_lines::{SHORT_COOKIE_BYTES, is_of_connection, is_secret, split_line};
pub use frame_head::{FrameHead, HEAD_BYTES, RECORD_CONTENT_MAX, STREAM_ID_MAX, flag, kind};
pub use head::{HeadBuilder, HeadFacts, HeadFault, HeadKind, HeadParts};
pub use priority::Priority;
pub use record::{RECORD_BYTES, Record, RecordKind, write_head_record};
pub use server_stream::ServerStream;
pub use tunnel::Tunnel;
