//! The pool of contexts: each thread, which is each event loop, keeps some for the next message.
//!
//! A context is in use while a message is coded, and no longer. Making one costs more than coding a short message, so
//! those that can be reset are kept, the ones used last first, up to [`SPARE_BYTES_MAX`].

use std::cell::RefCell;

use crate::algorithm::Algorithm;
use crate::coder::{Decode, Encode};
use crate::compression::Compression;
use crate::contexts;
use crate::cost;
use crate::error::Error;
use crate::limits::DecompressionLimits;

/// A context that returns to the pool of its thread when it is dropped.
pub(crate) struct Lease<K: ContextKind> {
    key: K,
    context: Option<Box<K::Context>>,
}

impl<K: ContextKind> Lease<K> {
    pub(crate) fn context(&mut self) -> &mut K::Context {
        self.context.as_mut().expect("only `drop` takes it")
    }

    pub(crate) fn get(&self) -> &K::Context {
        self.context.as_ref().expect("only `drop` takes it")
    }
}

impl<K: ContextKind> Drop for Lease<K> {
    fn drop(&mut self) {
        if let Some(context) = self.context.take() {
            // At the end of a thread the pool may be gone already.
            let _ = POOL.try_with(|pool| pool.borrow_mut().put(self.key, context));
        }
    }
}

/// A compressing context.
pub(crate) fn encoder(compression: Compression) -> Result<Lease<Compression>, Error> {
    while let Some(mut context) = take(compression) {
        if context.reset() {
            return Ok(Lease { key: compression, context: Some(context) });
        }
    }
    let context = contexts::encoder(&compression)?;
    cost::add_context(context.memory_bytes());
    Ok(Lease { key: compression, context: Some(context) })
}

/// A decompressing context.
pub(crate) fn decoder(algorithm: Algorithm, limits: &DecompressionLimits) -> Result<Lease<Algorithm>, Error> {
    while let Some(mut context) = take(algorithm) {
        if context.reset(limits) {
            return Ok(Lease { key: algorithm, context: Some(context) });
        }
    }
    Ok(Lease { key: algorithm, context: Some(contexts::decoder(algorithm, limits)?) })
}

fn take<K: ContextKind>(key: K) -> Option<Box<K::Context>> {
    POOL.try_with(|pool| pool.borrow_mut().take(key)).ok().flatten()
}

/// Bytes of contexts that this thread keeps for reuse; at most [`SPARE_BYTES_MAX`].
#[must_use]
pub fn spare_bytes() -> usize {
    POOL.try_with(|pool| pool.borrow().bytes).unwrap_or_default()
}

/// Gives the contexts that this thread keeps back to the system.
pub fn trim_spare() {
    let spare = POOL.try_with(RefCell::take);
    drop(spare);
}

/// The identity of interchangeable contexts.
pub(crate) trait ContextKind: Copy + Eq {
    type Context: ?Sized;

    fn spare(pool: &mut Pool) -> &mut Vec<Spare<Self>>
    where
        Self: Sized;

    fn memory_bytes(context: &Self::Context) -> usize;
}

impl ContextKind for Compression {
    type Context = dyn Encode;

    fn spare(pool: &mut Pool) -> &mut Vec<Spare<Self>> {
        &mut pool.encoders
    }

    fn memory_bytes(context: &Self::Context) -> usize {
        context.memory_bytes()
    }
}

impl ContextKind for Algorithm {
    type Context = dyn Decode;

    fn spare(pool: &mut Pool) -> &mut Vec<Spare<Self>> {
        &mut pool.decoders
    }

    fn memory_bytes(context: &Self::Context) -> usize {
        context.memory_bytes()
    }
}

pub(crate) struct Spare<K: ContextKind> {
    key: K,
    context: Box<K::Context>,
    bytes: usize,
}

#[derive(Default)]
pub(crate) struct Pool {
    encoders: Vec<Spare<Compression>>,
    decoders: Vec<Spare<Algorithm>>,
    bytes: usize,
}

impl Pool {
    /// Dropping a context runs no code of an application, so it may happen within the borrow of the pool.
    fn put<K: ContextKind>(&mut self, key: K, context: Box<K::Context>) {
        let bytes = K::memory_bytes(&context);
        if self.bytes + bytes <= SPARE_BYTES_MAX {
            self.bytes += bytes;
            K::spare(self).push(Spare { key, context, bytes });
        }
    }

    fn take<K: ContextKind>(&mut self, key: K) -> Option<Box<K::Context>> {
        let spare = K::spare(self);
        let at = spare.iter().rposition(|spare| spare.key == key)?;
        let Spare { context, bytes, .. } = spare.swap_remove(at);
        self.bytes -= bytes;
        Some(context)
    }
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// The most bytes of contexts that a thread keeps for reuse.
pub const SPARE_BYTES_MAX: usize = 4 * 1024 * 1024;
