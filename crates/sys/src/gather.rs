//! Sending, for both drivers: the array of a gathering write, and pieces of files.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use tidegate_buffer::FileRegion;
use tidegate_buffer::injected::{self, Bug};

/// Sends a piece of a file without passing it through memory. A file that ends within its region is an error: the
/// kernel would go on reporting zero bytes for ever.
pub(crate) fn send_file(socket: impl AsFd, region: &FileRegion, bytes_max: usize) -> io::Result<usize> {
    let wanted = usize::try_from(region.length).unwrap_or(usize::MAX).min(bytes_max);
    let mut offset = region.offset;
    loop {
        match rustix::fs::sendfile(&socket, &*region.file, Some(&mut offset), wanted) {
            Err(Errno::INTR) => {}
            Ok(0) if injected::is_injected(Bug::ShortFile) => return Ok(wanted),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            other => return Ok(other?),
        }
    }
}

/// Sends the parts in one call.
pub(crate) fn send_parts(socket: impl AsFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    send_with(socket, parts, SendFlags::NOSIGNAL)
}

/// The same before a piece of a file is sent: the kernel fills a segment with both, and waits for the file at most 200 ms.
pub(crate) fn send_parts_before_file(socket: impl AsFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    send_with(socket, parts, SendFlags::NOSIGNAL.union(SendFlags::MORE))
}

fn send_with(socket: impl AsFd, parts: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
    loop {
        let sent = match parts {
            [part] => send(&socket, part, flags),
            parts => sendmsg(&socket, parts, &mut SendAncillaryBuffer::default(), flags),
        };
        match sent {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// The total length of the parts.
pub(crate) fn length(parts: &[IoSlice<'_>]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// The loop's one array for gathering writes. It never grows: parts that do not fit go with the next call.
pub(crate) struct IoVectors(Box<[MaybeUninit<IoSlice<'static>>]>);

impl IoVectors {
    pub(crate) fn new() -> Self {
        Self(Box::new_uninit_slice(IOVECTORS))
    }

    /// The array, as if it was empty: the elements of earlier writes are not read again.
    pub(crate) fn empty<'a>(&mut self) -> &mut [MaybeUninit<IoSlice<'a>>] {
        let first = self.0.as_mut_ptr().cast::<MaybeUninit<IoSlice<'a>>>();
        // SAFETY: the two element types differ in a lifetime only, so the layout is the same; a `MaybeUninit` element
        // guarantees nothing, for neither lifetime; `self` is borrowed mutably for as long as the result lives.
        unsafe { std::slice::from_raw_parts_mut(first, self.0.len()) }
    }
}

/// Linux sends no more than this in one call (MAX_RW_COUNT, with the smallest pages). The driver must not take a count
/// that is short for that reason for a full buffer: no edge would follow.
pub(crate) const CALL_BYTES_MAX: usize = i32::MAX as usize & !4095;

/// UIO_MAXIOV of Linux: the system refuses more.
pub(crate) const IOVECTORS: usize = 1024;
