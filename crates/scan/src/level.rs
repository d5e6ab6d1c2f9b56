//! `Level`: the instruction set in use. [`run`] detects the processor's instruction sets once.

use crate::field::{Field, Stop};
#[cfg(target_arch = "aarch64")]
use crate::neon::Neon;
use crate::portable::Portable;
use crate::scanner::{Scanner, Task};
#[cfg(target_arch = "x86_64")]
use crate::x86::{Avx2, Ssse3};

/// An instruction set that this processor supports.
///
/// [`run`] uses the best one; tests and measurements use [`Level::all`].
///
/// ```
/// use tidegate_scan::{Level, Scanner, Task};
///
/// struct Method(&'static [u8]);
///
/// impl Task for Method {
///     type Output = usize;
///
///     #[inline(always)]
///     fn run<S: Scanner>(self, scanner: S) -> usize {
///         scanner.token_end(self.0, 0)
///     }
/// }
///
/// for level in Level::all() {
///     assert_eq!(level.run(Method(b"GET / HTTP/1.1\r\n")), 3, "{}", level.name());
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Level(LevelKind);

#[derive(Debug, Clone, Copy)]
enum LevelKind {
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Ssse3(Ssse3),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    Portable(Portable),
}

impl Level {
    /// The levels that this processor supports, the best one first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(Avx2::detect().map(LevelKind::Avx2));
            all.extend(Ssse3::detect().map(LevelKind::Ssse3));
        }
        #[cfg(target_arch = "aarch64")]
        all.push(LevelKind::Neon(Neon));
        all.push(LevelKind::Portable(Portable));
        all.into_iter().map(Self).collect()
    }

    /// Its name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            LevelKind::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            LevelKind::Ssse3(_) => "ssse3",
            #[cfg(target_arch = "aarch64")]
            LevelKind::Neon(_) => "neon",
            LevelKind::Portable(_) => "portable",
        }
    }

    /// Runs `task` with these instructions.
    #[inline]
    pub fn run<T: Task>(self, task: T) -> T::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            LevelKind::Avx2(avx2) => avx2.run(task),
            #[cfg(target_arch = "x86_64")]
            LevelKind::Ssse3(ssse3) => ssse3.run(task),
            #[cfg(target_arch = "aarch64")]
            LevelKind::Neon(neon) => neon.run(task),
            LevelKind::Portable(portable) => portable.run(task),
        }
    }
}

/// Runs `task` with the best instructions that this processor supports.
///
/// The processor is detected once; later calls cost a load and a branch more than [`Level::run`].
#[inline]
pub fn run<T: Task>(task: T) -> T::Output {
    best().run(task)
}

/// Calls `visit` with each field from `at` on: [`Scanner::fields`] with the best level of the processor.
///
/// For more work on a head than this, a [`Task`] selects the level only once.
///
/// # Errors
///
/// See [`Scanner::fields`].
#[inline]
pub fn fields<'b, E>(
    bytes: &'b [u8],
    at: usize,
    visit: impl FnMut(Field<'b>) -> Result<(), E>,
) -> Result<usize, Stop<E>> {
    run(Fields { bytes, at, visit })
}

struct Fields<'b, V> {
    bytes: &'b [u8],
    at: usize,
    visit: V,
}

impl<'b, E, V: FnMut(Field<'b>) -> Result<(), E>> Task for Fields<'b, V> {
    type Output = Result<usize, Stop<E>>;

    #[inline(always)]
    fn run<S: Scanner>(self, scanner: S) -> Self::Output {
        scanner.fields(self.bytes, self.at, self.visit)
    }
}

#[cfg(target_arch = "x86_64")]
use cached::best;

/// The processor's instruction sets, detected once.
#[cfg(target_arch = "x86_64")]
mod cached {
    use core::sync::atomic::{AtomicU8, Ordering};

    use super::{Avx2, Level, LevelKind, Portable, Ssse3};

    #[inline(always)]
    pub(super) fn best() -> Level {
        match BEST.load(Ordering::Relaxed) {
            // SAFETY: `find_best` stores this only where `detect` gave the same proof.
            AVX2 => Level(LevelKind::Avx2(unsafe { Avx2::assume() })),
            // SAFETY: as above.
            SSSE3 => Level(LevelKind::Ssse3(unsafe { Ssse3::assume() })),
            PORTABLE => Level(LevelKind::Portable(Portable)),
            _ => find_best(),
        }
    }

    /// Detects the level and stores it. Concurrent threads find the same.
    #[cold]
    fn find_best() -> Level {
        let (kind, found) = match (Avx2::detect(), Ssse3::detect()) {
            (Some(avx2), _) => (LevelKind::Avx2(avx2), AVX2),
            (None, Some(ssse3)) => (LevelKind::Ssse3(ssse3), SSSE3),
            (None, None) => (LevelKind::Portable(Portable), PORTABLE),
        };
        BEST.store(found, Ordering::Relaxed);
        Level(kind)
    }

    /// The detected level, or 0.
    static BEST: AtomicU8 = AtomicU8::new(0);

    const AVX2: u8 = 1;
    const SSSE3: u8 = 2;
    const PORTABLE: u8 = 3;
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
const fn best() -> Level {
    Level(LevelKind::Neon(Neon))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
const fn best() -> Level {
    Level(LevelKind::Portable(Portable))
}
