//! The lanes of 64-bit ARM: NEON, sixteen bytes at a time.
//!
//! Every 64-bit ARM that runs an operating system has it, and the compiler assumes it, so no detection is needed. Every
//! `unsafe` here is one of two: a call of a function that requires NEON, or a load or store of a block. There is no
//! instruction that gathers one bit of each lane: [`mask`] adds up lanes that hold one bit each.

use core::arch::aarch64::{
    uint8x16_t, vandq_u8, vceqzq_u8, vcgtq_s8, vdupq_n_s8, vdupq_n_u8, vget_low_u8, vld1q_u8, vpaddq_u8, vqtbl1q_u8,
    vreinterpretq_s8_u8, vshrq_n_u8, vst1_u8,
};

use crate::classes::{CONTROL_ABOVE, FIELD, Nibbles};
use crate::scanner::{Task, sealed::Sealed};
use crate::sweep::{BLOCK, Lanes, Marks, WINDOW, last_window};

/// The processor is a 64-bit ARM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neon;

impl Neon {
    #[inline(always)]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        task.run(self)
    }
}

impl Sealed for Neon {}

impl Lanes for Neon {
    #[inline(always)]
    fn window(self, block: &[u8; WINDOW]) -> Marks {
        let (quarters, _) = block.as_chunks::<QUARTER>();
        // SAFETY: a 64-bit ARM has NEON.
        unsafe { marks([&quarters[0], &quarters[1], &quarters[2], &quarters[3]]) }
    }

    /// Outlined and cold: a head reaches the end of the bytes once, and this code would take registers from the sweep.
    #[cold]
    #[inline(never)]
    fn last_window(self, bytes: &[u8], base: usize) -> Marks {
        last_window(self, bytes, base)
    }

    #[inline(always)]
    fn half_window(self, block: &[u8; BLOCK]) -> Marks {
        let (quarters, _) = block.as_chunks::<QUARTER>();
        // SAFETY: a 64-bit ARM has NEON.
        let Marks { odd, control } = unsafe { marks([&quarters[0], &quarters[1], NOTHING, NOTHING]) };
        Marks { odd: odd & 0xffff_ffff, control: control & 0xffff_ffff }
    }

    #[inline(always)]
    fn outside(self, block: &[u8; BLOCK], class: &'static Nibbles) -> u32 {
        let (quarters, _) = block.as_chunks::<QUARTER>();
        // SAFETY: a 64-bit ARM has NEON.
        unsafe { outside([&quarters[0], &quarters[1]], class) }
    }
}

/// The width of one instruction.
const QUARTER: usize = 16;

/// Replaces blocks that were not passed; the bits for it are dropped.
const NOTHING: &[u8; QUARTER] = &[0; QUARTER];

#[inline]
#[target_feature(enable = "neon")]
fn marks(blocks: [&[u8; QUARTER]; 4]) -> Marks {
    let found = blocks.map(|block| look_up(&FIELD, load(block)));
    let above = vdupq_n_s8(CONTROL_ABOVE);
    let controls = found.map(|found| vcgtq_s8(vreinterpretq_s8_u8(found), above));
    let neither = found.map(|found| vceqzq_u8(found));
    let control = mask(controls);
    Marks { odd: mask(neither) | control, control }
}

#[inline]
#[target_feature(enable = "neon")]
fn outside(blocks: [&[u8; QUARTER]; 2], class: &Nibbles) -> u32 {
    let [first, second] = blocks.map(|block| vceqzq_u8(look_up(class, load(block))));
    let none = vdupq_n_u8(0);
    mask([first, second, none, none]) as u32
}

/// [`Nibbles::of`] of each byte.
#[inline]
#[target_feature(enable = "neon")]
fn look_up(nibbles: &Nibbles, bytes: uint8x16_t) -> uint8x16_t {
    let lower = vqtbl1q_u8(load(&nibbles.lower), vandq_u8(bytes, vdupq_n_u8(0x0f)));
    vandq_u8(lower, vqtbl1q_u8(load(&nibbles.upper), vshrq_n_u8::<4>(bytes)))
}

#[inline]
#[target_feature(enable = "neon")]
fn load(block: &[u8; QUARTER]) -> uint8x16_t {
    // SAFETY: there are sixteen bytes, and this load requires no alignment.
    unsafe { vld1q_u8(block.as_ptr()) }
}

/// A bit for each lane, which is all ones or all zeros.
#[inline]
#[target_feature(enable = "neon")]
fn mask(lanes: [uint8x16_t; 4]) -> u64 {
    const BITS: &[u8; QUARTER] = &[1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    let bits = load(BITS);
    let [a, b, c, d] = lanes.map(|lanes| vandq_u8(lanes, bits));
    // Neighbours are added, three times, until the eight bits of a byte are in it.
    let sums = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
    let sums = vget_low_u8(vpaddq_u8(sums, sums));
    let mut bytes = [0; 8];
    // SAFETY: eight bytes are written to eight, and this store requires no alignment.
    unsafe { vst1_u8(bytes.as_mut_ptr(), sums) };
    u64::from_le_bytes(bytes)
}
