//! Queues that are parked, and their memory.

use bytes::Bytes;
use tidegate_buffer::{Outbound, Pool};

use crate::support::{bytes, send, send_all};

/// Fills a queue.
type Fill<'a> = dyn Fn(&mut Outbound) + 'a;

/// A queue that is filled and flushed, and waits.
fn filled(pool: &Pool, fill: &Fill<'_>) -> Outbound {
    let mut queue = Outbound::new(pool);
    fill(&mut queue);
    queue.flush();
    queue.settle();
    queue
}

#[test]
fn a_parked_queue_has_its_bytes_again_and_costs_no_more_meanwhile() {
    let pool = Pool::new();
    let (head, more, long) = (bytes(1, 70), bytes(2, 15), bytes(3, 3000));
    let shared = Bytes::from(bytes(4, 5000));
    let copied: &Fill<'_> = &|queue| queue.write(&head);
    let copied_twice: &Fill<'_> = &|queue| {
        queue.write(&head);
        queue.flush();
        queue.write(&more);
    };
    let linked: &Fill<'_> = &|queue| {
        queue.write(&head);
        queue.link_static(&BLOCK);
    };
    let shares: &Fill<'_> = &|queue| {
        queue.write(&head);
        queue.link_bytes(shared.clone());
    };
    let shares_alone: &Fill<'_> = &|queue| queue.link_bytes(shared.clone());
    let view: &Fill<'_> = &|queue| {
        queue.write(&head);
        queue.link(pool.copy(&long));
    };
    let copied_long: &Fill<'_> = &|queue| queue.write(&long);
    for fill in [copied, copied_twice, linked, shares, shares_alone, view, copied_long] {
        let expected = send_all(&mut filled(&pool, fill), 10_000);
        let mut queue = filled(&pool, fill);
        let charged = pool.ledger().used();
        let parked = queue.park().expect("it has a shape that can be parked");
        assert!(queue.is_empty() && queue.memory_bytes() == 0);
        drop(queue);
        assert_eq!(parked.pending(), expected.len() as u64);
        assert!(pool.ledger().used() <= charged, "{} of {charged}", pool.ledger().used());
        let mut queue = parked.unpark();
        assert_eq!(queue.pending(), expected.len() as u64);
        // A part of it is sent, and the rest waits once more.
        let first = send(&mut queue, 40);
        let mut queue = queue.park().expect("its rest has such a shape as well").unpark();
        assert_eq!([first, send_all(&mut queue, 999)].concat(), expected);
        drop(queue);
        assert_eq!(pool.ledger().used(), 0);
    }
}

#[test]
fn a_queue_of_another_shape_is_not_parked() {
    let pool = Pool::new();
    let empty: &Fill<'_> = &|_| {};
    let two_bodies: &Fill<'_> = &|queue| (0..2).for_each(|_| queue.link_static(&BLOCK));
    let body_between: &Fill<'_> = &|queue| {
        queue.write(b"a head");
        queue.link_static(&BLOCK);
        queue.write(b"a trailer");
    };
    for fill in [empty, two_bodies, body_between] {
        let mut queue = filled(&pool, fill);
        let before = (queue.pending(), pool.ledger().used());
        assert!(queue.park().is_none());
        assert_eq!((queue.pending(), pool.ledger().used()), before);
    }
    let mut queue = filled(&pool, &|queue| queue.write(b"a head"));
    queue.write(b"and bytes that are not flushed");
    assert!(queue.park().is_none());
}

#[test]
fn a_parked_queue_that_is_dropped_gives_its_memory_back() {
    let (pool, shared) = (Pool::new(), Bytes::from(bytes(1, 5000)));
    let mut queue = filled(&pool, &|queue| {
        queue.write(b"a head");
        queue.link_bytes(shared.clone());
    });
    let parked = queue.park().expect("it has such a shape");
    assert!(parked.memory_bytes() > shared.len() && pool.ledger().used() == parked.memory_bytes());
    drop(parked);
    assert_eq!(pool.ledger().used(), 0);
    assert!(shared.is_unique());
}

static BLOCK: [u8; 4096] = [7; 4096];
