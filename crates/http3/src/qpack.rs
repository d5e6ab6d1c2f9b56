//! QPACK (RFC 9204): the compression of field sections.
//!
//! Both sides announce a table of 0 bytes unless their limits permit more, so a field section has references to the static
//! table and literals alone (decision 155). No section depends on another one, no stream waits for another one, and a field
//! section that is not decoded changes nothing: equal heads are equal bytes on all connections.
//!
//! [`decode`] and the functions of encoding are in `decoder.rs` and `encoder.rs`, the 99 common fields in
//! `static_table.rs`, the encoder and decoder streams of the peer in `instructions.rs`.
//!
//! Dynamic tables (decision 178) stand between these sections and the wire: [`TableDecoder`] rewrites a section of the peer
//! to one without references, and [`TableEncoder`] one of this side to one with them. Both have the entries of `table.rs`.
//!
//! The decoder calls a function for each field, with a name and a value that it need not keep. Limits on fields are those
//! of the caller.

mod decoder;
mod encoder;
mod instructions;
mod static_table;
mod table;
mod table_decoder;
mod table_encoder;

pub use self::decoder::{QpackError, decode};
pub use self::encoder::{encode, encode_prefix, encode_status};
pub(crate) use self::instructions::{DecoderInstruction, DecoderStream, read_encoder_stream};
pub use self::table_decoder::{SectionState, TableDecoder};
pub use self::table_encoder::TableEncoder;
