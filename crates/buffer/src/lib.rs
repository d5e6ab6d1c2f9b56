//! The memory of an event loop: everything that holds bytes on their way in or out.
//!
//! One [`Pool`] belongs to one loop. It provides [`Segment`]s, counted blocks of memory; a [`Slice`] is a view of one.
//! The loop receives bytes into its one [`Scratch`], decodes them there through an [`Input`], and writes through an
//! [`Outbound`], a queue that costs nothing while it is empty. The [`Ledger`] counts the memory of all of them.
//!
//! Counts are not atomic, so nothing here is `Send`: bytes that leave the loop are copied into [`bytes::Bytes`].
//!
//! This is one of the crates in which unsafe code is allowed. All of it rests on the invariant in `segment.rs`: *bytes
//! below a segment's filled mark are never written again while a view of them exists*, except by an [`Input`] that is the
//! only view of them.
//!
//! Read next: `segment.rs`, then `outbound.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `segment.rs` | `Segment`, a counted block of memory; the invariant behind all `unsafe` here |
//! | `slice.rs` | `Slice`, a view of a segment |
//! | `pool.rs` | `Pool`, a loop's segments and entries, and their return |
//! | `scratch.rs` | `Scratch`, the one block that a loop receives into; `ReceiveHint` |
//! | `run.rs` | one copy for several messages of a long batch, which an application may keep |
//! | `input.rs` | `Input`, the unread bytes of a connection in one piece; decoding them in place |
//! | `outbound.rs` | `Outbound`, the queue; several short pieces at once: `outbound/pieces.rs`; writing, and reading a file, to where the bytes are sent from: `outbound/reserve.rs`; moving waiting bytes out of sparse pages: `outbound/compact.rs`; a queue that waits for long: `outbound/parked.rs`. `docs/queue-experiment.md` describes builds with other queues |
//! | `types.rs` | types of the queue's interface: `WritePosition`, an offset in the written bytes; `Gathered`, the bytes to send next; `LoadError` |
//! | `cursor.rs` | `Cursor` at the end of a queue, for messages of many pieces |
//! | `pieces.rs` | `Pieces`, a message of a few short pieces, and copying them |
//! | `send_guard.rs` | `SendGuard`: keeps the bytes of a queue while the kernel reads them |
//! | `entries.rs` | the queue's entries with their content: one paged store per loop, linked by `u32` |
//! | `file_region.rs` | `FileRegion`, a piece of a file |
//! | `water.rs` | water marks; writability as a level with reasons |
//! | `ledger.rs` | `Ledger`, the sum of a loop's memory |
//! | `datagram/` | `Datagram`, a received one; `Transmit`, one to send; `Transmits`, those that wait to be sent (`transmits.rs`); `Ancillary`, data beside the payload (`ancillary.rs`); `Membership`, a group to join (`membership.rs`) |
//! | `address.rs` | `Address`: IP, Unix or vsock |
//! | `charge.rs` | `Charge`: memory outside of the pool that is in the ledger |
//! | `injected.rs` | bugs that a separate build can inject, to check that tests notice them |

mod address;
mod charge;
mod cursor;
mod datagram;
mod entries;
mod file_region;
#[doc(hidden)]
pub mod injected;
mod input;
mod ledger;
mod outbound;
mod pieces;
mod pool;
mod run;
mod scratch;
mod segment;
mod send_guard;
mod slice;
mod types;
mod water;

pub use address::{Address, BadAddress, canonical, parse_zoned};
pub use charge::Charge;
pub use cursor::Cursor;
pub use datagram::{
    Ancillary, AncillaryFull, ControlMessage, Credentials, Datagram, DatagramError, DatagramErrorReason, Ecn,
    LocalAddress, Membership, Payload, TRANSMIT_ENTRY_BYTES, Transmit, Transmits,
};
pub use entries::ENTRY_BYTES;
pub use file_region::FileRegion;
pub use input::Input;
pub use ledger::Ledger;
pub use outbound::{LINK_BYTES_MIN, Outbound, ParkedQueue};
pub use pieces::{Pieces, Short};
pub use pool::Pool;
pub use scratch::{BULK_RECEIVE_BYTES, FRAME_RECEIVE_BYTES, HEADROOM_BYTES, RECEIVE_BYTES_MAX, ReceiveHint, Scratch};
pub use segment::{LARGE_SEGMENT_BYTES, SEGMENT_BYTES, Segment};
pub use send_guard::SendGuard;
pub use slice::Slice;
pub use types::{Gathered, LoadError, WritePosition};
pub use water::{WaterMarks, Writability};
