//! Owners of linked bytes: each is released once, whichever way its bytes leave the queue, also if it panics.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tidegate_buffer::{ENTRY_BYTES, LINK_BYTES_MIN, Outbound, Pool};

use crate::support::{file, region, send, send_all};

/// Counts how often it was dropped, and then calls its function.
struct Owner {
    bytes: Vec<u8>,
    drops: Arc<AtomicUsize>,
    then: fn(),
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        (self.then)();
    }
}

fn owned(drops: &Arc<AtomicUsize>, then: fn()) -> Bytes {
    Bytes::from_owner(Owner { bytes: vec![1; LINK_BYTES_MIN], drops: Arc::clone(drops), then })
}

type WayOut = (&'static str, fn(Outbound));

/// Every way in which an entry can leave a queue.
fn ways_out() -> [WayOut; 6] {
    [
        ("sent", |mut queue| queue.advance(queue.pending())),
        ("sent in pieces", |mut queue| drop(send_all(&mut queue, 1000))),
        ("cleared", |mut queue| queue.clear()),
        ("sent in part, then cleared", |mut queue| {
            send(&mut queue, LINK_BYTES_MIN + 10);
            queue.clear();
        }),
        ("dropped", drop),
        ("taken, then dropped", |mut queue| {
            let mut other = Outbound::default();
            other.take_flushed(&mut queue);
            drop(queue);
        }),
    ]
}

#[test]
fn everything_is_released_exactly_once() {
    let (pool, drops) = (Pool::new(), Arc::new(AtomicUsize::new(0)));
    for (way, take_out) in ways_out() {
        drops.store(0, Ordering::Relaxed);
        let mut queue = Outbound::new(&pool);
        for _ in 0..5 {
            queue.write(b"head");
            queue.link_bytes(owned(&drops, || ()));
            queue.link(pool.copy(&[2; LINK_BYTES_MIN]));
            queue.link_file(region(&file(b"bytes"), 0, 5));
        }
        queue.flush();
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        take_out(queue);
        assert_eq!(drops.load(Ordering::Relaxed), 5, "{way}");
        assert_eq!(pool.ledger().used(), 0, "{way}");
    }
}

#[test]
fn accounting_is_right_after_a_clear() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    for round in 0..3 {
        queue.write(&[1; 500]);
        queue.link_bytes(Bytes::from(vec![2; LINK_BYTES_MIN]));
        queue.flush();
        send(&mut queue, 600);
        queue.clear();
        assert_eq!((queue.pending(), queue.cost(), pool.ledger().used()), (0, 0, 0));
        assert_eq!(
            (queue.sent(), queue.written()),
            (queue.written(), tidegate_buffer::WritePosition(600 * (round + 1)))
        );
    }
    queue.write(b"bytes");
    assert_eq!((queue.pending(), queue.cost()), (5, 5 + ENTRY_BYTES as u64));
}

thread_local! {
    static POOL: Pool = Pool::new();
    static OTHER: RefCell<Outbound> = POOL.with(|pool| RefCell::new(Outbound::new(pool)));
}

#[test]
fn an_owner_may_write_to_another_queue_of_the_pool_while_it_is_dropped() {
    fn write_to_other() {
        OTHER.with_borrow_mut(|other| {
            other.write(b"gone;");
            other.link_bytes(Bytes::from(vec![3; LINK_BYTES_MIN]));
            other.flush();
            other.advance(1);
        });
        POOL.with(Pool::trim);
    }
    let drops = Arc::new(AtomicUsize::new(0));
    for (way, take_out) in ways_out() {
        let mut queue = POOL.with(Outbound::new);
        for _ in 0..3 {
            queue.write(b"head");
            queue.link_bytes(owned(&drops, write_to_other));
        }
        queue.flush();
        take_out(queue);
        let pending = OTHER.with_borrow(Outbound::pending);
        assert_eq!(pending, 3 * (4 + LINK_BYTES_MIN as u64), "{way}");
        OTHER.with_borrow_mut(Outbound::clear);
        assert_eq!(POOL.with(|pool| pool.ledger().used()), 0, "{way}");
    }
}

#[test]
fn an_owner_that_panics_leaks_nothing() {
    let (pool, drops) = (Pool::new(), Arc::new(AtomicUsize::new(0)));
    for (way, take_out) in ways_out() {
        drops.store(0, Ordering::Relaxed);
        let mut queue = Outbound::new(&pool);
        queue.write(b"head");
        queue.link_bytes(owned(&drops, || ()));
        queue.link_bytes(owned(&drops, || panic!("the owner's own fault")));
        queue.write(b"head");
        queue.link_bytes(owned(&drops, || ()));
        queue.flush();
        assert!(catch_unwind(AssertUnwindSafe(|| take_out(queue))).is_err());
        assert_eq!((drops.load(Ordering::Relaxed), pool.ledger().used()), (3, 0), "{way}");
    }
}

#[test]
fn an_owner_that_panics_when_it_was_sent_makes_nothing_be_sent_twice() {
    for behind in [0, 1] {
        let (pool, drops) = (Pool::new(), Arc::default());
        let mut queue = Outbound::new(&pool);
        queue.link_bytes(owned(&drops, || panic!("the owner does not want to go")));
        queue.link_bytes(owned(&drops, || {}));
        (0..behind).for_each(|_| queue.write(b"last"));
        queue.flush();
        let sent = AssertUnwindSafe(|| queue.advance(2 * LINK_BYTES_MIN as u64));
        assert!(catch_unwind(sent).is_err());
        assert_eq!(drops.load(Ordering::Relaxed), 2);
        assert_eq!(queue.front(), (behind == 1).then_some(&b"last"[..]));
        drop(queue);
        assert_eq!(pool.ledger().used(), 0);
    }
}

#[test]
fn several_owners_that_panic_are_one_panic_and_all_is_released() {
    let (pool, drops) = (Pool::new(), Arc::default());
    let mut queue = Outbound::new(&pool);
    (0..3).for_each(|_| queue.link_bytes(owned(&drops, || panic!("the owner does not want to go"))));
    queue.flush();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(queue))).is_err());
    assert_eq!((drops.load(Ordering::Relaxed), pool.ledger().used()), (3, 0));
}
