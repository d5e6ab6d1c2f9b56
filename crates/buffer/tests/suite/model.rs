//! Outbound queues that share a pool, against a plain model: the bytes that have to come out, and when.

use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use tidegate_buffer::SEGMENT_BYTES;

use crate::properties;
use crate::support::model::{FILE, FILE_BYTES, LENGTH_MAX, Operation, QUEUES, RESERVED_MAX, World};

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let queue = 0..QUEUES;
    let length = prop_oneof![4 => 0..200_usize, 2 => 1_900..2_200_usize, 1 => 0..LENGTH_MAX];
    let two = (queue.clone(), 1..QUEUES).prop_map(|(one, step)| (one, (one + step) % QUEUES));
    let pieces = prop::collection::vec(length.clone(), 0..5);
    let reserved = prop_oneof![0..300_usize, 3_000..5_000_usize, 15_000..RESERVED_MAX];
    let bytes_max = prop_oneof![0..300_usize, 0..20_000_usize, Just(usize::MAX)];
    prop_oneof![
        6 => (queue.clone(), length.clone()).prop_map(|(q, n)| Write(q, n)),
        4 => (queue.clone(), 0..5_000_usize, pieces.clone()).prop_map(|(q, n, p)| Cursor(q, n, p)),
        4 => (queue.clone(), [length.clone(), length.clone(), length.clone()]).prop_map(|(q, n)| Pieces(q, n)),
        1 => (queue.clone(), 0..SEGMENT_BYTES).prop_map(|(q, n)| Forget(q, n)),
        4 => (queue.clone(), reserved, length.clone()).prop_map(|(q, r, n)| WriteWith(q, r, n)),
        2 => (two.clone(), pieces).prop_map(|((a, b), p)| TwoCursors(a, b, p)),
        3 => (queue.clone(), length.clone()).prop_map(|(q, n)| Link(q, n)),
        3 => (queue.clone(), length.clone()).prop_map(|(q, n)| LinkBytes(q, n)),
        2 => (queue.clone(), length.clone()).prop_map(|(q, n)| LinkStatic(q, n)),
        2 => (two.clone(), length).prop_map(|((a, b), n)| LinkShared(a, b, n)),
        2 => (queue.clone(), 0..FILE_BYTES, 0..FILE_BYTES / 2).prop_map(|(q, o, n)| LinkFile(q, o, n)),
        6 => queue.clone().prop_map(Flush),
        8 => (queue.clone(), 1..20_usize, bytes_max.clone(), any::<u8>()).prop_map(|(q, p, b, t)| Send(q, p, b, t)),
        2 => queue.clone().prop_map(Compact),
        3 => queue.clone().prop_map(Shrink),
        3 => queue.clone().prop_map(Settle),
        1 => queue.clone().prop_map(Clear),
        3 => two.clone().prop_map(|(to, from)| Take(to, from)),
        3 => (two, bytes_max.clone()).prop_map(|((to, from), b)| TakeUpTo(to, from, b)),
        2 => (queue.clone(), bytes_max).prop_map(|(q, b)| Load(q, b)),
        1 => queue.prop_map(Replace),
        1 => Just(Trim),
    ]
}

proptest! {
    #![proptest_config(properties::config())]

    #[test]
    fn queues_that_share_a_pool_match_the_model(operations in prop::collection::vec(operation(), 1..120)) {
        let mut world = World::new();
        for operation in &operations {
            world.run(operation);
        }
        world.finish();
    }

    #[test]
    fn dropping_queues_in_any_state_gives_everything_back(operations in prop::collection::vec(operation(), 1..60)) {
        let mut world = World::new();
        for operation in &operations {
            world.run(operation);
        }
        let pool = world.pool().clone();
        drop(world);
        prop_assert_eq!(pool.ledger().used(), 0);
    }
}

#[test]
fn the_model_reads_the_file_that_the_queues_read() {
    let (file, in_file) = &*FILE;
    let mut bytes = vec![0; FILE_BYTES];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, *in_file);
}
