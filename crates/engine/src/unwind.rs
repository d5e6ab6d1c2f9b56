//! Panics of the application's code: caught, so that each ends its own call and nothing else.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the application outside of a dispatch, such as the drop of a post. If it panics, nothing else is
/// affected.
pub(crate) fn catch_and_log(act: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(act)) {
        discard(panic);
    }
}

/// Drops the payload of a panic. That may panic again; that second payload is leaked.
pub(crate) fn discard(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}
