//! `WaitQueue`: the requests of all loops that wait until an upstream has room for them.
//!
//! A request that ends wakes the one that has waited longest. If that one still finds no room, since its client has its
//! share of the upstream, it wakes the next one, and keeps its place.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tidegate_engine::task;
use tidegate_metrics::{QueueSnapshot, SharedHistogram};

#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    /// How many there are: a request that ends looks at this alone as long as none waits.
    length: AtomicUsize,
    queue: Mutex<Queue>,
    /// Requests that found the queue full, and those that waited in vain.
    full: AtomicU64,
    late: AtomicU64,
    /// How long those waited that found room.
    waits: SharedHistogram,
}

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

/// One request that waits. It leaves its place when it is dropped.
struct Waiter<'a> {
    waiting: &'a WaitQueue,
    number: u64,
    has_room: bool,
}

impl WaitQueue {
    /// Waits until `find` finds something, for `timeout` at most, unless `max` others wait.
    pub(super) async fn room<T>(
        &self,
        max: usize,
        timeout: Duration,
        mut find: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let Some(mut waiter) = self.enter(max) else {
            self.full.fetch_add(1, Relaxed);
            return None;
        };
        let began = task::now();
        let found = poll_fn(|cx| {
            // Before the search, so that no room that comes after it is missed.
            waiter.register(cx.waker());
            match find() {
                Some(found) => {
                    waiter.has_room = true;
                    Poll::Ready(found)
                }
                None => {
                    self.wake_behind(waiter.number);
                    Poll::Pending
                }
            }
        });
        let found = task::timeout(timeout, found).await.ok();
        match found {
            Some(_) => self.waits.add(task::now().saturating_duration_since(began)),
            None => _ = self.late.fetch_add(1, Relaxed),
        }
        found
    }

    /// The requests that wait, and the counts of those that have.
    pub(super) fn snapshot(&self) -> QueueSnapshot {
        let mut snapshot = QueueSnapshot::default();
        snapshot.waiting = self.length.load(Relaxed) as u64;
        snapshot.full = self.full.load(Relaxed);
        snapshot.late = self.late.load(Relaxed);
        snapshot.waits = self.waits.snapshot();
        snapshot
    }

    fn enter(&self, max: usize) -> Option<Waiter<'_>> {
        let mut queue = self.lock();
        if queue.wakers.len() >= max {
            return None;
        }
        let number = queue.next;
        queue.next += 1;
        queue.wakers.insert(number, Waker::noop().clone());
        self.length.fetch_add(1, SeqCst);
        Some(Waiter { waiting: self, number, has_room: false })
    }

    /// A request has ended.
    #[inline]
    pub(super) fn on_room(&self) {
        if self.length.load(SeqCst) > 0 {
            self.wake_first();
        }
    }

    #[cold]
    fn wake_first(&self) {
        if let Some(waker) = self.lock().wakers.values().next() {
            waker.wake_by_ref();
        }
    }

    fn wake_behind(&self, number: u64) {
        if let Some((_, waker)) = self.lock().wakers.range(number + 1..).next() {
            waker.wake_by_ref();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter<'_> {
    fn register(&self, waker: &Waker) {
        if let Some(own) = self.waiting.lock().wakers.get_mut(&self.number) {
            own.clone_from(waker);
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.waiting.lock().wakers.remove(&self.number);
        self.waiting.length.fetch_sub(1, SeqCst);
        if !self.has_room {
            // It may have been woken.
            self.waiting.wake_behind(self.number);
        }
    }
}
