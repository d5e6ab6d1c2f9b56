//! The outbound queue: write, flush, gather and send.

use std::hint::black_box;
use std::mem::MaybeUninit;

use tidegate_buffer::{Gathered, Outbound, Pool};

use crate::codecs::RESPONSE;
use crate::counted::count_this;

pub(crate) fn one(rounds: usize) {
    push_and_flush(1, rounds);
}

pub(crate) fn many(rounds: usize) {
    push_and_flush(MANY, rounds);
}

fn push_and_flush(responses: usize, rounds: usize) {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    for _ in 0..rounds {
        count_this(|| {
            for _ in 0..responses {
                queue.write(black_box(RESPONSE));
            }
            queue.flush();
        });
        let mut parts = [const { MaybeUninit::uninit() }; PARTS];
        let sent = match count_this(|| queue.gather(&mut parts, usize::MAX)) {
            Gathered::Parts(parts) | Gathered::PartsBeforeFile(parts) => parts.iter().map(|part| part.len()).sum(),
            Gathered::Nothing | Gathered::File(_) => 0,
        };
        assert_eq!(sent, responses * RESPONSE.len(), "one gather takes everything");
        count_this(|| queue.advance(sent as u64));
    }
}

pub(crate) const MANY: usize = 256;

/// The parts of one gathering write, as many as in a driver.
const PARTS: usize = 1024;
