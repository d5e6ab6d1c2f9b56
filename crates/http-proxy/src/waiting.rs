//! `WaitQueue`: the requests of all loops that wait until an upstream has room for them.
//!
//! A request that ends wakes the one that has waited longest. If that one still finds no room, since its client has its
//! share of the upstream, it wakes the next one, and keeps its place. Several requests may end before that one looks: so one
//! that finds room wakes the next one as well, as long as there was more room. A server that is added, or back, has room for
//! all.

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
    /// Rooms that came while requests waited, and that none of them has found; at most as many as wait.
    rooms: usize,
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
            self.wake_first(1);
        }
    }

    /// A server was added, or is back: there may be room for all that wait.
    pub(super) fn on_servers(&self) {
        if self.length.load(SeqCst) > 0 {
            self.wake_first(usize::MAX);
        }
    }

    #[cold]
    fn wake_first(&self, rooms: usize) {
        let mut queue = self.lock();
        queue.rooms = queue.rooms.saturating_add(rooms).min(queue.wakers.len());
        if let Some(waker) = queue.wakers.values().next() {
            waker.wake_by_ref();
        }
    }

    fn wake_behind(&self, number: u64) {
        self.lock().wake_behind(number);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn wake_behind(&self, number: u64) {
        if let Some((_, waker)) = self.wakers.range(number + 1..).next() {
            waker.wake_by_ref();
        }
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
        let mut queue = self.waiting.lock();
        queue.wakers.remove(&self.number);
        self.waiting.length.fetch_sub(1, SeqCst);
        queue.rooms = queue.rooms.saturating_sub(self.has_room.into()).min(queue.wakers.len());
        // It may have been woken, for one room or for several.
        if !self.has_room || queue.rooms > 0 {
            queue.wake_behind(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::task::{Context, Wake};

    use tidegate_engine::EventLoop;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    type Waiting<'a> = Pin<Box<dyn Future<Output = Option<()>> + 'a>>;

    /// Requests that wait until they are polled once more, each with its waker.
    fn waiting<'a>(queue: &'a WaitQueue, rooms: &'a Cell<usize>, count: usize) -> Vec<(Waiting<'a>, Arc<Woken>)> {
        let find = || rooms.get().checked_sub(1).map(|left| rooms.set(left));
        let mut all = Vec::new();
        for _ in 0..count {
            let (room, woken) = (queue.room(10, Duration::from_secs(60), find), Arc::<Woken>::default());
            all.push((Box::pin(room) as Waiting<'_>, woken));
        }
        for (waiter, woken) in &mut all {
            assert!(waiter.as_mut().poll(&mut Context::from_waker(&woken.clone().into())).is_pending());
        }
        // They wake each other as they find no room.
        all.iter().for_each(|(_, woken)| woken.0.store(0, SeqCst));
        all
    }

    /// Polls those that were woken until none is. Returns how many have found room.
    fn run(all: &mut Vec<(Waiting<'_>, Arc<Woken>)>) -> usize {
        let before = all.len();
        while let Some(at) = all.iter().position(|(_, woken)| woken.0.swap(0, SeqCst) > 0) {
            let waker = all[at].1.clone().into();
            if all[at].0.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                drop(all.remove(at));
            }
        }
        before - all.len()
    }

    fn on_a_loop(test: impl FnOnce()) {
        let test = pin!(async { test() });
        EventLoop::readiness().expect("a loop").block_on(test).expect("it runs");
    }

    #[test]
    fn two_rooms_before_the_first_request_looks_are_for_two() {
        on_a_loop(|| {
            let (queue, rooms) = (WaitQueue::default(), Cell::new(0));
            let mut all = waiting(&queue, &rooms, 4);
            rooms.set(2);
            queue.on_room();
            queue.on_room();
            assert_eq!(run(&mut all), 2);
            // One that leaves uses up no room.
            rooms.set(1);
            queue.on_room();
            drop(all.remove(0));
            assert_eq!((run(&mut all), all.len()), (1, 0));
        });
    }

    #[test]
    fn a_server_that_is_back_has_room_for_all() {
        on_a_loop(|| {
            let (queue, rooms) = (WaitQueue::default(), Cell::new(0));
            let mut all = waiting(&queue, &rooms, 5);
            rooms.set(3);
            queue.on_servers();
            assert_eq!((run(&mut all), all.len()), (3, 2));
            rooms.set(1);
            queue.on_room();
            assert_eq!((run(&mut all), all.len()), (1, 1));
        });
    }
}
