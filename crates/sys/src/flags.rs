//! Sets of boolean flags. Each driver defines its own flags.

use std::marker::PhantomData;

/// A set of flags of the kind `F`, in two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlagSet<F>(u16, PhantomData<F>);

impl<F: Copy> FlagSet<F> {
    pub(crate) const NONE: Self = Self(0, PhantomData);

    /// The set of one flag, which has this number, of sixteen.
    pub(crate) const fn flag_bit(number: u32) -> Self {
        Self(1 << number, PhantomData)
    }

    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0, PhantomData)
    }

    pub(crate) const fn contains(self, flag: Self) -> bool {
        self.0 & flag.0 == flag.0
    }

    pub(crate) const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    pub(crate) const fn set(&mut self, flag: Self, on: bool) {
        if on {
            self.0 |= flag.0;
        } else {
            self.0 &= !flag.0;
        }
    }

    /// Sets a flag and returns whether it was clear.
    pub(crate) const fn raise(&mut self, flag: Self) -> bool {
        let had = self.contains(flag);
        self.set(flag, true);
        !had
    }

    /// Clears a flag and returns whether it was set.
    pub(crate) const fn take(&mut self, flag: Self) -> bool {
        let had = self.contains(flag);
        self.set(flag, false);
        had
    }
}
