//! `SparseSpace`: places for datagrams that may be long and are short, as addresses without memory.
//!
//! Each place has room for the longest datagram or run of its socket, so that none is ever truncated by a guess. The
//! kernel gives a page memory when it writes the first byte there: a batch of short datagrams occupies a page or two
//! a place. Once the places occupy more than [`RESIDENT_BYTES_MAX`], their memory goes back to the system.
//!
//! The loop never gets views of it: `mod.rs` copies the datagrams into memory of their size.

use std::io;
use std::ptr::{self, NonNull};

use tidegate_buffer::{Charge, Pool};

use super::messages::BATCH_MAX;

/// Places for the datagrams of a batch.
pub(super) struct SparseSpace {
    base: NonNull<u8>,
    /// From one place to the next, in bytes.
    stride: usize,
    places: usize,
    /// The most bytes that were received into each place since its memory was last given back.
    lengths: [u32; BATCH_MAX],
    /// The memory that they occupy, in the loop's ledger.
    resident: Charge,
}

impl SparseSpace {
    /// How many places of `bytes` bytes there may be.
    pub(super) fn places_max(bytes: usize) -> usize {
        (MAPPED_BYTES_MAX / stride_for(bytes)).min(BATCH_MAX)
    }

    /// As many places of at least `bytes` bytes as there may be.
    ///
    /// # Errors
    /// The system's, if there is no room for them.
    pub(super) fn new(pool: &Pool, bytes: usize) -> io::Result<Self> {
        let (stride, places) = (stride_for(bytes), Self::places_max(bytes).max(1));
        let (read_write, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: the kernel chooses the address of an anonymous mapping, so it replaces nothing.
        let base = unsafe { libc::mmap(ptr::null_mut(), stride * places, read_write, kind, -1, 0) };
        let base = NonNull::new(base.cast::<u8>()).filter(|base| base.as_ptr().cast() != libc::MAP_FAILED);
        let base = base.ok_or_else(io::Error::last_os_error)?;
        let space = Self { base, stride, places, lengths: [0; BATCH_MAX], resident: pool.charge(0) };
        // A huge page would be memory for the first byte of many places. A kernel without them refuses.
        space.advise(libc::MADV_NOHUGEPAGE);
        Ok(space)
    }

    /// Whether its places have `bytes` bytes.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        stride_for(bytes) <= self.stride
    }

    /// How many places it has.
    pub(super) fn places_count(&self) -> usize {
        self.places
    }

    /// From one place to the next, in bytes.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// The first `count` places, or all if there are fewer.
    pub(super) fn places(&mut self, count: usize) -> &mut [u8] {
        let length = self.stride * count.min(self.places);
        // SAFETY: the mapping has `places` times `stride` bytes, lives as long as `self` and has no other holder; its
        // bytes are zero until they are written.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), length) }
    }

    /// Counts `lengths` bytes in the first places as occupied.
    pub(super) fn note_received(&mut self, lengths: impl Iterator<Item = usize>) {
        let mut resident = self.resident.bytes();
        for (length, most) in lengths.zip(&mut self.lengths) {
            if length as u32 > *most {
                resident = resident + occupied(length) - occupied(*most as usize);
                *most = length as u32;
            }
        }
        self.resident.resize(resident);
    }

    /// Gives the memory back if it is too much.
    pub(super) fn trim(&mut self) {
        if self.resident.bytes() > RESIDENT_BYTES_MAX && self.advise(libc::MADV_DONTNEED) {
            self.lengths = [0; BATCH_MAX];
            self.resident.resize(0);
        }
    }

    fn advise(&self, advice: libc::c_int) -> bool {
        // SAFETY: the range is that of the mapping. Its bytes are zero after `MADV_DONTNEED`, and nobody has a view.
        let result = unsafe { libc::madvise(self.base.as_ptr().cast(), self.stride * self.places, advice) };
        result == 0
    }
}

impl Drop for SparseSpace {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping, of which no view exists any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.stride * self.places) };
    }
}

/// A little more than a place needs, so that the first bytes of all places do not share a set of the cache.
fn stride_for(bytes: usize) -> usize {
    bytes.next_multiple_of(CACHE_LINE_BYTES) + CACHE_LINE_BYTES
}

/// The pages of a place with so many bytes, which begins anywhere in its first page.
fn occupied(length: usize) -> usize {
    if length == 0 { 0 } else { (length + CACHE_LINE_BYTES).next_multiple_of(PAGE_BYTES) + PAGE_BYTES }
}

const CACHE_LINE_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;

/// Addresses of all places; 64 of 64 KiB are 4 MiB.
const MAPPED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The memory that places keep from one batch to the next: two pages of each, twice.
const RESIDENT_BYTES_MAX: usize = 1024 * 1024;

const _: () = assert!(RESIDENT_BYTES_MAX >= BATCH_MAX * 2 * 2 * PAGE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_charged_for_the_pages_that_were_written_and_given_back_above_the_bound() {
        let pool = Pool::new();
        let mut space = SparseSpace::new(&pool, 65_535).expect("addresses");
        assert_eq!((pool.ledger().used(), space.places(1_000).len()), (0, BATCH_MAX * space.stride()));
        for round in 0..3 {
            space.note_received([64; BATCH_MAX].into_iter());
            assert_eq!(pool.ledger().used(), BATCH_MAX * 2 * PAGE_BYTES, "{round}");
            space.trim();
        }
        space.places(BATCH_MAX).fill(7);
        space.note_received([65_535; 60].into_iter());
        assert!(pool.ledger().used() > 60 * 65_535);
        space.trim();
        assert_eq!(pool.ledger().used(), 0);
        assert!(space.places(BATCH_MAX).iter().all(|byte| *byte == 0), "the memory was given back");
    }

    #[test]
    fn there_are_as_many_places_as_the_bound_of_addresses_permits() {
        let counts = [1, 2_048, 65_535, 64 * 1_500, 64 * 2_048, 64 * 65_535].map(SparseSpace::places_max);
        assert_eq!(counts, [64, 64, 64, 64, 64, 4]);
        let space = SparseSpace::new(&Pool::new(), 65_535).expect("addresses");
        assert!(space.fits(65_535) && space.fits(1) && !space.fits(65_536 + 64));
    }
}
