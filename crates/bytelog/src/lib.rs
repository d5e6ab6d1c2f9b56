//! The bytes of any stage: a log between two stages of a pipeline, in both directions.
//!
//! [`ByteLog`] is a filter that changes nothing and passes a copy of the bytes to a [`ByteSink`]. Below TLS it shows
//! the bytes on the wire; above TLS, the plaintext. It costs no copy where the sink wants nothing.
//!
//! | sink | for |
//! |---|---|
//! | [`HexLog`] | hex dump lines through `tracing`, bounded for each connection |
//! | [`ConnectionCapture`] | one connection of a [`Capture`], a pcap file for Wireshark, with Ethernet, IP and TCP frames made up |
//! | `Option` of a sink, a pair of sinks | a log that may be off; both |
//!
//! ```
//! use tidegate::bytelog::{ByteLog, Capture, CaptureOptions, HexLog, Role};
//! use tidegate::codec::Pipeline;
//! use tidegate::framing::{Lines, Payload};
//! use tidegate::{Context, Handler, Outcome, Over, Slice};
//! use tidegate_testkit::Embedded;
//!
//! struct Echo;
//!
//! impl<P: Pipeline<In = Slice, Out = Payload>> Handler<P> for Echo {
//!     type Post = ();
//!
//!     fn message(&mut self, line: Slice, cx: &mut Context<'_, P>) -> Outcome<P> {
//!         cx.send(line.into()).into()
//!     }
//! }
//!
//! # let path = std::env::temp_dir().join(format!("bytelog-doc-{}.pcap", std::process::id()));
//! let capture = Capture::create(&path, CaptureOptions::default())?;
//! let peer = "192.0.2.7:5000".parse()?;
//! let sink = (HexLog::new("5000"), capture.connection(Role::Server, None, Some(peer)));
//! let mut pipe = Embedded::new(Over::new(ByteLog::new(sink), Lines::new()), Echo);
//! pipe.receive(b"ebb\n");
//! assert_eq!(pipe.take_written(), b"ebb\n");
//! drop(pipe);
//! // Three frames of the TCP handshake, one with each line, and a reset: the connection did not end in good order.
//! assert_eq!(capture.finish()?.frames, 6);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Read next: `filter.rs`, then `hex.rs` and `capture/`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `filter.rs` | `ByteLog`, the filter that shows bytes to a `ByteSink` |
//! | `hex.rs` | `HexLog`: hex dump lines through `tracing` |
//! | `capture/` | `Capture`: a pcap file and its thread (`mod.rs`), one connection as TCP segments (`connection.rs`), the bytes of a frame (`frame.rs`) |

#![forbid(unsafe_code)]

mod capture;
mod filter;
mod hex;

pub use capture::{Capture, CaptureCounts, CaptureOptions, ConnectionCapture, Role};
pub use filter::{ByteLog, ByteSink, Direction};
pub use hex::HexLog;
