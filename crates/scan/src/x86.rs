//! The lanes of x86-64: AVX2, thirty-two bytes at a time, and SSSE3, sixteen.
//!
//! [`Avx2`] and [`Ssse3`] are proofs: they are created only after a check of the processor. So their methods are safe,
//! and every `unsafe` here is one of two: a call of a function that is compiled for more than the baseline, with the
//! proof at hand, or the load of a block.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_and_si128, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    _mm_setzero_si128, _mm_shuffle_epi8, _mm_srli_epi16, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16,
};

use crate::classes::{CONTROL_ABOVE, FIELD, Nibbles};
use crate::scanner::{Task, sealed::Sealed};
use crate::sweep::{BLOCK, Lanes, Marks, WINDOW, last_window};

/// The processor has AVX2 with BMI1 and BMI2, which find and mask bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Checks the processor.
    pub(crate) fn detect() -> Option<Self> {
        let has =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2");
        has.then_some(Self(()))
    }

    /// A proof that an earlier check found.
    ///
    /// # Safety
    ///
    /// [`Self::detect`] has returned one.
    #[inline(always)]
    pub(crate) const unsafe fn assume() -> Self {
        Self(())
    }

    #[inline(always)]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        fn compiled<T: Task>(avx2: Avx2, task: T) -> T::Output {
            task.run(avx2)
        }
        // SAFETY: `self` proves that the processor has these.
        unsafe { compiled(self, task) }
    }
}

impl Sealed for Avx2 {}

impl Lanes for Avx2 {
    #[inline(always)]
    fn window(self, block: &[u8; WINDOW]) -> Marks {
        // SAFETY: `self` proves that the processor has AVX2.
        unsafe { avx2::window(block) }
    }

    #[inline(always)]
    fn last_window(self, bytes: &[u8], base: usize) -> Marks {
        // SAFETY: `self` proves that the processor has AVX2, BMI1 and BMI2.
        unsafe { avx2::rest(self, bytes, base) }
    }

    #[inline(always)]
    fn half_window(self, block: &[u8; BLOCK]) -> Marks {
        // SAFETY: `self` proves that the processor has AVX2.
        unsafe { avx2::half_window(block) }
    }

    #[inline(always)]
    fn outside(self, block: &[u8; BLOCK], class: &'static Nibbles) -> u32 {
        // SAFETY: `self` proves that the processor has AVX2.
        unsafe { avx2::outside(block, class) }
    }
}

/// The processor has SSSE3, as all have since 2011 and most since 2006: it provides table lookups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ssse3(());

impl Ssse3 {
    /// Checks the processor.
    pub(crate) fn detect() -> Option<Self> {
        is_x86_feature_detected!("ssse3").then_some(Self(()))
    }

    /// A proof that an earlier check found.
    ///
    /// # Safety
    ///
    /// [`Self::detect`] has returned one.
    #[inline(always)]
    pub(crate) const unsafe fn assume() -> Self {
        Self(())
    }

    #[inline(always)]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        #[target_feature(enable = "ssse3")]
        fn compiled<T: Task>(ssse3: Ssse3, task: T) -> T::Output {
            task.run(ssse3)
        }
        // SAFETY: `self` proves that the processor has it.
        unsafe { compiled(self, task) }
    }
}

impl Sealed for Ssse3 {}

impl Lanes for Ssse3 {
    #[inline(always)]
    fn window(self, block: &[u8; WINDOW]) -> Marks {
        // SAFETY: `self` proves that the processor has SSSE3.
        unsafe { ssse3::window(block) }
    }

    #[inline(always)]
    fn last_window(self, bytes: &[u8], base: usize) -> Marks {
        // SAFETY: `self` proves that the processor has SSSE3.
        unsafe { ssse3::rest(self, bytes, base) }
    }

    #[inline(always)]
    fn half_window(self, block: &[u8; BLOCK]) -> Marks {
        // SAFETY: `self` proves that the processor has SSSE3.
        unsafe { ssse3::half_window(block) }
    }

    #[inline(always)]
    fn outside(self, block: &[u8; BLOCK], class: &'static Nibbles) -> u32 {
        // SAFETY: `self` proves that the processor has SSSE3.
        unsafe { ssse3::outside(block, class) }
    }
}

/// Thirty-two bytes at a time. All of it needs AVX2.
mod avx2 {
    use super::*;

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn window(block: &[u8; WINDOW]) -> Marks {
        let (halves, _) = block.as_chunks::<BLOCK>();
        let (first, second) = (half_window(&halves[0]), half_window(&halves[1]));
        Marks { odd: first.odd | second.odd << 32, control: first.control | second.control << 32 }
    }

