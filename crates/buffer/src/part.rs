//! The content of an outbound queue's entry.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;

use crate::segment::Segment;
use crate::slice::Slice;

/// Bytes of a file, to be sent without passing through memory where that is possible.
#[derive(Debug, Clone)]
pub struct FileRegion {
    /// The file; it has to be a regular one.
    pub file: Arc<File>,
    /// Where the region begins, in bytes from the start of the file.
    pub offset: u64,
    /// How long it is, in bytes. A file that turns out to be shorter fails the connection.
    pub length: u64,
}

/// An entry's content.
#[derive(Debug)]
pub(crate) enum Part {
    /// Not in use; linked through `next` into its page's free list.
    Vacant,
    /// Bytes that were copied: a range of a segment that other entries may share.
    Copied { segment: Segment, start: u32, end: u32 },
    /// A view that was linked.
    Slice(Slice),
    /// Shared bytes that were linked.
    Bytes {
        bytes: Bytes,
        /// The ledger's charge: the whole length, until its last byte was sent; nothing for static bytes.
        charge: u32,
    },
    /// A piece of a file.
    File(FileRegion),
}

impl Part {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Vacant => 0,
            Self::Copied { start, end, .. } => u64::from(end - start),
            Self::Slice(slice) => slice.len() as u64,
            Self::Bytes { bytes, .. } => bytes.len() as u64,
            Self::File(region) => region.length,
        }
    }

    /// Forgets the first `count` bytes.
    ///
    /// # Panics
    /// If there are fewer: a view of a copied part is sound only within its range.
    pub(crate) fn advance(&mut self, count: u64) {
        assert!(count <= self.len(), "{count} bytes of a part of {}", self.len());
        match self {
            Self::Vacant => {}
            Self::Copied { start, .. } => *start += count as u32,
            Self::Slice(slice) => slice.advance(count as usize),
            Self::Bytes { bytes, .. } => bytes::Buf::advance(bytes, count as usize),
            Self::File(region) => {
                region.offset += count;
                region.length -= count;
            }
        }
    }

    /// Divides it: returns the first `count` bytes, and keeps the others. The charge is divided as well.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn split_to(&mut self, count: u64) -> Self {
        assert!(count <= self.len(), "{count} bytes of a part of {}", self.len());
        let piece = match self {
            Self::Vacant => Self::Vacant,
            Self::Copied { segment, start, .. } => {
                Self::Copied { segment: segment.clone(), start: *start, end: *start + count as u32 }
            }
            Self::Slice(slice) => Self::Slice(slice.slice(..count as usize)),
            Self::Bytes { bytes, charge } => {
                let divided = (*charge).min(count as u32);
                *charge -= divided;
                Self::Bytes { bytes: bytes.slice(..count as usize), charge: divided }
            }
            Self::File(region) => Self::File(FileRegion { length: count, ..region.clone() }),
        };
        self.advance(count);
        piece
    }

    /// Its bytes, unless they are in a file.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Vacant => Some(&[]),
            Self::Copied { segment, start, end } => Some(segment.view(*start as usize, *end as usize)),
            Self::Slice(slice) => Some(slice),
            Self::Bytes { bytes, .. } => Some(bytes),
            Self::File(_) => None,
        }
    }
}
