//! Finds the parts of an HTTP/1.1 head in one sweep over its bytes.
//!
//! The sweep reads a head in windows of 64 bytes. For each byte of a window it computes two bits: one if a name cannot
//! contain the byte, one if a value cannot. A name ends at the next bit of the first kind and a value at the next bit
//! of the second kind. So every byte is loaded once, and names, values, line ends and forbidden bytes are found
//! together.
//!
//! The bits come from the instructions that the processor supports: AVX2 or SSSE3 on x86-64, NEON on 64-bit ARM,
//! detected at run time. [`run`] checks that once for all work on a head: a [`Task`] is compiled for each instruction
//! set. [`Level`] runs it with a chosen one.
//!
//! This crate knows which bytes are valid at which position (RFC 9110 §5, RFC 9112 §2.2 and §5), and nothing of their
//! meaning. It is as strict as the RFCs permit: lines end with CR LF, names stand directly before their colon, no line
//! is folded.
//!
//! ```
//! use tidegate_scan::{Field, FieldError, Stop, fields};
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
//! assert_eq!(of(b"Host: a\n\n"), Err(Stop::Flawed(FieldError::BareLf)));
//! ```
//!
//! This is one of the crates in which unsafe code is allowed: for processor instructions (`x86.rs`, `neon.rs`), and to
//! skip bounds checks at positions that a sweep has found (`sweep.rs`, `field.rs`).
//!
//! Read next: `sweep.rs`, then `classes.rs`, then `x86.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `scanner.rs` | `Scanner`, the search; `Task`, compiled for each instruction set |
//! | `sweep.rs` | from bits about bytes to the positions of fields, alike for all processors |
//! | `classes.rs` | the bytes that each position allows, as tables |
//! | `x86.rs` | the bits by AVX2 and by SSSE3 |
//! | `neon.rs` | the bits by NEON |
//! | `portable.rs` | the same positions without such instructions, byte by byte |
//! | `level.rs` | `Level`: the instruction sets of the machine, detected once |
//! | `field.rs` | `Field`, `Flaw`, `Stop`: the result of a sweep, and why it ends |

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
pub use field::{Field, FieldError, Stop};
pub use level::{Level, fields, run};
pub use scanner::{Scanner, Task};
