//! Where the parts of an HTTP/1.1 head are, found in one sweep over its bytes.
//!
//! A head is looked at in windows of 64 bytes. Of each window two bits are made for every byte: whether it may not be
//! part of a name, and whether it may not be part of a value. Names end at the next bit of the first kind and values at
//! the next one of the second kind, so every byte is loaded once, whatever it belongs to, and names, values, line ends
//! and forbidden bytes are found together.
//!
//! The bits are made by the instructions that the processor has: AVX2 or SSSE3 on x86-64, NEON on 64-bit ARM, found
//! out when the program runs. [`run`] asks for that once for all that is done with a head: a [`Task`] is compiled for
//! each set of instructions. [`Level`] runs it with a certain one.
//!
//! This crate knows which bytes may stand where (RFC 9110 §5, RFC 9112 §2.2 and §5), and nothing of what they mean. It
//! is as strict as these allow: lines end with CR LF, names stand directly before their colon, no line is folded.
//!
//! ```
//! use tidegate_scan::{Field, Flaw, Stop, fields};
//!
//! let head = b"Host: a\r\nAccept:*/*\r\n\r\n";
//! let mut found = Vec::new();
//! let end = fields(head, 0, |field: Field| {
//!     found.push((field.name(), field.value()));
//!     Ok::<_, ()>(())
//! });
//! assert_eq!(end, Ok(head.len()));
//! assert_eq!(found, [(&b"Host"[..], &b" a"[..]), (b"Accept", b"*/*")]);
//!
//! let of = |head| fields(head, 0, |_| Ok::<_, ()>(()));
//! assert_eq!(of(b"Host: a\r\n"), Err(Stop::Partial));
//! assert_eq!(of(b"Host: a\n\n"), Err(Stop::Flawed(Flaw::BareLf)));
//! ```
//!
//! This is one of the crates in which unsafe code is allowed: for the instructions of a processor (`x86.rs`, `neon.rs`),
//! and for places that would be checked again after a sweep has found them (`sweep.rs`, `field.rs`).
//!
//! Read next: `sweep.rs`, then `classes.rs`, then `x86.rs`.

mod classes;
mod field;
mod level;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod scanner;
mod sweep;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use classes::{is_control, is_host, is_token};
pub use field::{Field, Flaw, Stop};
pub use level::{Level, run};
pub use scanner::{Scanner, Task, fields};
