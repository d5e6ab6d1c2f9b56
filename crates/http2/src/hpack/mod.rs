//! HPACK (RFC 7541): the compression of field sections.
//!
//! [`Decoder`] and [`Encoder`] are the two ends of one direction of a connection. Each has a dynamic table of bounded
//! size (`table.rs`). Integers and strings are those of the crate `http-stream`, the 61 common fields in `static_table.rs`.
//!
//! The decoder calls a function for each field, with a name and a value that it need not keep, and allocates nothing for
//! a field but its place in the table. Limits on fields are those of the caller: the decoder has to read the whole block
//! in any case, or its table would differ from that of the peer.

mod decoder;
mod encoder;
pub(crate) mod static_table;
mod table;

pub use self::decoder::{Decoder, HpackError};
pub use self::encoder::{Encoder, Indexing};

/// The size of a dynamic table until a SETTINGS frame changes it (RFC 9113 §6.5.2).
pub const TABLE_BYTES_DEFAULT: u32 = 4096;
