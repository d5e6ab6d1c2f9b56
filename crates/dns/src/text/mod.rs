//! Presentation form of record data (RFC 1035 §5.1, RFC 3597 §5), both ways, from the table of `layout.rs`.
//!
//! `lexer.rs` makes tokens of text, `parse.rs` data of tokens, `write.rs` text of data, `svc_params.rs` has the parameters
//! of service bindings both ways, and `encodings.rs` hexadecimal, Base32 and times.

mod encodings;
pub(crate) mod lexer;
mod parse;
mod svc_params;
mod write;

pub(crate) use lexer::tokens;
pub(crate) use parse::{duration, parse_data};
pub(crate) use write::write_data;
