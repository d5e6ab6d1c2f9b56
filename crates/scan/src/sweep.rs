//! The sweep: from bits of bytes to positions of fields, the same code for all processors.
//!
//! `Lanes` is the interface to a processor's vectors: bits for 32 or 64 bytes. *A window has bits only for bytes that
//! exist*: this invariant justifies the unsafe loads at their positions. The remaining bits are the progress of the
//! sweep: those of `odd` from the current line on, those of `control` from its value on.

use crate::classes::{HOSTS, Nibbles, PATHS, TARGETS, escaped_run_end, is_escape, is_path_escape};
use crate::field::{Field, Stop, no_line_end, no_name};
use crate::portable::Portable;
use crate::scanner::{Scanner, sealed::Sealed};

/// The block operations of a processor: the lowest bit stands for the first byte.
pub(crate) trait Lanes: Copy {
    /// The marks of the bytes of fields.
    fn window(self, block: &[u8; WINDOW]) -> Marks;

    /// The same of half a window.
    fn half_window(self, block: &[u8; BLOCK]) -> Marks;

    /// The same of the bytes from `base` on, fewer than a window: [`last_window`], compiled for these instructions.
    fn last_window(self, bytes: &[u8], base: usize) -> Marks;

    /// Bytes that are in none of the rectangles of `class`.
    fn outside(self, block: &[u8; BLOCK], class: &'static Nibbles) -> u32;
}

/// The properties of the bytes of a window, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    /// A name cannot contain it: the colon, line ends, and others.
    pub(crate) odd: u64,
    /// A value cannot contain it: line ends, and forbidden bytes. All of them are odd, too.
    pub(crate) control: u64,
}

pub(crate) const WINDOW: usize = 64;
pub(crate) const BLOCK: usize = 32;

impl<L: Lanes + Sealed> Scanner for L {
    #[inline(always)]
    fn fields<'b, E>(
        self,
        bytes: &'b [u8],
        at: usize,
        visit: impl FnMut(Field<'b>) -> Result<(), E>,
    ) -> Result<usize, Stop<E>> {
        sweep(self, bytes, at, visit)
    }

    #[inline(always)]
    fn token_end(self, bytes: &[u8], at: usize) -> usize {
        run_end(bytes, at, |block| self.half_window(block).odd as u32)
    }

    #[inline(always)]
    fn value_end(self, bytes: &[u8], at: usize) -> usize {
        run_end(bytes, at, |block| self.half_window(block).control as u32)
    }

    #[inline(always)]
    fn target_end(self, bytes: &[u8], at: usize) -> usize {
        escaped_run_end(bytes, at, is_escape, |at| self.plain_target_end(bytes, at))
    }

    #[inline(always)]
    fn path_end(self, bytes: &[u8], at: usize) -> usize {
        escaped_run_end(bytes, at, is_path_escape, |at| self.plain_path_end(bytes, at))
    }

    #[inline(always)]
    fn plain_path_end(self, bytes: &[u8], at: usize) -> usize {
        run_end(bytes, at, |block| self.outside(block, &PATHS))
    }

    #[inline(always)]
    fn plain_target_end(self, bytes: &[u8], at: usize) -> usize {
        run_end(bytes, at, |block| self.outside(block, &TARGETS))
    }

    #[inline(always)]
    fn host_end(self, bytes: &[u8], at: usize) -> usize {
        run_end(bytes, at, |block| self.outside(block, &HOSTS))
    }
}

/// Calls `visit` with each field from `at` on, and returns the end of the head.
#[inline(always)]
fn sweep<'b, L: Lanes, E>(
    lanes: L,
    bytes: &'b [u8],
    at: usize,
    mut visit: impl FnMut(Field<'b>) -> Result<(), E>,
) -> Result<usize, Stop<E>> {
    // The last byte never has a bit, so another byte follows every byte with one: a CR can be read with its LF.
    let followed = &bytes[..bytes.len().saturating_sub(1)];
    // The start of the window; before the first one there is an empty one.
    let mut base = at.wrapping_sub(WINDOW);
    let mut marks = Marks { odd: 0, control: 0 };
    let mut start = at;
    loop {
        if marks.odd == 0 {
            // The LF of the line before may be the first byte behind the window.
            let from = start.max(base.wrapping_add(WINDOW));
            let Some(next) = next_window(lanes, followed, from, |marks| marks.odd) else {
                return Err(cut_in_name(bytes, start));
            };
            (base, marks) = next;
        }
        let name_end = base + marks.odd.trailing_zeros() as usize;
        debug_assert!(name_end < followed.len(), "a bit of a byte that is not there, or is the last");
        // SAFETY: a window has bits only for bytes that exist: `name_end` is one of `followed`.
        let ended_by = unsafe { *followed.get_unchecked(name_end) };
        if ended_by != b':' || name_end == start {
            // SAFETY: `name_end` is one of `followed`, so another byte is behind it.
            let is_end = name_end == start && unsafe { is_line_end(bytes, name_end) };
            return if is_end { Ok(start + 2) } else { Err(no_name(bytes, start, name_end)) };
        }
        // The remaining control characters are behind the colon: before it they would have ended the name.
        if marks.control == 0 {
            let Some(next) = next_window(lanes, followed, base + WINDOW, |marks| marks.control) else {
                return Err(cut_in_value(bytes, start));
            };
            (base, marks) = next;
        }
        let place = marks.control.trailing_zeros();
        let value_end = base + place as usize;
        // SAFETY: it has a bit as well, and so is one of `followed`.
        if !unsafe { is_line_end(bytes, value_end) } {
            return Err(no_line_end(bytes, value_end));
        }
        // SAFETY: bits before `start` are cleared; that of `name_end` is no control character, and so before `value_end`.
        visit(unsafe { Field::new(bytes, start, name_end, value_end) }).map_err(Stop::Refused)?;
        start = value_end + 2;
        // In two steps: a line that ends with the window leaves no bits, and a shift by 64 bits is not defined.
        let behind = !0 << 2 << place;
        marks.odd &= behind;
        marks.control &= behind;
    }
}

