//! The contract of a protocol: bytes in, messages out; messages in, bytes out.
//!
//! A [`Codec`] is one protocol, free of I/O: it has no socket, no thread and no clock of its own. A [`Filter`] turns
//! bytes into bytes, both ways: TLS, a PROXY header. [`Over`] puts a codec over a filter. Either is a [`Pipeline`], so a
//! pipeline is a type, and stages that do not fit do not compile. A test drives any of it with byte slices.
//!
//! A codec writes straight into the connection's outbound queue, through [`Output`]; a message for many connections is
//! encoded once, as [`Encoded`], if the codec is a [`Broadcast`].
//!
//! An [`Endpoint`] is the same for datagrams: those of all peers of one socket in, datagrams out.
//!
//! The framings in [`framing`] are codecs ready for use, and the shortest examples of how one is written. Any codec
//! can be put through the contract tests of `tidegate-testkit`. [`sniff`] recognises a protocol by its first bytes.
//!
//! Read next: `codec.rs`, then `filter.rs`, `over.rs` and `pipeline.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `codec.rs` | `Codec`, `Step`, `Lifecycle`, `CodecStatus` |
//! | `filter.rs` | `Filter` |
//! | `over.rs` | `Over` |
//! | `dyn_over.rs` | `DynOver`: a codec over filters whose types are erased; `Filters` without a codec |
//! | `pipeline.rs` | `Pipeline`, `Stages`: the calls of the engine; `Broadcast` |
//! | `mux/` | `Mux`, `StreamEvent`, `transmit`; numbers of streams (`streams.rs`) and their windows (`streams/credit.rs`); the order of sending (`schedule.rs`); `RawStreams`, for one application (`raw.rs`) |
//! | `endpoint.rs` | `Endpoint`, a protocol of datagrams |
//! | `endpoint_generation.rs` | `EndpointGeneration`: servers that have the same sockets one after the other |
//! | `stream_endpoint.rs` | `StreamEndpoint`, one whose sessions carry streams |
//! | `datagram_queue.rs` | `DatagramQueue`, the datagrams that wait for their reader |
//! | `output.rs` | `Output`, where a codec writes; `Time`, the loop's clock and date |
//! | `encoded.rs` | `Encoded`, a message encoded once for many connections |
//! | `fault.rs` | `Fault` and `Blame`: errors sorted by blame |
//! | `reset_cause.rs` | `ResetCause`: why a stream is reset |
//! | `times.rs` | `later` and `scaled`, sums and products of times that cannot overflow |
//! | `work.rs` | an estimate of the work of codecs and parsers, by which a loop bounds its turns |
//! | `framing/` | lines, delimiter, fixed length, length field, varint length, JSON values, and none at all |
//! | `sniff/` | `Sniffer`, the codec of a connection whose protocol is not known yet, and its rules; those for common protocols (`rules.rs`) |

#![forbid(unsafe_code)]

mod codec;
mod datagram_queue;
mod dyn_over;
mod encoded;
mod endpoint;
mod endpoint_generation;
mod fault;
mod filter;
pub mod framing;
pub mod mux;
mod output;
mod over;
mod pipeline;
mod reset_cause;
pub mod sniff;
mod stream_endpoint;
mod times;
pub mod work;

pub use codec::{Codec, CodecStatus, Lifecycle, Step};
pub use datagram_queue::DatagramQueue;
pub use dyn_over::{DynFault, DynOver, Filters};
pub use encoded::{EncodeError, Encoded, encode};
pub use endpoint::Endpoint;
pub use endpoint_generation::{EndpointGeneration, EndpointPlace};
pub use fault::{Blame, Fault};
pub use filter::Filter;
pub use output::{Output, Time};
pub use over::{Over, OverError};
pub use pipeline::{Broadcast, Pipeline, Stages};
pub use stream_endpoint::{
    DatagramRefused, Direction, Handshake, ReadEnd, SessionCounts, SessionEvent, SessionNumber, StreamEndpoint,
    StreamNumber, WriteRefused,
};
pub use tidegate_buffer::{
    Ancillary, AncillaryFull, Charge, ControlMessage, Credentials, Datagram, DatagramError, DatagramErrorReason, Ecn,
    FileRegion, Input, LocalAddress, Membership, Outbound, Payload, Pool, ReceiveHint, Slice, Transmit, Transmits,
    WritePosition,
};
/// An enum of errors as a [`Fault`](trait@Fault), with its texts.
///
/// ```
/// use tidegate::codec::{Blame, Fault};
/// use tidegate::framing::FramingError;
///
/// #[derive(Debug, Fault)]
/// enum Wrong {
///     #[fault(peer, "version {0} is not spoken here")]
///     Version(u8),
///     #[fault(limit, "a message is longer than {bytes_max} bytes")]
///     TooLong { bytes_max: usize },
///     #[fault(from)]
///     Framing(FramingError),
/// }
///
/// assert_eq!(Wrong::Version(7).to_string(), "version 7 is not spoken here");
/// assert_eq!(Wrong::TooLong { bytes_max: 128 }.blame(), Blame::Limit);
/// assert_eq!(Wrong::from(FramingError::TooLong { bytes_max: 7 }).blame(), Blame::Limit);
/// ```
pub use tidegate_macros::Fault;
pub use times::{later, scaled};
