//! Types that threads share, from one place: `tests/wake_up.rs` puts a model of the same types in its stead.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32};
pub(crate) use std::sync::{Mutex, MutexGuard};