/// Whether CR LF is at `at`.
///
/// # Safety
///
/// `at` and the byte behind it exist, as they do where a sweep has found a bit.
#[inline(always)]
unsafe fn is_line_end(bytes: &[u8], at: usize) -> bool {
    debug_assert!(at + 1 < bytes.len(), "a bit of a byte that is not there, or is the last");
    // SAFETY: both bytes exist, by the caller's contract.
    let first = unsafe { bytes.as_ptr().add(at) };
    // SAFETY: as above; an array of bytes has no alignment.
    unsafe { *first.cast::<[u8; 2]>() == *b"\r\n" }
}

/// The reason why no name from `line` on ends: all bytes are valid, except perhaps the last.
#[cold]
fn cut_in_name<E>(bytes: &[u8], line: usize) -> Stop<E> {
    no_name(bytes, line, Portable.token_end(bytes, line))
}

/// The reason why the value of the line at `line` does not end: all bytes are valid, except perhaps the last.
#[cold]
fn cut_in_value<E>(bytes: &[u8], line: usize) -> Stop<E> {
    no_line_end(bytes, Portable.value_end(bytes, Portable.token_end(bytes, line) + 1))
}

/// The start of the next window with such bits, not before `base`, and the window.
#[inline(always)]
fn next_window<L: Lanes>(lanes: L, bytes: &[u8], mut base: usize, of: impl Fn(Marks) -> u64) -> Option<(usize, Marks)> {
    loop {
        let marks = window(lanes, bytes, base)?;
        if of(marks) != 0 {
            return Some((base, marks));
        }
        base += WINDOW;
    }
}

/// The window from `base` on, or the bytes that remain.
#[inline(always)]
fn window<L: Lanes>(lanes: L, bytes: &[u8], base: usize) -> Option<Marks> {
    match chunk(bytes, base) {
        Some(block) => Some(lanes.window(block)),
        None if base < bytes.len() => Some(lanes.last_window(bytes, base)),
        None => None,
    }
}

/// The marks of the bytes from `base` on: at least one byte, and fewer than a window.
///
/// If there are enough bytes before them, those are loaded as well, and their marks are dropped: faster than a padded
/// copy.
#[inline(always)]
pub(crate) fn last_window<L: Lanes>(lanes: L, bytes: &[u8], base: usize) -> Marks {
    let length = bytes.len() - base;
    if let Some(block) = bytes.last_chunk() {
        return lanes.window(block).behind(WINDOW - length);
    }
    let Some(last) = bytes.last_chunk() else {
        let Marks { odd, control } = lanes.half_window(&padded(bytes, base));
        let there = (1 << length) - 1;
        return Marks { odd: odd & there, control: control & there };
    };
    let last = lanes.half_window(last);
    match chunk(bytes, base) {
        Some(first) => {
            let (first, distance) = (lanes.half_window(first), length - BLOCK);
            Marks { odd: first.odd | last.odd << distance, control: first.control | last.control << distance }
        }
        None => last.behind(BLOCK - length),
    }
}

impl Marks {
    /// The marks behind so many bytes, which are fewer than a window.
    #[inline(always)]
    const fn behind(self, bytes: usize) -> Self {
        Self { odd: self.odd >> bytes, control: self.control >> bytes }
    }
}

/// The first byte from `at` on that has a bit, or the end of `bytes`. NUL, which pads a short block, must have one.
#[inline(always)]
fn run_end(bytes: &[u8], mut at: usize, ends: impl Fn(&[u8; BLOCK]) -> u32) -> usize {
    while let Some(block) = chunk(bytes, at) {
        let found = ends(block);
        if found != 0 {
            return at + found.trailing_zeros() as usize;
        }
        at += BLOCK;
    }
    let length = bytes.len().saturating_sub(at);
    if length == 0 {
        return at;
    }
    let found = match bytes.last_chunk() {
        Some(block) => ends(block) >> (BLOCK - length),
        None => ends(&padded(bytes, at)),
    };
    if found == 0 { bytes.len() } else { at + found.trailing_zeros() as usize }
}

#[inline(always)]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    // One comparison; its other side is the same for all windows.
    if at >= bytes.len().saturating_sub(N - 1) {
        return None;
    }
    // SAFETY: `at + N - 1 < bytes.len()` was checked above, so `N` bytes are there from `at` on.
    let first = unsafe { bytes.as_ptr().add(at) };
    // SAFETY: as above; an array of bytes has no alignment, and the result lives as long as `bytes`.
    Some(unsafe { &*first.cast() })
}

/// The bytes from `at` on, fewer than a block, padded with NUL. Not inlined: so few bytes are rare.
#[cold]
#[inline(never)]
fn padded(bytes: &[u8], at: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..bytes.len() - at].copy_from_slice(&bytes[at..]);
    block
}