    /// Outlined and cold: a head reaches the end of the bytes once, and this code would take registers from the sweep.
    #[cold]
    #[inline(never)]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn rest(avx2: Avx2, bytes: &[u8], base: usize) -> Marks {
        last_window(avx2, bytes, base)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn half_window(block: &[u8; BLOCK]) -> Marks {
        let found = look_up(&FIELD, load(block));
        let control = mask(_mm256_cmpgt_epi8(found, _mm256_set1_epi8(CONTROL_ABOVE)));
        let neither = mask(_mm256_cmpeq_epi8(found, _mm256_setzero_si256()));
        Marks { odd: u64::from(neither | control), control: u64::from(control) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn outside(block: &[u8; BLOCK], class: &Nibbles) -> u32 {
        mask(_mm256_cmpeq_epi8(look_up(class, load(block)), _mm256_setzero_si256()))
    }

    /// [`Nibbles::of`] of each byte.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn look_up(nibbles: &Nibbles, bytes: __m256i) -> __m256i {
        // A lookup uses the lower four bits, and returns 0 if the top bit is set: bytes that are not ASCII are in no
        // class.
        let lower = _mm256_shuffle_epi8(both(&nibbles.lower), bytes);
        let halves = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), _mm256_set1_epi8(0x0f));
        _mm256_and_si256(lower, _mm256_shuffle_epi8(both(&nibbles.upper), halves))
    }

    /// A table for each half of the lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn both(table: &[u8; QUARTER]) -> __m256i {
        _mm256_broadcastsi128_si256(ssse3::load(table))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(block: &[u8; BLOCK]) -> __m256i {
        // SAFETY: there are thirty-two bytes, and this load requires no alignment.
        unsafe { _mm256_loadu_si256(block.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn mask(bytes: __m256i) -> u32 {
        _mm256_movemask_epi8(bytes).cast_unsigned()
    }
}

/// The greatest width of one instruction before AVX2.
const QUARTER: usize = 16;

/// Sixteen bytes at a time. All of it needs SSSE3.
mod ssse3 {
    use super::*;

    #[inline]
    #[target_feature(enable = "ssse3")]
    pub(super) fn window(block: &[u8; WINDOW]) -> Marks {
        let (halves, _) = block.as_chunks::<BLOCK>();
        let (first, second) = (half_window(&halves[0]), half_window(&halves[1]));
        Marks { odd: first.odd | second.odd << 32, control: first.control | second.control << 32 }
    }

    /// Outlined and cold: a head reaches the end of the bytes once, and this code would take registers from the sweep.
    #[cold]
    #[inline(never)]
    #[target_feature(enable = "ssse3")]
    pub(super) fn rest(ssse3: Ssse3, bytes: &[u8], base: usize) -> Marks {
        last_window(ssse3, bytes, base)
    }

    #[inline]
    #[target_feature(enable = "ssse3")]
    pub(super) fn half_window(block: &[u8; BLOCK]) -> Marks {
        let (quarters, _) = block.as_chunks::<QUARTER>();
        let (first, second) = (quarter_window(&quarters[0]), quarter_window(&quarters[1]));
        Marks { odd: first.odd | second.odd << 16, control: first.control | second.control << 16 }
    }

    #[inline]
    #[target_feature(enable = "ssse3")]
    fn quarter_window(block: &[u8; QUARTER]) -> Marks {
        let found = look_up(&FIELD, load(block));
        let control = mask(_mm_cmpgt_epi8(found, _mm_set1_epi8(CONTROL_ABOVE)));
        let neither = mask(_mm_cmpeq_epi8(found, _mm_setzero_si128()));
        Marks { odd: u64::from(neither | control), control: u64::from(control) }
    }

    #[inline]
    #[target_feature(enable = "ssse3")]
    pub(super) fn outside(block: &[u8; BLOCK], class: &Nibbles) -> u32 {
        let (quarters, _) = block.as_chunks::<QUARTER>();
        let of = |block| mask(_mm_cmpeq_epi8(look_up(class, load(block)), _mm_setzero_si128()));
        of(&quarters[0]) | of(&quarters[1]) << 16
    }

    /// [`Nibbles::of`] of each byte.
    #[inline]
    #[target_feature(enable = "ssse3")]
    fn look_up(nibbles: &Nibbles, bytes: __m128i) -> __m128i {
        // A lookup uses the lower four bits, and returns 0 if the top bit is set: bytes that are not ASCII are in no
        // class.
        let lower = _mm_shuffle_epi8(load(&nibbles.lower), bytes);
        let halves = _mm_and_si128(_mm_srli_epi16::<4>(bytes), _mm_set1_epi8(0x0f));
        _mm_and_si128(lower, _mm_shuffle_epi8(load(&nibbles.upper), halves))
    }

    #[inline]
    #[target_feature(enable = "ssse3")]
    pub(super) fn load(block: &[u8; QUARTER]) -> __m128i {
        // SAFETY: there are sixteen bytes, and this load requires no alignment.
        unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "ssse3")]
    fn mask(bytes: __m128i) -> u32 {
        _mm_movemask_epi8(bytes).cast_unsigned()
    }
}
