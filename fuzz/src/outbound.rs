//! Outbound queues that share a pool: after any sequence of operations they match the model, and free all memory.
//!
//! Every operation is a byte for its kind and its queue, and bytes for lengths.

#[expect(dead_code, reason = "the tests of the crate use the rest of it")]
#[path = "../../crates/buffer/tests/suite/support/mod.rs"]
mod support;

use self::support::model::{FILE_BYTES, LENGTH_MAX, Operation, QUEUES, World};
use crate::choices::Choices;

/// Operations on queues that share a pool, compared with the model that the tests of the queue use. In the end
/// everything is sent, or dropped.
pub fn outbound(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut world = World::new();
    let is_dropped = choices.byte() & 1 != 0;
    for _ in 0..OPERATIONS_MAX {
        if choices.is_over() {
            break;
        }
        world.run(&operation(&mut choices));
    }
    if is_dropped {
        let pool = world.pool().clone();
        drop(world);
        assert_eq!(pool.ledger().used(), 0, "memory is left");
    } else {
        world.finish();
    }
}

fn operation(choices: &mut Choices<'_>) -> Operation {
    use Operation::*;
    let choice = usize::from(choices.byte());
    let (queue, other, kind) = (choice % QUEUES, (choice + 1 + choice / 128) % QUEUES, choice / QUEUES % 16);
    let mut length = || choices.length(LENGTH_MAX);
    match kind {
        0 if choice < 128 => Write(queue, length()),
        0 => WriteWith(queue, 2 * length(), length()),
        1 => Flush(queue),
        2 | 3 => Send(queue, 1 + length() % 20, [usize::MAX, length()][usize::from(kind == 3)], length() as u8),
        4 => Link(queue, length()),
        5 => LinkBytes(queue, length()),
        6 => LinkStatic(queue, length()),
        7 => LinkShared(queue, other, length()),
        8 => LinkFile(queue, length() % FILE_BYTES, length() % (FILE_BYTES / 2)),
        9 if choice < 128 => Cursor(queue, length(), vec![length(), length(), length()]),
        9 => Pieces(queue, [length(), length(), length()]),
        10 => TwoCursors(queue, other, vec![length(), length(), length()]),
        11 if choice < 128 => Take(queue, other),
        11 => TakeUpTo(queue, other, length()),
        12 => Load(queue, length()),
        13 => [Clear, Settle, Compact, Shrink][choice / 64](queue),
        14 => [Forget(queue, length() % 4096), Trim][choice / 128].clone(),
        _ => Replace(queue),
    }
}

/// Longer sequences find nothing more.
const OPERATIONS_MAX: usize = 64;
