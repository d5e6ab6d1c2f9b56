//! The tests of `tidegate-buffer` through its public interface: one program, a module for each noun.

mod input;
// The other queues of `docs/queue-experiment.md` lend no room.
#[cfg(not(any(tidegate_queue = "array", tidegate_queue = "linked")))]
mod model;
mod outbound;
mod outbound_memory;
mod properties;
mod support;
