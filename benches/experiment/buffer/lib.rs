//! `tidegate-buffer` with another queue in the place of ours: `array/` or `linked/`, as the cfg `tidegate_queue` selects.
//!
//! Everything but the queue and its entries is that of `crates/buffer`. Read next: `docs/queue-experiment.md`.

#![allow(dead_code, reason = "these queues do not use all of the rest")]

#[path = "../../../crates/buffer/src/address.rs"]
mod address;
#[path = "../../../crates/buffer/src/charge.rs"]
mod charge;
#[path = "../../../crates/buffer/src/cursor.rs"]
mod cursor;
#[path = "../../../crates/buffer/src/datagram/mod.rs"]
mod datagram;
#[cfg_attr(tidegate_queue = "array", path = "array/entries.rs")]
#[cfg_attr(tidegate_queue = "linked", path = "linked/entries.rs")]
mod entries;
#[path = "../../../crates/buffer/src/file_region.rs"]
mod file_region;
#[doc(hidden)]
#[path = "../../../crates/buffer/src/injected.rs"]
pub mod injected;
#[path = "../../../crates/buffer/src/input.rs"]
mod input;
#[path = "../../../crates/buffer/src/ledger.rs"]
mod ledger;
#[cfg_attr(tidegate_queue = "array", path = "array/outbound.rs")]
#[cfg_attr(tidegate_queue = "linked", path = "linked/outbound.rs")]
mod outbound;
#[path = "../../../crates/buffer/src/pieces.rs"]
mod pieces;
#[path = "../../../crates/buffer/src/pool.rs"]
mod pool;
#[path = "../../../crates/buffer/src/run.rs"]
mod run;
#[path = "../../../crates/buffer/src/scratch.rs"]
mod scratch;
#[path = "../../../crates/buffer/src/segment.rs"]
mod segment;
#[path = "../../../crates/buffer/src/send_guard.rs"]
mod send_guard;
#[path = "../../../crates/buffer/src/slice.rs"]
mod slice;
#[path = "../../../crates/buffer/src/types.rs"]
mod types;
#[path = "../../../crates/buffer/src/water.rs"]
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
